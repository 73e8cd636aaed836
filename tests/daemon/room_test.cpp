// room_test.cpp: the room that is promised is what a volume can be filled with, chunk by chunk.
#include "daemon/decisions/room.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>

using namespace gnstor;
using namespace gnstor::daemon;

namespace {

using Free = std::array<std::uint64_t, placement::kMaxSlots>;

placement::ArrayMap map_of(std::uint32_t slots, std::mt19937_64& random, bool equal) {
    placement::ArrayMap map{};
    map.version = 1;
    map.slot_count = slots;
    for (std::uint32_t s = 0; s < slots; ++s)
        map.slots[s] = {placement::SlotState::kIn,
                        0,
                        static_cast<std::uint16_t>(s),
                        equal ? 1000 : static_cast<std::uint32_t>(250 + random() % 750),
                        {}};
    return map;
}

/// Writes a volume from its first chunk on until an SSD has no room for the next one.
std::uint64_t filled(const placement::ArrayMap& map, Free free_blocks, std::uint32_t replicas,
                     std::uint64_t hash_factor) {
    const placement::VolumeGeometry volume{
        hash_factor, std::uint64_t{1} << 32, 9, 4, static_cast<std::uint8_t>(replicas), 0};
    for (std::uint32_t chunk = 0;; ++chunk) {
        const placement::Replicas at = placement::place(map, volume, chunk);
        for (std::uint32_t r = 0; r < at.count; ++r) {
            if (free_blocks[at.slot[r]] < 16) return std::uint64_t{chunk} * 16;
            free_blocks[at.slot[r]] -= 16;
        }
    }
}

TEST(Room, IsWhatAVolumeCanBeFilledWithUntilTheFirstSsdIsFull) {
    std::mt19937_64 random(21);
    for (int trial = 0; trial < 12; ++trial) {
        const std::uint32_t slots = 2 + random() % 7;
        const placement::ArrayMap map = map_of(slots, random, trial % 2 == 0);
        Free free_blocks{};
        for (std::uint32_t s = 0; s < slots; ++s) free_blocks[s] = 400'000 + random() % 800'000;
        for (std::uint32_t replicas = 1; replicas <= std::min(4u, slots); ++replicas) {
            const auto room = static_cast<double>(room_for(map, free_blocks, replicas));
            const auto real = static_cast<double>(filled(map, free_blocks, replicas, random()));
            EXPECT_GT(room, real * 0.96) << slots << " slots, " << replicas << " replicas";
            EXPECT_LT(room, real * 1.04) << slots << " slots, " << replicas << " replicas";
        }
    }
}

TEST(Room, EndsWithTheFirstFullSsdAndNeedsAsManySsdsAsReplicas) {
    std::mt19937_64 random(22);
    const placement::ArrayMap map = map_of(3, random, true);
    Free free_blocks{1000, 1000, 1000};
    EXPECT_EQ(room_for(map, free_blocks, 3), 1000u);
    EXPECT_EQ(room_for(map, free_blocks, 4), 0u);
    free_blocks[1] = 0;
    for (const std::uint32_t replicas : {1u, 2u, 3u}) EXPECT_EQ(room_for(map, free_blocks, replicas), 0u);
}

TEST(Room, IsToldAsFarAsSsdsAreKnown) {
    std::mt19937_64 random(23);
    const placement::ArrayMap map = map_of(3, random, true);
    ArrayInfo info;
    for (std::uint32_t s = 0; s < 3; ++s) {
        SsdInfo& ssd = info.ssds.emplace_back();
        ssd.slot = s;
        ssd.capacity_blocks = 1000;
        ssd.used_blocks = 250;
    }
    info.ssds.emplace_back();  // a spare takes nothing yet
    std::vector<Room> room = room_of(info, map);
    ASSERT_EQ(room.size(), 3u);
    EXPECT_EQ(room[2].usable, 1000u);
    EXPECT_EQ(room[2].free, 750u);
    EXPECT_GT(room[0].usable, 2800u);
    info.ssds[1].used_blocks.reset();
    room = room_of(info, map);
    ASSERT_EQ(room.size(), 3u);
    EXPECT_EQ(room[2].usable, 1000u);
    EXPECT_EQ(room[2].free, std::nullopt) << "an SSD that does not answer may be full";
    info.ssds[1].capacity_blocks = 0;
    EXPECT_EQ(room_of(info, map)[2].usable, std::nullopt) << "an SSD that was not found may be of any size";
}

}  // namespace
