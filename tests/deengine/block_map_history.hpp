// block_map_history.hpp: a long random history of the map, against a plain map.
#pragma once

#include "deengine/map/block_map.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <unordered_map>

namespace gnstor::deengine {

inline bool insert(BlockMap& map, BlockKey key, MapEntry entry) {
    const auto ticket = map.reserve(key);
    if (!ticket) return false;
    map.commit(*ticket, entry);
    return true;
}

/// Keys as volumes have them: runs of neighbouring blocks in few volumes, so that neighbours of present keys
/// are asked for.
inline BlockKey likely_key(SplitMix64& random, std::uint32_t blocks) {
    return make_key(static_cast<nvme::VolumeId>(1 + random.below(4)),
                    static_cast<nvme::BlockAddress>(random.below(blocks)));
}

inline void agree_with_a_plain_map(std::uint64_t operations, std::uint64_t seed) {
    constexpr std::uint64_t kPages = 100'000;
    SplitMix64 random(seed);
    BlockMap map(kPages);
    std::unordered_map<BlockKey, MapEntry> oracle;
    oracle.reserve(kPages);
    std::uint64_t found = 0, inserted = 0, erased = 0;
    for (std::uint64_t i = 0; i < operations; ++i) {
        const BlockKey key = likely_key(random, 60'000);
        const auto expected = oracle.find(key);
        // Keys asked for ahead are found by another way, and what was asked for may be gone or moved by then.
        if (random.below(8) == 0) map.prefetch(key);
        if (random.below(8) == 0) map.prefetch(likely_key(random, 60'000));
        const auto got = map.find(key);
        ASSERT_EQ(got.has_value(), expected != oracle.end()) << "key " << key << " at operation " << i;
        if (got) {
            ASSERT_EQ(*got, expected->second) << "key " << key << " at operation " << i;
        }
        found += got.has_value();
        const MapEntry entry{static_cast<PageNumber>(random.below(kPages)), random.below(8) == 0};
        switch (random.below(4)) {
            case 0:
                if (!got && oracle.size() < kPages) {
                    ASSERT_TRUE(insert(map, key, entry))
                        << "the map refused a key at a load of " << map.size() << " of " << map.slots();
                    oracle.emplace(key, entry);
                    ++inserted;
                }
                break;
            case 1:
                ASSERT_EQ(map.update(key, entry), got.has_value());
                if (got) expected->second = entry;
                break;
            case 2:
                if (random.below(4) == 0) {
                    ASSERT_EQ(map.erase(key), got.has_value());
                    if (got) oracle.erase(expected);
                    erased += got.has_value();
                }
                break;
            default:
                break;
        }
    }
    ASSERT_EQ(map.size(), oracle.size());
    std::uint64_t visited = 0;
    map.for_each([&](BlockKey key, MapEntry entry) {
        ++visited;
        const auto expected = oracle.find(key);
        ASSERT_NE(expected, oracle.end()) << "for_each gave key " << key << " that was never inserted";
        ASSERT_EQ(entry, expected->second);
    });
    EXPECT_EQ(visited, oracle.size());
    std::printf("block map: %llu hits, %llu inserted, %llu erased, %llu keys at the end\n",
                static_cast<unsigned long long>(found), static_cast<unsigned long long>(inserted),
                static_cast<unsigned long long>(erased), static_cast<unsigned long long>(visited));
    std::printf("GN_COUNT deengine_block_map_operations=%llu\n", static_cast<unsigned long long>(operations));
}

}  // namespace gnstor::deengine
