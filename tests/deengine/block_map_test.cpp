// block_map_test.cpp: the exact cuckoo map against a plain map, at every load it may meet and beyond.
#include "deengine/block_map_history.hpp"

#include "support/seed.hpp"

namespace gnstor::deengine {
namespace {

TEST(BlockMap, AgreesWithAPlainMapOverMillionsOfOperations) {
    agree_with_a_plain_map(2'000'000, test::run_seed() + 1);
}

TEST(BlockMap, HoldsAKeyForEveryPageAndNeverHitsAnAbsentOne) {
    constexpr std::uint64_t kPages = 200'000;
    BlockMap map(kPages);
    for (std::uint32_t i = 0; i < kPages; ++i)
        ASSERT_TRUE(insert(map, make_key(static_cast<nvme::VolumeId>(1 + i % 3), i / 3), {i, false}));
    EXPECT_LE(static_cast<double>(map.size()), 0.9 * static_cast<double>(map.slots()));
    for (std::uint32_t i = 0; i < kPages; ++i)
        ASSERT_EQ(map.find(make_key(static_cast<nvme::VolumeId>(1 + i % 3), i / 3)), (MapEntry{i, false}));
    // Every other volume at the same blocks, and the blocks behind.
    std::uint64_t absent = 0;
    for (std::uint32_t vid = 4; vid < 64; ++vid)
        for (std::uint32_t b = 0; b < kPages / 3; ++b, ++absent)
            ASSERT_FALSE(map.find(make_key(static_cast<nvme::VolumeId>(vid), b)));
    std::printf("GN_COUNT deengine_block_map_absent_keys=%llu\n", static_cast<unsigned long long>(absent));
}

TEST(BlockMap, ReachesALoadOf97PercentAndStaysExactWhenOverFull) {
    constexpr std::uint32_t kBuckets = 20'000;
    constexpr std::uint64_t kSlots = std::uint64_t{kBuckets} * BlockMap::kSlotsPerBucket;
    BlockMap map(1 << 20, kBuckets);
    std::vector<BlockKey> keys;
    SplitMix64 random(test::run_seed());
    std::uint64_t refused = 0, first_refused_at = 0;
    for (std::uint64_t i = 0; i < kSlots + 1000; ++i) {
        const BlockKey key = make_key(7, static_cast<nvme::BlockAddress>(i * 3));
        if (insert(map, key, {static_cast<PageNumber>(i), false})) {
            keys.push_back(key);
        } else {
            if (refused++ == 0) first_refused_at = map.size();
            ASSERT_FALSE(map.find(key)) << "a refused key must not be there";
        }
    }
    EXPECT_GE(refused, 1000u) << "more keys than slots cannot fit";
    EXPECT_GT(static_cast<double>(first_refused_at), 0.97 * static_cast<double>(kSlots));
    EXPECT_EQ(map.size(), keys.size());
    for (const BlockKey key : keys) ASSERT_EQ(map.find(key)->page, key_block(key) / 3);
    // Room made is room used.
    for (std::uint64_t i = 0; i < keys.size(); i += 2) ASSERT_TRUE(map.erase(keys[i]));
    for (std::uint32_t i = 0; i < 1000; ++i) ASSERT_TRUE(insert(map, make_key(8, i), {i, true}));
    std::printf("block map: first refusal at load %.4f\n",
                static_cast<double>(first_refused_at) / static_cast<double>(kSlots));
}

TEST(BlockMap, AReservedEntryIsInvisibleDoesNotMoveAndCanBeReleased) {
    BlockMap map(1 << 16, 64);
    std::vector<std::pair<BlockKey, BlockMap::Ticket>> held;
    // Reservations spread through a table that then fills up around them by displacement.
    for (std::uint32_t i = 0; i < 100; ++i) held.emplace_back(make_key(1, i), *map.reserve(make_key(1, i)));
    std::uint32_t filled = 0;
    for (std::uint32_t i = 0; i < 380; ++i) filled += insert(map, make_key(2, i), {i, false});
    for (const auto& [key, ticket] : held)
        ASSERT_FALSE(map.find(key)) << "a reserved key must not be found before it is inserted";
    for (std::size_t i = 0; i < held.size(); ++i) {
        if (i % 2 == 0) map.commit(held[i].second, {static_cast<PageNumber>(i), true});
        if (i % 2 == 1) map.cancel(held[i].second);
    }
    for (std::size_t i = 0; i < held.size(); ++i) {
        const auto got = map.find(held[i].first);
        ASSERT_EQ(got.has_value(), i % 2 == 0);
        if (got) {
            ASSERT_EQ(*got, (MapEntry{static_cast<PageNumber>(i), true}));
        }
    }
    EXPECT_EQ(map.size(), filled + 50u);
    for (std::uint32_t i = 0; i < filled; ++i) ASSERT_EQ(map.find(make_key(2, i))->page, i);
}

// A small table near its limit, so that what was asked for ahead is moved, erased and put back before it is
// used.
TEST(BlockMap, APrefetchedKeyIsFoundEvenIfItMovedMeanwhile) {
    constexpr std::uint32_t kKeys = 510;  // of 512 slots
    SplitMix64 random(test::run_seed());
    BlockMap map(1 << 16, 64);
    std::vector<PageNumber> page(kKeys, kNoPage);
    std::uint64_t moved = 0;
    struct Moves final : BlockMap::MoveListener {
        explicit Moves(std::uint64_t& counted) : count(counted) {}
        void moved(BlockKey, MapEntry, std::uint32_t, std::uint32_t) override { ++count; }
        std::uint64_t& count;
    } listener(moved);
    map.set_move_listener(&listener);
    for (std::uint32_t i = 0; i < 1'000'000; ++i) {
        const auto block = static_cast<nvme::BlockAddress>(random.below(kKeys));
        const BlockKey key = make_key(3, block);
        switch (random.below(4)) {
            case 0:
                map.prefetch(key);
                break;
            case 1:
                if (page[block] == kNoPage) {
                    if (insert(map, key, {i % 60'000, false})) page[block] = i % 60'000;
                } else if (random.below(16) == 0) {
                    ASSERT_TRUE(map.erase(key));
                    page[block] = kNoPage;
                }
                break;
            case 2:
                ASSERT_EQ(map.update(key, {i % 50'000, false}), page[block] != kNoPage);
                if (page[block] != kNoPage) page[block] = i % 50'000;
                break;
            default:
                const auto got = map.find(key);
                ASSERT_EQ(got ? got->page : kNoPage, page[block]) << "operation " << i;
        }
    }
    EXPECT_GT(moved, 1000u);
}

TEST(BlockMap, EraseIfRemovesOnlyTheKeysOfOneVolume) {
    BlockMap map(30'000);
    for (std::uint32_t i = 0; i < 10'000; ++i)
        for (std::uint16_t vid = 1; vid <= 3; ++vid) ASSERT_TRUE(insert(map, make_key(vid, i), {i, false}));
    EXPECT_EQ(map.erase_if([](BlockKey key, MapEntry) { return key_volume(key) == 2; }), 10'000u);
    EXPECT_EQ(map.size(), 20'000u);
    for (std::uint32_t i = 0; i < 10'000; ++i) {
        ASSERT_FALSE(map.find(make_key(2, i)));
        ASSERT_TRUE(map.find(make_key(1, i)) && map.find(make_key(3, i)));
    }
}

}  // namespace
}  // namespace gnstor::deengine
