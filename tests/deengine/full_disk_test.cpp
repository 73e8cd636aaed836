// A sparse store on a disk without room. Reads are served, refused changes change nothing, and volumes can be
// deleted. A mount waits for room and programs nothing meanwhile. The drive takes writes again, without a
// restart, as soon as the disk has room.
#include "deengine/log/unit_pool.hpp"
#include "deengine/two_volumes.hpp"
#include "support/count.hpp"

namespace gnstor::deengine::test::full_disk_test {

constexpr std::uint32_t kUnits = 24;
constexpr std::uint32_t kPages = 16;  // a unit
constexpr std::uint32_t kKept = 3;    // free units whose room users leave to the journal and the collector

class FullDiskTest : public TwoVolumes {
  protected:
    /// Blocks 0 .. count - 1, block b with pattern first + b.
    static void write_blocks(Rig& rig, nvme::VolumeId vid, std::uint32_t count, std::uint64_t first) {
        for (std::uint32_t b = 0; b < count; ++b)
            ASSERT_EQ(rig.write(at(rig, b, 1, vid), b + 1, pattern(first + b)).status, Status::kSuccess);
    }
    /// Trims, until the journal's open unit holds so many pages.
    static void fill_journal_unit(Rig& rig, std::uint32_t pages) {
        for (std::uint32_t i = 0; rig.flash.programmed(rig.flash.journal_unit()) != pages; ++i)
            ASSERT_EQ(rig.trim(rig.fields(kVolume, kWriter, 0, 1), 100 + i, {{0, 1, 500 + i}}).status,
                      Status::kSuccess);
    }
    static std::uint32_t unit_of(const Rig& rig, nvme::BlockAddress block, nvme::VolumeId vid = kVolume) {
        return rig.flash.find_last(vid, block) / kPages;
    }
    /// No unit has room but the one that is named.
    static void fill_disk(Rig& rig, std::uint32_t but = kNoUnit) {
        for (std::uint32_t unit = 0; unit < kUnits; ++unit)
            if (unit != but) rig.flash.without_room.insert(unit);
    }
    static void pass_seconds(Rig& rig, int seconds) {
        for (int s = 0; s < seconds; ++s) rig.engine->poll(rig.now_ns += 1'000'000'000);
    }
};

TEST_F(FullDiskTest, AFullDiskUnderTheStoreRefusesWritesAndRetiresNoUnit) {
    Rig rig(kUnits, kPages);
    set_up(rig, 1000);
    rig.flash.room_units = 3 + kKept;  // one for the journal
    for (std::uint32_t i = 0; i < 32; ++i)
        ASSERT_EQ(rig.write(at(rig, i), i + 1, pattern(i + 1)).status, Status::kSuccess) << i;
    for (std::uint32_t i = 0; i < 40; ++i)
        ASSERT_EQ(rig.write(at(rig, 100), 100 + i, pattern(100)).status, Status::kCapacityExceeded);
    for (std::uint32_t i = 0; i < 32; ++i) EXPECT_TRUE(rig.holds(at(rig, i), i + 1));
    EXPECT_EQ(rig.engine->counters().units_bad, 0u) << "no unit may be retired";
    rig.flash.room_units = kUnits;  // the disk has room again
    for (std::uint32_t i = 32; i < 120; ++i)
        ASSERT_EQ(rig.write(at(rig, i), 200 + i, pattern(i + 1)).status, Status::kSuccess) << i;
    rig.mount();
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    for (std::uint32_t i = 0; i < 120; ++i) EXPECT_TRUE(rig.holds(at(rig, i), i + 1));
    EXPECT_EQ(rig.flash.violations, 0u);
}

TEST_F(FullDiskTest, OnAFullDiskTheSpaceOfADeletedVolumeIsReused) {
    Rig rig(kUnits, kPages);
    set_up(rig, 1000);
    rig.flash.room_units = 4 + kKept;  // one for the journal
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

TEST_F(FullDiskTest, AMountOnAFullDiskServesReadsAndAcceptsChangesWhenThereIsSpaceAgain) {
    int settled = 0;
    EngineOptions o = default_options();
    o.on_settled = [&] { return ++settled != 0; };
    Rig rig(kUnits, kPages, o);
    set_up(rig, 1000);
    for (std::uint32_t i = 0; i < 40; ++i)
        ASSERT_EQ(rig.write(at(rig, i % 30), i + 1, pattern(i + 1)).status, Status::kSuccess);
    const auto check = [&] {
        for (std::uint32_t i = 0; i < 30; ++i) EXPECT_TRUE(rig.holds(at(rig, i), i < 10 ? i + 31 : i + 1));
    };
    fill_disk(rig);
    for (int boot = 0; boot < 3; ++boot) {
        rig.mount();
        ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
        ASSERT_TRUE(rig.engine->unsettled());
        pass_seconds(rig, 4);
        ASSERT_TRUE(rig.engine->unsettled());
        check();
        EXPECT_EQ(rig.write(at(rig, 3), 100, pattern(1)).status, Status::kCapacityExceeded);
        EXPECT_EQ(rig.trim(at(rig, 0), 101, {{0, 1, 4}}).status, Status::kCapacityExceeded);
        EXPECT_EQ(rig.zero(at(rig, 4), 102).status, Status::kCapacityExceeded);
        EXPECT_EQ(rig.add(make_record(5, kWriter)), Status::kCapacityExceeded);
        nvme::SurveyExtent extent{};
        const auto survey = nvme::encode_copy(nvme::CopyOpcode::kCopySurvey, rig.term, kVolume, 0, 64, 1,
                                              static_cast<std::uint32_t>(nvme::SurveyKind::kChanges));
        EXPECT_EQ(rig.admin(survey, std::as_writable_bytes(std::span(&extent, 1))).status, Status::kSuccess);
        EXPECT_EQ(extent.flags, 0u) << "a drive that is not settled must not call anything unchanged";
        const nvme::Command flush = nvme::encode_io(IoOpcode::kFlush, at(rig, 0));
        EXPECT_EQ(rig.io(flush, kWriter, {}).status, Status::kSuccess);
        EXPECT_FALSE(rig.engine->close().ok())
            << "the recovered state is in no checkpoint, so the close must fail";
        check();
    }
    EXPECT_EQ(settled, 0);
    rig.flash.without_room.clear();
    pass_seconds(rig, 3);
    EXPECT_EQ(settled, 1) << "the warning must come once, before the first change";
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

TEST_F(FullDiskTest, AMountThatWaitsForSpaceConsumesNoJournalPage) {
    Rig rig(kUnits, kPages);
    set_up(rig, 1000);
    for (std::uint32_t i = 0; i < 20; ++i)
        ASSERT_EQ(rig.write(at(rig, i), i + 1, pattern(i + 1)).status, Status::kSuccess);
    fill_journal_unit(rig, 14);
    fill_disk(rig);
    rig.flash.without_room.erase(rig.flash.journal_unit());  // room for two pages, less than a checkpoint
    const std::uint64_t programs = rig.flash.programs, erases = rig.flash.erases;
    for (int boot = 0; boot < 3; ++boot) {
        rig.mount();
        ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
        pass_seconds(rig, 4);
        ASSERT_TRUE(rig.engine->unsettled());
        for (std::uint32_t i = 0; i < 20; ++i) EXPECT_TRUE(rig.holds(at(rig, i), i + 1));
    }
    EXPECT_EQ(rig.flash.programs, programs);
    EXPECT_EQ(rig.flash.erases, erases);
    rig.flash.without_room.clear();
    pass_seconds(rig, 3);
    EXPECT_FALSE(rig.engine->unsettled());
    EXPECT_EQ(rig.write(at(rig, 3), 900, pattern(4)).status, Status::kSuccess);
}

TEST_F(FullDiskTest, ADeletionWithoutAJournalPageIsExecutedAndItsVidIsReusedLater) {
    Rig rig(kUnits, kPages);
    set_up(rig, 1000);
    for (std::uint32_t i = 0; i < 6; ++i) {
        ASSERT_EQ(rig.write(at(rig, i), i + 1, pattern(i + 1)).status, Status::kSuccess);
        ASSERT_EQ(rig.write(at(rig, i, 1, kOther), i + 1, pattern(i + 500)).status, Status::kSuccess);
    }
    fill_journal_unit(rig, 16);
    fill_disk(rig, unit_of(rig, 0));
    ASSERT_EQ(rig.remove(kOther), Status::kSuccess);
    for (std::uint32_t i = 0; i < 6; ++i) EXPECT_TRUE(rig.holds(at(rig, i), i + 1));
    const nvme::VolumeRecord reborn = make_record(kOther, kWriter, 2, 1000);
    EXPECT_EQ(rig.add(reborn), Status::kCapacityExceeded) << "an older checkpoint names its former blocks";
    EXPECT_EQ(rig.add(make_record(9, kWriter, 1, 1000)), Status::kSuccess);
    for (const bool killed : {false, true}) {
        if (killed) rig.mount();
        rig.flash.without_room.clear();
        pass_seconds(rig, 3);
        ASSERT_EQ(killed ? rig.set_map(make_map(1)) : rig.add(reborn), Status::kSuccess);
        IoFields f = at(rig, 2, 1, kOther);
        f.epoch = 2;
        EXPECT_TRUE(rig.holds(f, 0)) << "a block of the deleted predecessor reappeared";
        EXPECT_EQ(rig.write(at(rig, 3), 900 + (killed ? 1 : 0), pattern(4)).status, Status::kSuccess);
    }
    EXPECT_EQ(rig.engine->audit(), std::vector<std::string>{});
    EXPECT_EQ(rig.flash.violations, 0u);
}

TEST_F(FullDiskTest, AMountOnAFullDiskReusesTheSpaceOfAVolumeDeletedThen) {
    Rig rig(kUnits, kPages);
    set_up(rig, 1000);
    for (std::uint32_t i = 0; i < 16; ++i)
        ASSERT_EQ(rig.write(at(rig, i), i + 1, pattern(i + 1)).status, Status::kSuccess);
    for (std::uint32_t i = 0; i < 64; ++i)
        ASSERT_EQ(rig.write(at(rig, i, 1, kOther), i + 1, pattern(500 + i)).status, Status::kSuccess);
    fill_journal_unit(rig, 14);
    fill_disk(rig);
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
    pass_seconds(rig, 3);
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
        EXPECT_TRUE(rig.holds(reborn, 0)) << "a block of the deleted predecessor reappeared";
    }
    EXPECT_EQ(rig.flash.violations, 0u);
}

TEST_F(FullDiskTest, ADeletionFreesItsUnitsEvenIfJournalEntriesWait) {
    enum class Before { kNothing, kFloor, kDeletionOfNothing };
    for (const Before before : {Before::kNothing, Before::kFloor, Before::kDeletionOfNothing}) {
        SCOPED_TRACE(static_cast<int>(before));
        constexpr std::uint32_t kBlocks = 128;
        Rig rig(kUnits, kPages);
        set_up(rig, 1000);
        ASSERT_EQ(rig.add(make_record(9, kWriter, 1, 1000)), Status::kSuccess);
        write_blocks(rig, kVolume, 6, 1);
        write_blocks(rig, kOther, kBlocks, 500);
        fill_journal_unit(rig, kPages);
        fill_disk(rig);
        for (std::uint32_t b = 0; b < kBlocks; ++b) rig.flash.without_room.erase(unit_of(rig, b, kOther));
        rig.flash.without_room.insert(unit_of(rig, kBlocks - 1, kOther));
        if (before == Before::kFloor) {
            nvme::Command floor = rig.admin_command(nvme::AdminOpcode::kFloor);
            floor.cdw10 = kVolume;
            floor.cdw11 = 1;
            floor.cdw12 = 5;
            EXPECT_EQ(rig.admin(floor, {}).status, Status::kSuccess);
        } else if (before == Before::kDeletionOfNothing) {
            EXPECT_EQ(rig.remove(9), Status::kSuccess);
        }
        ASSERT_EQ(rig.remove(kOther), Status::kSuccess);
        pass_seconds(rig, 3);
        EXPECT_EQ(rig.write(at(rig, 400), 950, pattern(4)).status, Status::kSuccess);
        EXPECT_EQ(rig.add(make_record(kOther, kWriter, 2, 1000)), Status::kSuccess);
        EXPECT_EQ(rig.flash.violations, 0u);
    }
}

TEST_F(FullDiskTest, ATrimRefusedForLackOfAJournalPageLeavesNoTombstone) {
    Rig rig(kUnits, kPages);
    set_up(rig, 1000);
    rig.flash.room_units = rig.flash.with_room.size();
    std::uint32_t trims = 0;
    while (ok(rig.trim(at(rig, 0), 500 + trims, {{0, 1, 100 + trims}}).status)) ASSERT_LT(++trims, 100u);
    EXPECT_EQ(rig.trim(at(rig, 0), 900, {{0, 1, 40}}).status, Status::kCapacityExceeded);
    rig.flash.room_units = kUnits;
    EXPECT_EQ(rig.write(at(rig, 40), 800, pattern(7)).status, Status::kSuccess);
    EXPECT_TRUE(rig.holds(at(rig, 40), 7)) << "older than the trim that was refused";
}

/// Overwrites leave garbage in every unit; a collector without a unit with room could never gather it.
TEST_F(FullDiskTest, ADriveOfMostlyStalePagesOnAFullDiskAcceptsOverwrites) {
    Rig rig(kUnits, kPages);
    set_up(rig, 1000);
    rig.flash.room_units = 10 + kKept;
    std::uint32_t blocks = 0;
    while (ok(rig.write(at(rig, blocks), blocks + 1, pattern(blocks + 1)).status)) ++blocks;
    ASSERT_GT(blocks, 100u);
    for (std::uint32_t b = 0; b < blocks; b += 2)
        ASSERT_EQ(rig.trim(at(rig, 0), 1000 + b, {{0, 1, b}}).status, Status::kSuccess) << b;
    for (std::uint32_t i = 0; i < 1000; ++i) {
        const std::uint32_t b = 1 + 2 * (i % (blocks / 4));
        Status status = Status::kBusy;
        for (int tries = 0; tries < 20 && status == Status::kBusy; ++tries) {
            status = rig.write(at(rig, b), 5000 + i, pattern(5000 + i)).status;
            rig.engine->poll(rig.now_ns += 1'000'000);
        }
        ASSERT_EQ(status, Status::kSuccess) << i;
    }
    EXPECT_LE(rig.flash.with_room.size(), rig.flash.room_units);
    EXPECT_EQ(rig.engine->audit(), std::vector<std::string>{});
}

/// A record that says that a unit was closed excuses, after a kill, records that are missing at its end.
TEST_F(FullDiskTest, AUnitThatCouldNotBeClosedIsNotRecordedAsClosed) {
    for (const bool refused_once : {false, true}) {
        SCOPED_TRACE(refused_once);
        Rig rig(kUnits, kPages);
        set_up(rig, 1000);
        write_blocks(rig, kVolume, 5, 1);
        fill_journal_unit(rig, kPages);
        const std::uint32_t unit = unit_of(rig, 4);
        if (refused_once) {
            fill_disk(rig);
            EXPECT_EQ(rig.write(at(rig, 200), 901, pattern(1)).status, Status::kCapacityExceeded);
            rig.flash.without_room.clear();
        }
        for (std::uint32_t b = 5; b < 40; ++b)
            ASSERT_EQ(rig.write(at(rig, b), 1000 + b, pattern(b + 1)).status, Status::kSuccess);
        pass_seconds(rig, 8);
        std::uint32_t last = 0;
        for (std::uint32_t b = 5; b < 40; ++b)
            if (rig.flash.find_last(kVolume, b) == unit * kPages + kPages - 1) last = b;
        if (last == 0) {
            EXPECT_TRUE(refused_once);
            EXPECT_EQ(rig.flash.programmed(unit), 5u) << "a page was programmed into a closed unit";
            continue;
        }
        rig.flash.lose_record(rig.flash.find_last(kVolume, last));
        rig.options.same_boot = true;
        rig.mount();
        ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
        Block got;
        EXPECT_EQ(rig.read(at(rig, last), got).status, Status::kDoubtful);
    }
}

TEST_F(FullDiskTest, ADoubtfulBlockStaysDoubtfulAfterACutDuringItsCheckpoint) {
    for (const bool full : {false, true}) {
        EngineOptions o = default_options();
        o.volatile_cache = false;
        Rig rig(kUnits, kPages, o);
        set_up(rig, 1000);
        fill_journal_unit(rig, 14);
        for (std::uint32_t b = 0; b < 16; ++b)
            ASSERT_EQ(rig.write(at(rig, b), 800 + b, pattern(b + 1)).status, Status::kSuccess);
        ASSERT_EQ(rig.write(at(rig, 5), 900, pattern(77)).status, Status::kSuccess);
        const PageNumber page = rig.flash.find_last(kVolume, 5);
        ASSERT_EQ(page % kPages, 0u) << "alone in its unit";
        rig.flash.flip_data(page, 1234);
        if (full) {
            fill_disk(rig, page / kPages);
            rig.flash.without_room.erase(rig.flash.journal_unit());
        }
        std::vector<RamFlash> cuts;
        bool inside = false;
        rig.flash.on_step = [&](Step step) {
            if (std::exchange(inside, true)) return;
            if (step == Step::kErased || step == Step::kProgrammed) cuts.push_back(rig.flash.image());
            inside = false;
        };
        rig.mount();
        rig.flash.on_step = nullptr;
        cuts.push_back(rig.flash.image());
        for (std::size_t i = 0; i < cuts.size(); ++i) {
            SCOPED_TRACE(std::to_string(i) + (full ? ", full" : ""));
            rig.flash = cuts[i].image();
            rig.flash.without_room.clear();
            rig.mount();
            ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
            Block got;
            EXPECT_EQ(rig.read(at(rig, 5), got).status, Status::kDoubtful)
                << "the older version was read silently";
        }
    }
}

TEST_F(FullDiskTest, AVolumeThatIsRefusedRepeatedlyLeavesOneRecord) {
    Rig rig(kUnits, kPages);
    set_up(rig, 1000);
    write_blocks(rig, kVolume, 6, 1);
    write_blocks(rig, kOther, 6, 500);
    fill_journal_unit(rig, kPages);
    fill_disk(rig);
    ASSERT_EQ(rig.remove(kOther), Status::kSuccess);
    for (int i = 0; i < 2000; ++i)
        ASSERT_EQ(rig.add(make_record(kOther, kWriter, 2, 1000)), Status::kCapacityExceeded);
    rig.flash.without_room.clear();
    const std::uint64_t programs = rig.flash.programs;
    pass_seconds(rig, 5);
    EXPECT_LT(rig.flash.programs - programs, 10u);
    EXPECT_EQ(rig.add(make_record(kOther, kWriter, 2, 1000)), Status::kSuccess);
}

TEST_F(FullDiskTest, ARefusedVolumeKeepsTheDoubtfulBlocksOfItsPredecessor) {
    Rig rig(kUnits, kPages);
    set_up(rig, 1000);
    const std::vector<std::byte> older = rig.metadata.blob;
    ASSERT_EQ(rig.add(make_record(9, kWriter, 1, 1000)), Status::kSuccess);
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    ASSERT_EQ(rig.write(at(rig, 3, 1, 9), 1, pattern(9)).status, Status::kSuccess);
    rig.metadata.blob = older;
    rig.mount();
    rig.metadata.fail = true;
    EXPECT_EQ(rig.add(make_record(9, kWriter, 2, 1000)), Status::kInternalError);
    rig.metadata.fail = false;
    ASSERT_EQ(rig.add(make_record(9, kWriter, 1, 1000)), Status::kSuccess);
    for (const bool mounted_again : {false, true}) {
        if (mounted_again) rig.mount();
        ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
        Block got;
        EXPECT_EQ(rig.read(at(rig, 3, 1, 9), got).status, Status::kDoubtful);
    }
}

TEST_F(FullDiskTest, ADeletionCutAtAnyPointLosesNothingElse) {
    std::uint64_t mounts = 0;
    for (const bool waits : {false, true})
        for (const bool power : {false, true}) {
            EngineOptions o = default_options();
            o.volatile_cache = !power;
            Rig rig(kUnits, kPages, o);
            set_up(rig, 1000);
            write_blocks(rig, kVolume, 16, 1);
            write_blocks(rig, kOther, 70, 500);
            fill_journal_unit(rig, waits ? 14 : kPages);
            fill_disk(rig);
            for (std::uint32_t b = 0; b < 70; ++b) rig.flash.without_room.erase(unit_of(rig, b, kOther));
            if (waits) {
                rig.flash.without_room.erase(rig.flash.journal_unit());
                rig.mount();
                ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
            }
            struct Cut {
                RamFlash flash;
                std::vector<std::byte> blob;
                std::uint32_t acknowledged;
                bool torn;
            };
            std::vector<Cut> cuts;
            std::uint32_t acknowledged = 0;
            bool inside = false;
            const auto cut = [&](bool torn) {
                if (std::exchange(inside, true)) return;
                cuts.push_back({rig.flash.image(), rig.metadata.blob, acknowledged, torn});
                inside = false;
            };
            rig.flash.on_step = [&](Step s) { cut(s == Step::kTornHalfRecord || s == Step::kTornNoRecord); };
            rig.metadata.on_store = [&] { cut(false); };
            ASSERT_EQ(rig.remove(kOther), Status::kSuccess);
            pass_seconds(rig, 3);
            for (std::uint32_t i = 0; i < 24; ++i) {
                if (!ok(rig.write(at(rig, 100 + i), 900 + i, pattern(100 + i)).status)) break;
                acknowledged = i + 1;
            }
            (void)rig.add(make_record(kOther, kWriter, 2, 1000));
            cut(false);
            rig.flash.on_step = nullptr;
            rig.metadata.on_store = nullptr;
            for (std::size_t i = 0; i < cuts.size(); ++i)
                for (const bool killed : {false, true})
                    for (const bool room : {false, true}) {
                        if (killed && cuts[i].torn) continue;
                        SCOPED_TRACE(std::to_string(i) + (killed ? ", killed" : "") + (room ? ", room" : ""));
                        RamMetadata store;
                        store.blob = cuts[i].blob;
                        RamFlash image = cuts[i].flash.image();
                        if (room) image.without_room.clear();
                        EngineOptions then = o;
                        then.same_boot = killed;
                        Rig again(std::move(image), std::move(store), then);
                        ++mounts;
                        ASSERT_NE(again.engine, nullptr);
                        ASSERT_EQ(again.set_map(make_map(1)), Status::kSuccess);
                        EXPECT_EQ(again.report.records_lost + again.report.blocks_lost, 0u);
                        for (std::uint32_t b = 1; b < 16; ++b) ASSERT_TRUE(again.holds(at(again, b), b + 1));
                        const std::uint32_t kept = killed || power ? cuts[i].acknowledged : 0;
                        for (std::uint32_t b = 0; b < kept; ++b)
                            ASSERT_TRUE(again.holds(at(again, 100 + b), 100 + b));
                        IoFields f = at(again, 5, 1, kOther);
                        f.epoch = 2;
                        Block got;
                        ASSERT_FALSE(ok(again.read(f, got).status) && got == pattern(505));
                    }
        }
    gnstor::test::count("deengine_full_disk_mounts", mounts);
}

}  // namespace gnstor::deengine::test::full_disk_test
