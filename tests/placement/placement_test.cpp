// placement_test.cpp: what placement promises: distinct slots, distinct domains, little movement, balance,
// the same answer for ever.
#include <gnstor/placement/placement.hpp>

#include <gtest/gtest.h>

#include "placement/known_answers.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <set>
#include <vector>

namespace gnstor::placement {
namespace {

constexpr std::uint32_t kChunks = 100'000;

VolumeGeometry volume(std::uint8_t replicas, std::uint64_t hash_factor = 42, nvme::VolumeId vid = 1) {
    VolumeGeometry g{};
    g.hash_factor = hash_factor;
    g.volume = vid;
    g.replicas = replicas;
    g.chunk_shift = 4;
    g.capacity_blocks = 1u << 24;
    return g;
}

ArrayMap even_map(std::uint32_t slots) {
    ArrayMap map{};
    map.version = 1;
    map.slot_count = slots;
    for (std::uint32_t i = 0; i < slots; ++i)
        map.slots[i] = {SlotState::kIn, 0, static_cast<std::uint16_t>(i), 1, {}};
    return map;
}

/// Any map at all: states, domains and weights at random.
ArrayMap random_map(SplitMix64& random) {
    ArrayMap map{};
    map.version = 1;
    map.slot_count = static_cast<std::uint32_t>(random.below(kMaxSlots + 1));
    const std::uint64_t domains = 1 + random.below(8);
    const std::uint64_t weights = 1 + random.below(3);
    constexpr SlotState kStates[] = {SlotState::kIn, SlotState::kIn, SlotState::kRebuilding,
                                     SlotState::kEmpty, SlotState::kDown};
    for (std::uint32_t i = 0; i < map.slot_count; ++i)
        map.slots[i] = {kStates[random.below(5)],
                        0,
                        static_cast<std::uint16_t>(random.below(domains)),
                        static_cast<std::uint32_t>(1 + random.below(weights) * 7),
                        {}};
    return map;
}

bool usable(const Slot& s) {
    return s.state == SlotState::kIn || s.state == SlotState::kRebuilding;
}

std::set<std::uint32_t> members(const Replicas& r) {
    return {r.slot, r.slot + r.count};
}

TEST(Placement, MatchesKnownAnswers) {
    for (const test::KnownAnswer& known : test::kKnownAnswers)
        EXPECT_TRUE(test::agrees(known)) << "map " << known.map << " volume " << known.volume << " chunk "
                                         << known.chunk << " replicas " << int{known.replicas};
    std::printf("GN_COUNT placement_known_answers=%zu\n", std::size(test::kKnownAnswers));
}

TEST(Placement, GivesDistinctUsableSlotsInDistinctDomainsWhereThereAreEnough) {
    SplitMix64 random(gnstor::test::run_seed());
    std::uint64_t cases = 0;
    for (; cases < 50'000; ++cases) {
        const ArrayMap map = random_map(random);
        const auto g = volume(static_cast<std::uint8_t>(1 + random.below(kMaxReplicas)), random.next());
        std::uint32_t up = 0;
        std::set<std::uint16_t> domains;
        for (std::uint32_t s = 0; s < map.slot_count; ++s)
            if (usable(map.slots[s])) {
                ++up;
                domains.insert(map.slots[s].domain);
            }
        const Replicas r = place(map, g, static_cast<std::uint32_t>(random.next()));
        ASSERT_EQ(r.count, std::min<std::uint32_t>(g.replicas, up));
        ASSERT_EQ(members(r).size(), r.count) << "a slot twice";
        std::set<std::uint16_t> used;
        for (const std::uint32_t s : members(r)) {
            ASSERT_LT(s, map.slot_count);
            ASSERT_TRUE(usable(map.slots[s]));
            ASSERT_TRUE(holds(r, s));
            used.insert(map.slots[s].domain);
        }
        ASSERT_EQ(used.size(), std::min<std::size_t>(r.count, domains.size()));
    }
    std::printf("GN_COUNT placement_random_maps=%llu\n", static_cast<unsigned long long>(cases));
}

TEST(Placement, ASlotThatGoesDownMovesOnlyTheChunksItHad) {
    SplitMix64 random(gnstor::test::run_seed());
    std::uint64_t moved = 0, kept = 0;
    for (int round = 0; round < 400; ++round) {
        const ArrayMap before = random_map(random);
        std::vector<std::uint32_t> up;
        for (std::uint32_t s = 0; s < before.slot_count; ++s)
            if (usable(before.slots[s])) up.push_back(s);
        if (up.size() < 2) continue;
        const std::uint32_t lost = up[random.below(up.size())];
        ArrayMap after = before;
        after.slots[lost].state = SlotState::kDown;
        const auto g = volume(static_cast<std::uint8_t>(1 + random.below(kMaxReplicas)), random.next());
        for (std::uint32_t chunk = 0; chunk < 500; ++chunk) {
            const auto old_set = members(place(before, g, chunk));
            const auto new_set = members(place(after, g, chunk));
            if (!old_set.contains(lost)) {
                ASSERT_EQ(old_set, new_set) << "a chunk moved that the slot did not have";
                ++kept;
                continue;
            }
            std::vector<std::uint32_t> stayed;
            std::ranges::set_intersection(old_set, new_set, std::back_inserter(stayed));
            ASSERT_EQ(stayed.size(), old_set.size() - 1) << "its other replicas stay where they are";
            ++moved;
        }
    }
    EXPECT_GT(moved, 10'000u);
    EXPECT_GT(kept, 50'000u);
    std::printf("GN_COUNT placement_movements=%llu\n", static_cast<unsigned long long>(moved + kept));
}

TEST(Placement, EqualWeightsRankAlikeWithAndWithoutTheLogarithm) {
    // The last slot alone has another weight; when it goes, all weights are equal and the rounded logarithm
    // is not used any more.
    ArrayMap before = even_map(kMaxSlots);
    before.slots[kMaxSlots - 1].weight = 2;
    ArrayMap after = before;
    after.slots[kMaxSlots - 1].state = SlotState::kDown;
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
        const Replicas r = place(before, volume(1), chunk);
        if (r.slot[0] == kMaxSlots - 1) continue;
        ASSERT_EQ(place(after, volume(1), chunk).slot[0], r.slot[0]) << "chunk " << chunk;
    }
}

TEST(Placement, ASpareReplacesADriveInItsSlotAndNoChunkMoves) {
    ArrayMap before = even_map(8);
    ArrayMap after = before;
    after.slots[3].ssd_uuid[0] = 0xFF;
    after.slots[3].state = SlotState::kRebuilding;
    after.version = 99;
    for (std::uint32_t chunk = 0; chunk < 10'000; ++chunk) {
        const Replicas a = place(before, volume(3), chunk), b = place(after, volume(3), chunk);
        ASSERT_TRUE(std::equal(a.slot, a.slot + 3, b.slot));
    }
}

void expect_shares(const ArrayMap& map, double tolerance) {
    std::vector<double> count(map.slot_count, 0);
    double total = 0;
    for (std::uint32_t s = 0; s < map.slot_count; ++s) total += map.slots[s].weight;
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) ++count[place(map, volume(1), chunk).slot[0]];
    for (std::uint32_t s = 0; s < map.slot_count; ++s) {
        const double share = 1.0 * kChunks * map.slots[s].weight / total;
        EXPECT_NEAR(count[s], share, share * tolerance) << "slot " << s;
    }
}

TEST(Placement, SharesAreEqualForEqualWeights) {
    for (const std::uint32_t slots : {2u, 4u, 8u, 16u, 64u})
        expect_shares(even_map(slots), slots > 16 ? 0.12 : 0.05);
}

TEST(Placement, SharesFollowTheWeights) {
    expect_shares(test::known_map(2), 0.03);
    ArrayMap map = even_map(3);
    for (std::uint32_t s = 0; s < 3; ++s) map.slots[s].weight = 1u << s;
    expect_shares(map, 0.03);
    for (std::uint32_t s = 0; s < 3; ++s) map.slots[s].weight = 65535u >> s;
    expect_shares(map, 0.03);
}

TEST(Placement, ReplicasOfOneSlotSpreadOverAllOthers) {
    const ArrayMap map = even_map(8);
    std::vector<std::uint32_t> partner(8, 0);
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
        const Replicas r = place(map, volume(2), chunk);
        if (r.slot[0] == 0) ++partner[r.slot[1]];
    }
    for (std::uint32_t s = 1; s < 8; ++s)
        EXPECT_NEAR(partner[s], kChunks / 56.0, kChunks / 56.0 * 0.1) << "slot " << s;
}

TEST(Placement, VolumesAreSpreadIndependently) {
    const ArrayMap map = even_map(8);
    std::uint32_t same = 0;
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk)
        same += place(map, volume(1, 42, 1), chunk).slot[0] == place(map, volume(1, 42, 2), chunk).slot[0];
    EXPECT_NEAR(same, kChunks / 8.0, kChunks / 8.0 * 0.05);
}

// Lanes place by what was found of the map once; the drive refuses a command that goes by another answer.
TEST(Placement, LanesAndDrivesComputeTheSamePlacement) {
    SplitMix64 random(gnstor::test::run_seed() + 77);
    std::size_t compared = 0;
    std::size_t plain = 0;
    for (int round = 0; round < 4000; ++round) {
        ArrayMap map = random_map(random);
        if (round % 2 == 0) {  // equal weights, and mostly a domain of its own each
            for (std::uint32_t i = 0; i < map.slot_count; ++i) {
                map.slots[i].weight = 5;
                map.slots[i].domain = static_cast<std::uint16_t>(random.below(64) == 0 ? 0 : i + 1);
            }
        }
        const LaneMap lanes = LaneMap::of(map);
        plain += lanes.plain;
        const VolumeGeometry v = volume(static_cast<std::uint8_t>(random.below(6)), random.next());
        for (int i = 0; i < 10; ++i, ++compared) {
            const auto chunk = static_cast<std::uint32_t>(random.next());
            const Replicas wanted = place(map, v, chunk);
            const Replicas got = place(lanes, v, chunk);
            ASSERT_EQ(got.count, wanted.count) << "round " << round;
            for (std::uint32_t r = 0; r < got.count; ++r)
                ASSERT_EQ(got.slot[r], wanted.slot[r]) << "round " << round << ", rank " << r;
            if (lanes.plain == 0 || got.count == 0) continue;
            ASSERT_EQ(gnstor::placement::place_first(lanes.members, v, chunk), wanted.slot[0])
                << "round " << round;
        }
        for (std::uint32_t i = 0; i < gnstor::placement::kMaxSlots; ++i) {
            const bool in = i < map.slot_count && map.slots[i].state == SlotState::kIn;
            ASSERT_EQ((lanes.in >> i) & 1, in ? 1u : 0u);
        }
    }
    EXPECT_GT(plain, 500u);
    EXPECT_LT(plain, 3500u);
    std::printf("GN_COUNT placement_lane_maps=%zu\n", compared);
}

TEST(Placement, AnInvalidMapNeverCausesAnOutOfBoundsAccess) {
    ArrayMap map = even_map(4);
    map.slot_count = 0xFFFFFFFF;
    EXPECT_EQ(place(map, volume(255), 1).count, 4u)
        << "more replicas than there can be, more slots than there are";
    EXPECT_EQ(place(LaneMap::of(map), volume(255), 1).count, 4u);
    map.slots[2].weight = 0;
    EXPECT_EQ(place(LaneMap::of(map), volume(4), 1).count, 3u);
    map.slot_count = 0;
    EXPECT_EQ(place(map, volume(2), 1).count, 0u);
    EXPECT_EQ(place(LaneMap::of(map), volume(2), 1).count, 0u);
    EXPECT_EQ(place(even_map(4), volume(0), 1).count, 0u);
}

}  // namespace
}  // namespace gnstor::placement
