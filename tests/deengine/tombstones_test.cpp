// tombstones_test.cpp: intervals against a plain map from key to order, key by key.
#include "deengine/map/tombstones.hpp"

#include <gtest/gtest.h>
#include <gnstor/base/hash.hpp>

#include "support/seed.hpp"

#include <map>

namespace gnstor::deengine::test::tombstones_test {

constexpr std::uint32_t kKeys = 64;  ///< of each of two volumes

struct Plain {
    struct Item {
        nvme::Epoch epoch;
        std::uint64_t sequence;
        std::uint64_t born;
    };
    std::map<BlockKey, Item> items;

    void add(const Tombstone& t) {
        for (BlockKey key = t.first; key < t.first + t.blocks; ++key) {
            const auto it = items.find(key);
            const bool newer = it == items.end() || std::pair(t.epoch, t.sequence) >
                                                        std::pair(it->second.epoch, it->second.sequence);
            if (newer) items[key] = {t.epoch, t.sequence, t.born};
        }
    }
};

BlockKey random_key(SplitMix64& random) {
    // The last blocks of one volume and the first of the next: intervals must not run together.
    return random.below(2) == 0
               ? make_key(1, static_cast<nvme::BlockAddress>(0u - kKeys + random.below(kKeys)))
               : make_key(2, static_cast<nvme::BlockAddress>(random.below(kKeys)));
}

std::uint32_t blocks_left(BlockKey first) {
    return key_volume(first) == 1 ? 0u - key_block(first) : kKeys - key_block(first);
}

TEST(Tombstones, AgreeWithAPlainMapOfKeys) {
    const std::uint64_t seed = gnstor::test::run_seed();
    std::uint64_t operations = 0, most = 0;
    for (std::uint64_t round = 0; round < 60; ++round) {
        SplitMix64 random(seed * 1000 + round);
        Tombstones tombstones(100000);
        Plain plain;
        for (int step = 0; step < 2000; ++step, ++operations) {
            const std::uint64_t dice = random.below(100);
            const BlockKey key = random_key(random);
            if (dice < 60) {
                const auto most_blocks = std::min<std::uint64_t>(blocks_left(key), 1 + random.below(20));
                const Tombstone t{key, static_cast<std::uint32_t>(most_blocks),
                                  static_cast<nvme::Epoch>(1 + random.below(2)), 1 + random.below(200),
                                  random.below(4)};
                const std::size_t before = tombstones.size();
                const std::size_t growth = tombstones.overlapping(t.first, t.blocks) + 1;
                tombstones.add(t);
                plain.add(t);
                ASSERT_LE(tombstones.size(), before + growth) << "what overlapping() promises";
            } else if (dice < 97) {
                tombstones.remove(key);
                plain.items.erase(key);
            } else {
                const std::uint64_t born = random.below(4);
                tombstones.drop_if([&](const Tombstone& t) { return t.born == born; });
                std::erase_if(plain.items, [&](const auto& item) { return item.second.born == born; });
            }
            most = std::max<std::uint64_t>(most, tombstones.size());
            const BlockKey asked = random_key(random);
            const auto it = plain.items.find(asked);
            const auto found = tombstones.find(asked);
            ASSERT_EQ(found.has_value(), it != plain.items.end()) << "step " << step;
            if (found) {
                ASSERT_EQ(*found, WriteOrder::of_tombstone(it->second.epoch, it->second.sequence));
            }
        }
        std::map<BlockKey, std::uint64_t> sequences;
        BlockKey end = 0;
        tombstones.for_each([&](const Tombstone& t) {
            ASSERT_GE(t.first, end) << "intervals are disjoint and in order";
            ASSERT_GT(t.blocks, 0u);
            end = t.first + t.blocks;
            for (BlockKey key = t.first; key < end; ++key) sequences[key] = t.sequence;
        });
        ASSERT_EQ(sequences.size(), plain.items.size());
        for (const auto& [key, item] : plain.items) ASSERT_EQ(sequences[key], item.sequence);
    }
    EXPECT_GT(most, 30u) << "there was something to tell apart";
    std::printf("GN_COUNT deengine_tombstone_operations=%llu\n", static_cast<unsigned long long>(operations));
}

TEST(Tombstones, AnIntervalOfOneVolumeDoesNotAffectAnother) {
    Tombstones tombstones(16);
    tombstones.add({make_key(1, 0xFFFFFFF0u), 16, 1, 5, 0});
    EXPECT_TRUE(tombstones.find(make_key(1, 0xFFFFFFFFu)));
    EXPECT_FALSE(tombstones.find(make_key(2, 0)));
    EXPECT_FALSE(tombstones.find(make_key(1, 0xFFFFFFEFu)));
}

TEST(Tombstones, AdjacentIntervalsOfTheSameOrderAreMerged) {
    Tombstones tombstones(16);
    for (std::uint32_t i = 0; i < 64; ++i) tombstones.add({make_key(1, i * 4), 4, 1, 5, 0});
    EXPECT_EQ(tombstones.size(), 1u) << "a trim of many ranges in a row costs one";
}

TEST(Tombstones, AVolumeMayTakeHalfOfTheFreeTombstones) {
    constexpr std::size_t kCapacity = 1200;
    Tombstones tombstones(kCapacity);
    for (nvme::VolumeId volume = 1; volume <= 5; ++volume) {
        for (std::uint32_t block = 0; tombstones.has_room(volume); block += 2)
            tombstones.add({make_key(volume, block), 1, 1, block + 1, 0});
        EXPECT_LE(tombstones.size(), kCapacity);
        EXPECT_GE(tombstones.size_of(volume) + 2, kCapacity >> volume) << "volume " << volume;
    }
    // Counts are right after intervals have split, run together and gone.
    tombstones.add({make_key(2, 0), 100000, 2, 1, 0});
    EXPECT_EQ(tombstones.size_of(2), 1u);
    tombstones.remove(make_key(2, 50));
    EXPECT_EQ(tombstones.size_of(2), 2u);
    tombstones.drop_if(2, [](const Tombstone&) { return true; });
    EXPECT_EQ(tombstones.size_of(2), 0u);
    std::size_t sum = 0;
    for (nvme::VolumeId volume = 1; volume <= 5; ++volume) sum += tombstones.size_of(volume);
    EXPECT_EQ(sum, tombstones.size());
    EXPECT_TRUE(tombstones.has_room(2));
}

}  // namespace gnstor::deengine::test::tombstones_test
