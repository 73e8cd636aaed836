// Drives that run out of something: keys, pages, room below the flash. What is refused is refused whole,
// costs nothing for good, and reads go on. And what a mount finds: nothing is taken for stable that may not
// be.
#include "deengine/rig.hpp"

namespace gnstor::deengine::test::scarcity_test {

constexpr nvme::ClientId kWriter = 7;
constexpr nvme::VolumeId kVolume = 3;
constexpr nvme::VolumeId kOther = 4;

class ScarcityTest : public ::testing::Test {
  protected:
    static void set_up(Rig& rig, std::uint64_t blocks) {
        ASSERT_EQ(rig.add(make_record(kVolume, kWriter, 1, blocks)), Status::kSuccess);
        ASSERT_EQ(rig.add(make_record(kOther, kWriter, 1, blocks)), Status::kSuccess);
        ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    }
    /// Trims, until the journal's open unit holds so many pages.
    static void fill_journal_unit(Rig& rig, std::uint32_t pages) {
        for (std::uint32_t i = 0; rig.flash.programmed(rig.flash.journal_unit()) != pages; ++i)
            ASSERT_EQ(rig.trim(rig.fields(kVolume, kWriter, 0, 1), 100 + i, {{0, 1, 500 + i}}).status,
                      Status::kSuccess);
    }
    static IoFields at(const Rig& rig, nvme::BlockAddress block, std::uint32_t blocks = 1,
                       nvme::VolumeId vid = kVolume) {
        return rig.fields(vid, kWriter, block, blocks);
    }
};

TEST_F(ScarcityTest, AFullDiskBelowRefusesWritesAndRetiresNoUnit) {
    Rig rig(24, 16);
    set_up(rig, 1000);
    rig.flash.room_units = 3;  // one for the journal
    for (std::uint32_t i = 0; i < 32; ++i)
        ASSERT_EQ(rig.write(at(rig, i), i + 1, pattern(i + 1)).status, Status::kSuccess) << i;
    for (std::uint32_t i = 0; i < 40; ++i)
        ASSERT_EQ(rig.write(at(rig, 100), 100 + i, pattern(100)).status, Status::kCapacityExceeded);
    for (std::uint32_t i = 0; i < 32; ++i) EXPECT_TRUE(rig.holds(at(rig, i), i + 1));
    EXPECT_EQ(rig.engine->counters().units_bad, 0u) << "no unit was given up";
    rig.flash.room_units = 24;  // somebody made room on the disk
    for (std::uint32_t i = 32; i < 120; ++i)
        ASSERT_EQ(rig.write(at(rig, i), 200 + i, pattern(i + 1)).status, Status::kSuccess) << i;
    rig.mount();
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    for (std::uint32_t i = 0; i < 120; ++i) EXPECT_TRUE(rig.holds(at(rig, i), i + 1));
    EXPECT_EQ(rig.flash.violations, 0u);
}

TEST_F(ScarcityTest, OnAFullDiskTheRoomOfADeletedVolumeIsUsedAgain) {
    Rig rig(24, 16);
    set_up(rig, 1000);
    rig.flash.room_units = 4;  // one for the journal
    for (std::uint32_t i = 0; i < 16; ++i)
        ASSERT_EQ(rig.write(at(rig, i), i + 1, pattern(i + 1)).status, Status::kSuccess);
    for (std::uint32_t i = 0; i < 32; ++i)
        ASSERT_EQ(rig.write(at(rig, i, 1, kOther), i + 1, pattern(500 + i)).status, Status::kSuccess);
    ASSERT_EQ(rig.write(at(rig, 50), 50, pattern(1)).status, Status::kCapacityExceeded);
    ASSERT_EQ(rig.remove(kOther), Status::kSuccess);
    for (std::uint32_t i = 16; i < 48; ++i)
        ASSERT_EQ(rig.write(at(rig, i), 100 + i, pattern(i + 1)).status, Status::kSuccess) << i;
    EXPECT_EQ(rig.write(at(rig, 50), 500, pattern(1)).status, Status::kCapacityExceeded);
    rig.mount();
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    for (std::uint32_t i = 0; i < 48; ++i) EXPECT_TRUE(rig.holds(at(rig, i), i + 1));
    EXPECT_EQ(rig.flash.violations, 0u);
}

TEST_F(ScarcityTest, AMountOnAFullDiskServesReadsAndTakesChangesWhenThereIsRoomAgain) {
    int settled = 0;
    EngineOptions o = default_options();
    o.on_settled = [&] { return ++settled != 0; };
    Rig rig(24, 16, o);
    set_up(rig, 1000);
    for (std::uint32_t i = 0; i < 40; ++i)
        ASSERT_EQ(rig.write(at(rig, i % 30), i + 1, pattern(i + 1)).status, Status::kSuccess);
    const auto check = [&] {
        for (std::uint32_t i = 0; i < 30; ++i) EXPECT_TRUE(rig.holds(at(rig, i), i < 10 ? i + 31 : i + 1));
    };
    for (std::uint32_t unit = 0; unit < 24; ++unit) rig.flash.without_room.insert(unit);
    for (int boot = 0; boot < 3; ++boot) {
        rig.mount();
        ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
        ASSERT_TRUE(rig.engine->unsettled());
        for (int second = 0; second < 4; ++second) rig.engine->poll(rig.now_ns += 1'000'000'000);
        ASSERT_TRUE(rig.engine->unsettled());
        check();
        EXPECT_EQ(rig.write(at(rig, 3), 100, pattern(1)).status, Status::kCapacityExceeded);
        EXPECT_EQ(rig.trim(at(rig, 0), 101, {{0, 1, 4}}).status, Status::kCapacityExceeded);
        EXPECT_EQ(rig.zero(at(rig, 4), 102).status, Status::kCapacityExceeded);
        EXPECT_EQ(rig.add(make_record(5, kWriter)), Status::kCapacityExceeded);
        const nvme::Command flush = nvme::encode_io(IoOpcode::kFlush, at(rig, 0));
        EXPECT_EQ(rig.io(flush, kWriter, {}).status, Status::kSuccess);
        EXPECT_FALSE(rig.engine->close().ok()) << "no checkpoint holds what was recovered";
        check();
    }
    EXPECT_EQ(settled, 0);
    rig.flash.without_room.clear();
    for (int second = 0; second < 3; ++second) rig.engine->poll(rig.now_ns += 1'000'000'000);
    EXPECT_EQ(settled, 1) << "told once, before the first change";
    EXPECT_FALSE(rig.engine->unsettled());
    check();
    EXPECT_EQ(rig.engine->audit(), std::vector<std::string>{});
    ASSERT_EQ(rig.write(at(rig, 3), 100, pattern(34)).status, Status::kSuccess);
    ASSERT_EQ(rig.trim(at(rig, 0), 101, {{0, 1, 40}}).status, Status::kSuccess);
    ASSERT_EQ(rig.remove(kOther), Status::kSuccess);
    rig.mount();
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    EXPECT_FALSE(rig.engine->unsettled());
    check();
    EXPECT_TRUE(rig.holds(at(rig, 40), 0));
    EXPECT_EQ(rig.flash.violations, 0u);
}

TEST_F(ScarcityTest, AMountThatWaitsForRoomUsesUpNoPageOfTheJournal) {
    Rig rig(24, 16);
    set_up(rig, 1000);
    for (std::uint32_t i = 0; i < 20; ++i)
        ASSERT_EQ(rig.write(at(rig, i), i + 1, pattern(i + 1)).status, Status::kSuccess);
    fill_journal_unit(rig, 14);
    for (std::uint32_t unit = 0; unit < 24; ++unit) rig.flash.without_room.insert(unit);
    rig.flash.without_room.erase(rig.flash.journal_unit());  // room for two pages, less than a checkpoint
    const std::uint64_t programs = rig.flash.programs, erases = rig.flash.erases;
    for (int boot = 0; boot < 3; ++boot) {
        rig.mount();
        ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
        for (int second = 0; second < 4; ++second) rig.engine->poll(rig.now_ns += 1'000'000'000);
        ASSERT_TRUE(rig.engine->unsettled());
        for (std::uint32_t i = 0; i < 20; ++i) EXPECT_TRUE(rig.holds(at(rig, i), i + 1));
    }
    EXPECT_EQ(rig.flash.programs, programs);
    EXPECT_EQ(rig.flash.erases, erases);
    rig.flash.without_room.clear();
    for (int second = 0; second < 3; ++second) rig.engine->poll(rig.now_ns += 1'000'000'000);
    EXPECT_FALSE(rig.engine->unsettled());
    EXPECT_EQ(rig.write(at(rig, 3), 900, pattern(4)).status, Status::kSuccess);
}

TEST_F(ScarcityTest, ADeletionThatTheJournalHasNoPageForIsDoneAndItsVidWaits) {
    Rig rig(24, 16);
    set_up(rig, 1000);
    for (std::uint32_t i = 0; i < 6; ++i) {
        ASSERT_EQ(rig.write(at(rig, i), i + 1, pattern(i + 1)).status, Status::kSuccess);
        ASSERT_EQ(rig.write(at(rig, i, 1, kOther), i + 1, pattern(i + 500)).status, Status::kSuccess);
    }
    fill_journal_unit(rig, 16);
    const std::uint32_t data = rig.flash.find_last(kVolume, 0) / 16;
    for (std::uint32_t unit = 0; unit < 24; ++unit)
        if (unit != data) rig.flash.without_room.insert(unit);
    ASSERT_EQ(rig.remove(kOther), Status::kSuccess);
    for (std::uint32_t i = 0; i < 6; ++i) EXPECT_TRUE(rig.holds(at(rig, i), i + 1));
    const nvme::VolumeRecord reborn = make_record(kOther, kWriter, 2, 1000);
    EXPECT_EQ(rig.add(reborn), Status::kCapacityExceeded) << "an older checkpoint names its former blocks";
    EXPECT_EQ(rig.add(make_record(9, kWriter, 1, 1000)), Status::kSuccess);
    for (const bool killed : {false, true}) {
        if (killed) rig.mount();
        rig.flash.without_room.clear();
        for (int second = 0; second < 3; ++second) rig.engine->poll(rig.now_ns += 1'000'000'000);
        ASSERT_EQ(killed ? rig.set_map(make_map(1)) : rig.add(reborn), Status::kSuccess);
        IoFields f = at(rig, 2, 1, kOther);
        f.epoch = 2;
        EXPECT_TRUE(rig.holds(f, 0)) << "nothing of its former life";
        EXPECT_EQ(rig.write(at(rig, 3), 900 + (killed ? 1 : 0), pattern(4)).status, Status::kSuccess);
    }
    EXPECT_EQ(rig.engine->audit(), std::vector<std::string>{});
    EXPECT_EQ(rig.flash.violations, 0u);
}

TEST_F(ScarcityTest, AMountOnAFullDiskTakesTheRoomOfAVolumeThatIsDeletedThen) {
    Rig rig(24, 16);
    set_up(rig, 1000);
    for (std::uint32_t i = 0; i < 16; ++i)
        ASSERT_EQ(rig.write(at(rig, i), i + 1, pattern(i + 1)).status, Status::kSuccess);
    for (std::uint32_t i = 0; i < 64; ++i)
        ASSERT_EQ(rig.write(at(rig, i, 1, kOther), i + 1, pattern(500 + i)).status, Status::kSuccess);
    fill_journal_unit(rig, 14);
    for (std::uint32_t unit = 0; unit < 24; ++unit) rig.flash.without_room.insert(unit);
    for (std::uint32_t i = 0; i < 64; ++i) rig.flash.without_room.erase(rig.flash.find_last(kOther, i) / 16);
    rig.flash.without_room.erase(rig.flash.journal_unit());
    rig.mount();
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    ASSERT_TRUE(rig.engine->unsettled());
    const auto check = [&] {
        for (std::uint32_t i = 0; i < 16; ++i) EXPECT_TRUE(rig.holds(at(rig, i), i + 1));
    };
    for (std::uint32_t i = 0; i < 64; ++i) EXPECT_TRUE(rig.holds(at(rig, i, 1, kOther), 500 + i));
    ASSERT_EQ(rig.remove(kOther), Status::kSuccess);
    const RamFlash image = rig.flash.image();
    for (int second = 0; second < 3; ++second) rig.engine->poll(rig.now_ns += 1'000'000'000);
    EXPECT_FALSE(rig.engine->unsettled());
    check();
    ASSERT_EQ(rig.add(make_record(kOther, kWriter, 2, 1000)), Status::kSuccess);
    for (const bool cut_before_the_checkpoint : {false, true}) {
        if (cut_before_the_checkpoint) rig.flash = image.image();
        rig.mount();
        ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
        check();
        IoFields reborn = at(rig, 5, 1, kOther);
        reborn.epoch = 2;
        EXPECT_TRUE(rig.holds(reborn, 0)) << "nothing of its former life";
    }
    EXPECT_EQ(rig.flash.violations, 0u);
}

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
    EXPECT_EQ(rig.read(at(rig, 5), got).status, Status::kUnrecoveredReadError) << "and is no block of zeroes";
    EXPECT_EQ(rig.trim(at(rig, 0), 902, {{0, 1, 4}, {0, 2, 500}}).status, Status::kSuccess);
    EXPECT_TRUE(rig.holds(at(rig, 4), 0));
}

TEST_F(ScarcityTest, WhatAMountFindsIsStableBeforeAnAnswerSpeaksOfIt) {
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

TEST_F(ScarcityTest, ADriveThatHoldsVolumesKeepsItsSlot) {
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
