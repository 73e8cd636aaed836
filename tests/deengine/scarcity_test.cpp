// Drives that run out of something: keys, pages. What is refused is refused whole, costs nothing for good,
// and reads go on. And what a mount finds: nothing is taken for stable that may not be. (A full disk below
// the flash: full_disk_test.cpp.)
#include "deengine/two_volumes.hpp"

namespace gnstor::deengine::test::scarcity_test {

class ScarcityTest : public TwoVolumes {};

TEST_F(ScarcityTest, ATrimOverABlockWhoseOrderCannotBeReadIsRefusedForItsWholeRange) {
    Rig rig;
    set_up(rig, 1000);
    for (std::uint32_t i = 0; i < 10; ++i)
        ASSERT_EQ(rig.write(at(rig, i), i + 1, pattern(i + 1)).status, Status::kSuccess);
    rig.flash.flip_record(rig.flash.find_last(kVolume, 5));
    EXPECT_EQ(rig.trim(at(rig, 0), 901, {{0, 3, 4}}).status, Status::kUnrecoveredReadError);
    EXPECT_TRUE(rig.holds(at(rig, 4), 5));
    EXPECT_TRUE(rig.holds(at(rig, 6), 7));
    Block got;
    EXPECT_EQ(rig.read(at(rig, 5), got).status, Status::kUnrecoveredReadError)
        << "an unreadable block must not read as zeroes";
    EXPECT_EQ(rig.trim(at(rig, 0), 902, {{0, 1, 4}, {0, 2, 500}}).status, Status::kSuccess);
    EXPECT_TRUE(rig.holds(at(rig, 4), 0));
}

TEST_F(ScarcityTest, BlocksFoundByAMountAreStableBeforeAReadReturnsThem) {
    for (const bool cache : {true, false}) {
        EngineOptions o = default_options();
        o.volatile_cache = cache;
        Rig rig(16, 16, o);
        set_up(rig, 1000);
        ASSERT_EQ(rig.write(at(rig, 0), 5, pattern(1)).status, Status::kSuccess);
        // Killed and mounted again: what the process before had programmed may lie in a volatile memory yet.
        const std::uint64_t before = rig.flash.syncs;
        rig.mount();
        ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
        EXPECT_GT(rig.flash.syncs, before);
        const nvme::Command flush = nvme::encode_io(IoOpcode::kFlush, at(rig, 0));
        ASSERT_EQ(rig.io(flush, kWriter, {}).status, Status::kSuccess);
        ASSERT_EQ(rig.write(at(rig, 0), 5, pattern(1)).status, Status::kSuccess) << "a duplicate";
    }
}

TEST_F(ScarcityTest, ADriveWithVolumesRefusesAMapThatMovesItToAnotherSlot) {
    Rig rig;
    set_up(rig, 1000);
    ASSERT_EQ(rig.write(at(rig, 0), 5, pattern(1)).status, Status::kSuccess);
    // Records lost, stores renamed: a daemon that guesses would give this drive another drive's slot, and
    // what it holds would read as never written.
    nvme::MapSet swapped = make_map(2, 2);
    std::swap(swapped.map.slots[0], swapped.map.slots[1]);
    swapped.slot = 1;
    EXPECT_EQ(rig.set_map(swapped), Status::kWrongSsd);
    rig.mount();
    EXPECT_EQ(rig.set_map(swapped), Status::kWrongSsd);
    ASSERT_EQ(rig.set_map(make_map(2, 2)), Status::kSuccess);
    // Empty, it goes wherever it is wanted.
    ASSERT_EQ(rig.remove(kVolume), Status::kSuccess);
    ASSERT_EQ(rig.remove(kOther), Status::kSuccess);
    swapped.map.version = 3;
    EXPECT_EQ(rig.set_map(swapped), Status::kSuccess);
}

}  // namespace gnstor::deengine::test::scarcity_test
