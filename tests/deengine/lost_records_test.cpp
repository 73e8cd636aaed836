// lost_records_test.cpp: a process was killed, and records of what it had written are lost in both copies:
// what was acknowledged never reads as zeroes, or as an older version, in silence.
#include "deengine/log/journal.hpp"
#include "deengine/volume_rig.hpp"

#include <fmt/core.h>

#include <vector>

namespace gnstor::deengine::test::lost_records_test {

class LostRecords : public ::testing::Test, public VolumeRig {
  protected:
    LostRecords() : VolumeRig(default_options()) {}
    void lose(nvme::BlockAddress block) { flash.lose_record(flash.find_last(kVolume, block)); }
    /// Blocks 5 and 6 are written, and counted by a stamp; then records of these of them are lost. After a
    /// kill and after a power cut these are in doubt; where nothing is lost, nothing is reported.
    void detects_loss_of(const std::vector<nvme::BlockAddress>& lost, const char* what) {
        std::uint64_t sequence = 0;
        for (const bool same_boot : {true, false}) {
            SCOPED_TRACE(fmt::format("{}, {}", what, same_boot ? "a kill" : "a cut of the power"));
            put(5, ++sequence);
            put(6, ++sequence);
            idle();
            const RamFlash before = flash.image();
            for (const nvme::BlockAddress block : lost) lose(block);
            boot(same_boot);
            EXPECT_EQ(report.records_lost, 1u);
            for (const nvme::BlockAddress block : lost) EXPECT_EQ(status_of(block), Status::kDoubtful);
            flash = before.image();
            boot(same_boot);
            EXPECT_EQ(report.records_lost, 0u);
            for (const nvme::BlockAddress block : {5u, 6u}) EXPECT_EQ(status_of(block), Status::kSuccess);
        }
    }
};

TEST_F(LostRecords, ADamagedRecordOfTheLastPageMakesAllBlocksDoubtful) {
    put(5, 1);
    put(6, 2);
    put(5, 3);
    flash.flip_record(flash.find_last(kVolume, 5));
    boot(true);
    EXPECT_EQ(report.records_lost, 1u);
    EXPECT_EQ(status_of(5), Status::kDoubtful);
    EXPECT_EQ(status_of(6), Status::kDoubtful)
        << "the lost record may have held a newer version of this block";
    EXPECT_EQ(status_of(7), Status::kDoubtful)
        << "the lost record may have held a block that seems never written";
    EXPECT_TRUE(holds(at(5, true), 1))
        << "a read that accepts older versions must return the present version";
    EXPECT_TRUE(holds(at(7, true), 0));
}

TEST_F(LostRecords, AMissingRecordBeforeAnotherOneIsDetected) {
    put(5, 1);
    put(6, 2);
    put(7, 3);
    lose(6);
    boot(true);
    EXPECT_EQ(report.records_lost, 1u);
    EXPECT_EQ(status_of(6), Status::kDoubtful);
}

TEST_F(LostRecords, ADamagedOnlyRecordOfAUnitIsDetected) {
    put(5, 1);
    flash.flip_record(flash.find_last(kVolume, 5));
    boot(true);
    EXPECT_EQ(status_of(5), Status::kDoubtful);
    boot(true);
    EXPECT_EQ(report.records_lost, 0u) << "the loss is already known and must not be reported again";
    EXPECT_EQ(status_of(5), Status::kDoubtful);
}

TEST_F(LostRecords, BlocksOfAVolumeUnknownToOlderMetadataAreDoubtfulWhenItIsAddedAgain) {
    constexpr nvme::VolumeId kLater = 2;
    for (const bool in_checkpoint : {false, true}) {
        VolumeRig rig(default_options());
        const IoFields block = rig.fields(kLater, kClient, 3);
        const std::vector<std::byte> older = rig.metadata.blob;
        ASSERT_EQ(rig.add(make_record(kLater, kClient)), Status::kSuccess);
        ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
        rig.put(5, 1);
        ASSERT_EQ(rig.write(block, 1, pattern(9)).status, Status::kSuccess);
        if (in_checkpoint) {
            ASSERT_TRUE(rig.engine->close().ok());
        }
        rig.metadata.blob = older;
        rig.boot(!in_checkpoint);
        EXPECT_EQ(rig.report.volumes_in_doubt.count(kLater), 1u) << "so that a check names it";
        rig.boot();
        ASSERT_EQ(rig.add(make_record(kLater, kClient)), Status::kSuccess);
        for (int again = 0; again < 2; ++again) {
            ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
            Block got;
            EXPECT_EQ(rig.read(block, got).status, Status::kDoubtful)
                << "the block must not silently read as zeroes";
            EXPECT_TRUE(rig.holds(rig.at(5), 1)) << "a volume that the metadata knows has all of its blocks";
            rig.boot();
        }
    }
}

TEST_F(LostRecords, ANewVolumeWithTheVidOfOneUnknownToOlderMetadataIsNotDoubtful) {
    constexpr nvme::VolumeId kLater = 2;
    const std::vector<std::byte> older = metadata.blob;
    ASSERT_EQ(add(make_record(kLater, kClient)), Status::kSuccess);
    ASSERT_EQ(set_map(make_map(1)), Status::kSuccess);
    ASSERT_EQ(write(fields(kLater, kClient, 3), 1, pattern(9)).status, Status::kSuccess);
    metadata.blob = older;
    boot(true);
    ASSERT_EQ(add(make_record(kLater, kClient, 2)), Status::kSuccess);
    epoch = 2;
    for (int again = 0; again < 2; ++again) {
        ASSERT_EQ(set_map(make_map(1)), Status::kSuccess);
        EXPECT_TRUE(holds(fields(kLater, kClient, 3), 0));
        boot();
    }
}

TEST_F(LostRecords, AKillInsideAnErasureOfAFullUnitLosesNothing) {
    for (std::uint64_t i = 1; i <= 17; ++i) put(5, i);
    const PageNumber first = flash.find_last(kVolume, 5) - 16;
    idle();
    const RamFlash before = flash.image();
    for (const PageNumber left : {15u, 7u, 1u}) {
        flash = before.image();
        for (PageNumber page = 15; page > left; --page) flash.lose_record(first + page);
        flash.flip_record(first + left);
        boot(true);
        EXPECT_EQ(report.records_lost, 0u) << "an erasure clears records from the last to the first";
        EXPECT_EQ(status_of(5), Status::kSuccess);
    }
}

TEST_F(LostRecords, ADamagedLastRecordOfAFullUnitThatHoldsBlocksLeavesDoubt) {
    for (std::uint64_t i = 1; i <= 17; ++i) put(static_cast<nvme::BlockAddress>(i), i);
    idle();
    flash.flip_record(flash.find_last(kVolume, 16));
    boot(true);
    EXPECT_EQ(report.records_lost, 1u);
    EXPECT_EQ(status_of(16), Status::kDoubtful);
}

TEST_F(LostRecords, LostLastRecordsOfAUnitAreDetectedOnceTheJournalHasCountedThem) {
    detects_loss_of({6}, "only the last page of the two");
}

TEST_F(LostRecords, TheLossOfAllRecordsOfAUnitIsDetectedOnceTheJournalHasCountedThem) {
    detects_loss_of({5, 6}, "both pages");
}

TEST_F(LostRecords, AUnitClosedForLackOfSpaceIsNotReportedAsLackingRecords) {
    std::uint64_t sequence = 0;
    for (; sequence < 70; ++sequence) put(static_cast<nvme::BlockAddress>(sequence % 3), sequence + 1);
    idle();  // units that were programmed before are free
    for (nvme::BlockAddress block = 10; block < 13; ++block) put(block, ++sequence);
    const std::uint32_t unit = flash.find_last(kVolume, 12) / 16;
    ASSERT_NE(flash.find_last(kVolume, 12) % 16, 15u);
    flash.without_room = {unit};
    put(13, ++sequence);
    ASSERT_NE(flash.find_last(kVolume, 13) / 16, unit);
    idle();
    const RamFlash before = flash.image();
    boot(true);
    EXPECT_EQ(report.records_lost, 0u);
    EXPECT_EQ(status_of(12), Status::kSuccess);

    flash = before.image();
    lose(12);
    boot(true);
    EXPECT_EQ(report.records_lost, 1u) << "the unit's last record is lost";
    EXPECT_EQ(status_of(12), Status::kDoubtful);
}

/// A unit is closed when its room below is gone. What is valid in it is superseded, it is erased, and a kill
/// follows.
TEST_F(LostRecords, AUnitClosedForLackOfSpaceMayBeErasedAlthoughItWasNeverFull) {
    constexpr std::uint32_t kUnits = 24;
    constexpr std::uint32_t kPages = 16;
    constexpr std::uint32_t kBlocks = 200;
    constexpr nvme::VolumeId kOther = 2;
    ASSERT_EQ(add(make_record(kOther, kClient, 1, kBlocks)), Status::kSuccess);
    std::uint64_t sequence = 0;
    const auto put_other = [&](std::uint64_t block) {
        const IoFields f = fields(kOther, kClient, static_cast<nvme::BlockAddress>(block));
        ASSERT_EQ(write(f, ++sequence, pattern(1)).status, Status::kSuccess);
    };
    const auto pages_of = [&](std::uint32_t unit, PageKind kind) {
        std::uint32_t pages = 0;
        PageOob oob{};
        while (pages < kPages && flash.read_oob(unit * kPages + pages, oob) == FlashStatus::kOk &&
               oob.kind == kind)
            ++pages;
        return pages;
    };
    for (std::uint64_t block = 0; block < kBlocks; ++block) put_other(block);

    std::uint32_t closed = kUnits;
    std::uint32_t collectors = kUnits;
    std::uint32_t journals = kUnits;
    for (std::uint64_t i = 0; i < 2000 && (collectors == kUnits || journals == kUnits); ++i) {
        put_other(mix64(i) % kBlocks);
        put(5, ++sequence);
        engine->poll(now_ns += 1000);
        closed = flash.find_last(kVolume, 5) / kPages;
        collectors = journals = kUnits;
        if (pages_of(closed, PageKind::kData) > 7) continue;
        for (std::uint32_t unit = 0; unit < kUnits; ++unit) {
            const std::uint32_t data = pages_of(unit, PageKind::kData);
            const std::uint32_t system = pages_of(unit, PageKind::kSystem);
            if (unit != closed && data > 0 && data < 9) collectors = unit;
            // Behind the end of a checkpoint: the next one is not due soon.
            PageOob last{};
            if (system > 0 && system < 12) (void)flash.read_oob(unit * kPages + system - 1, last);
            if (last.epoch == static_cast<std::uint32_t>(JournalPage::kCheckpointEnd)) journals = unit;
        }
    }
    ASSERT_NE(collectors, kUnits);
    ASSERT_NE(journals, kUnits);
    // Its own room is gone, and it is closed; its one valid block is superseded, and its turn comes.
    flash.without_room.insert(closed);
    for (int i = 0; i < 2000 && pages_of(closed, PageKind::kData) != 0; ++i) {
        if (i == 1) flash.without_room.clear();
        put(5, ++sequence);
        engine->poll(now_ns += 1000);
    }
    ASSERT_EQ(pages_of(closed, PageKind::kData), 0u);
    flash.without_room.clear();
    boot(true);
    EXPECT_EQ(report.records_lost, 0u);
    EXPECT_EQ(status_of(5), Status::kSuccess);
}

TEST_F(LostRecords, AMountReadsNoMoreRecordsForManyLostOnesOfAUnitThanForOne) {
    for (std::uint64_t i = 1; i < 64; ++i) put(static_cast<nvme::BlockAddress>(i), i);
    const PageNumber first = flash.find_last(kVolume, 40) / 16 * 16;
    const RamFlash before = flash.image();
    std::vector<std::uint64_t> reads;
    for (const PageNumber lost : {1u, 14u}) {
        flash = before.image();
        for (PageNumber page = 1; page <= lost; ++page) flash.lose_record(first + page);
        flash.record_reads = 0;
        boot(true);
        EXPECT_EQ(report.records_lost, lost);
        reads.push_back(flash.record_reads);
    }
    EXPECT_LT(reads[1], reads[0] + reads[0] / 4);
}

TEST_F(LostRecords, AMountAfterAKillReadsNoEmptyUnitTwice) {
    put(5, 1);
    const RamFlash before = flash.image();
    std::vector<std::uint64_t> reads;
    for (const bool same_boot : {false, true}) {
        flash = before.image();
        flash.record_reads = 0;
        boot(same_boot);
        reads.push_back(flash.record_reads);
    }
    EXPECT_LT(reads[1], reads[0] + 64);
}

TEST_F(LostRecords, AUnitErasedFirstAfterACleanCloseIsNotReportedAsLost) {
    put(5, 1);
    const std::uint32_t unit = flash.find_last(kVolume, 5) / 16;
    ASSERT_EQ(zero(at(5), 2).status, Status::kSuccess);
    ASSERT_TRUE(engine->close().ok());
    ASSERT_EQ(flash.erase(unit), FlashStatus::kOk);
    boot(true);
    EXPECT_EQ(report.records_lost, 0u);
    EXPECT_TRUE(holds(at(5), 0));
}

TEST_F(LostRecords, ARecordOfAnotherPageIsADamagedRecord) {
    put(5, 1);
    put(6, 2);
    flash.copy_record(flash.find_last(kVolume, 5), flash.find_last(kVolume, 6));
    boot(true);
    EXPECT_EQ(report.records_lost, 1u);
    EXPECT_EQ(status_of(6), Status::kDoubtful);
}

TEST_F(LostRecords, DoubtfulBlocksSurviveBootsUntilALaterEpochOrTheDeletionOfTheVolume) {
    put(5, 1);
    put(6, 2);
    flash.flip_record(flash.find_last(kVolume, 6));
    boot(true);
    boot(false);
    EXPECT_EQ(report.records_lost, 0u) << "the loss was already reported";
    EXPECT_EQ(status_of(6), Status::kDoubtful);
    put(6, 1);
    EXPECT_EQ(status_of(6), Status::kDoubtful) << "the block may be older than the lost record";
    auto again = make_record(kVolume, kClient);
    again.epoch = 2;
    ASSERT_EQ(chmod(again), Status::kSuccess);
    IoFields later = at(6);
    later.epoch = 2;
    ASSERT_EQ(write(later, 1, pattern(9)).status, Status::kSuccess);
    EXPECT_TRUE(holds(later, 9));
    later.block = 5;
    Block got;
    EXPECT_EQ(read(later, got).status, Status::kDoubtful);
}

}  // namespace gnstor::deengine::test::lost_records_test
