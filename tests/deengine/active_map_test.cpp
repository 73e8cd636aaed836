// active_map_test.cpp: what a drive says it holds is what place() says, for every kind of map.
#include "deengine/access/active_map.hpp"

#include <gtest/gtest.h>

#include "support/count.hpp"
#include "support/seed.hpp"

namespace gnstor::deengine {
namespace {

using placement::SlotState;

/// Maps as they can be: holes, slots that are down or rebuilding, few domains and many, equal weights and
/// not.
nvme::MapSet random_map(SplitMix64& random) {
    nvme::MapSet set{};
    set.map.version = 1 + static_cast<std::uint32_t>(random.below(1000));
    set.map.slot_count = 1 + static_cast<std::uint32_t>(random.below(placement::kMaxSlots));
    const std::uint64_t domains = 1 + random.below(random.below(2) == 0 ? 4 : 64);
    const bool equal = random.below(4) != 0;
    const bool whole = random.below(2) == 0;
    for (std::uint32_t s = 0; s < set.map.slot_count; ++s) {
        placement::Slot& slot = set.map.slots[s];
        slot.state = whole ? SlotState::kIn : static_cast<SlotState>(random.below(6));
        slot.domain = static_cast<std::uint16_t>(1000 * random.below(domains));
        slot.weight = equal ? 3 : static_cast<std::uint32_t>(random.below(4));
    }
    set.slot = static_cast<std::uint32_t>(random.below(set.map.slot_count));
    return set;
}

placement::VolumeGeometry random_volume(SplitMix64& random) {
    return {random.next(),
            1ull << 32,
            static_cast<nvme::VolumeId>(1 + random.below(9)),
            4,
            static_cast<std::uint8_t>(1 + random.below(placement::kMaxReplicas)),
            0};
}

TEST(ActiveMap, OwnsExactlyWhatPlaceSaysUnderEveryKindOfMap) {
    SplitMix64 random(test::run_seed());
    std::uint64_t cases = 0, owned = 0, quick = 0;
    ActiveMap map;
    for (std::uint32_t m = 0; m < 3000; ++m) {
        const nvme::MapSet set = random_map(random);
        map.activate(set);
        map.forget();
        for (std::uint32_t v = 0; v < 4; ++v) {
            const placement::VolumeGeometry volume = random_volume(random);
            const SlotRank rank(set.map, set.slot);
            for (std::uint32_t c = 0; c < 16; ++c, ++cases) {
                const auto chunk = static_cast<std::uint32_t>(random.below(1u << 28));
                const bool expected = placement::holds(placement::place(set.map, volume, chunk), set.slot);
                ASSERT_EQ(map.owns(volume, chunk), expected) << "map " << m << ", chunk " << chunk;
                ASSERT_EQ(map.owns(volume, chunk), expected) << "the cached answer differs";
                owned += expected;
                if (!rank.knows(volume.replicas)) continue;
                ASSERT_EQ(rank.holds(volume, chunk), expected) << "map " << m << ", chunk " << chunk;
                ++quick;
            }
        }
    }
    EXPECT_GT(owned, cases / 50);
    EXPECT_GT(quick, cases / 4) << "too few cases used the fast path";
    EXPECT_LT(quick, cases);
    test::count("deengine_active_map_chunks", cases);
}

TEST(ActiveMap, ASlotOutsideTheMapOwnsNoChunk) {
    nvme::MapSet set{};
    set.map.version = 1;
    set.map.slot_count = 4;
    for (std::uint32_t s = 0; s < 4; ++s)
        set.map.slots[s] = {
            s == 0 ? SlotState::kDown : SlotState::kIn, 0, static_cast<std::uint16_t>(s), 1, {}};
    ActiveMap map;
    const placement::VolumeGeometry volume{1, 1ull << 32, 3, 4, 3, 0};
    for (const std::uint32_t slot : {0u, 4u, 63u, ~0u}) {
        set.slot = slot;
        map.activate(set);
        map.forget();
        for (std::uint32_t c = 0; c < 1000; ++c) ASSERT_FALSE(map.owns(volume, c)) << "slot " << slot;
    }
}

}  // namespace
}  // namespace gnstor::deengine
