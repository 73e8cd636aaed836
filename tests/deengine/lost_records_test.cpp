// lost_records_test.cpp: a process was killed, and records of what it had written are lost in both copies:
// what was acknowledged never reads as zeroes, or as an older version, in silence.
#include "deengine/volume_rig.hpp"

namespace gnstor::deengine::test {
namespace {

class LostRecords : public ::testing::Test, public VolumeRig {
  protected:
    LostRecords() : VolumeRig(default_options()) {}
    void lose(nvme::BlockAddress block) { flash.lose_record(flash.find_last(kVolume, block)); }
};

TEST_F(LostRecords, ADamagedRecordOfTheLastPagePutsAllThatIsThereInDoubt) {
    put(5, 1);
    put(6, 2);
    put(5, 3);
    flash.flip_record(flash.find_last(kVolume, 5));
    boot(true);
    EXPECT_EQ(report.records_lost, 1u);
    EXPECT_EQ(status_of(5), Status::kDoubtful);
    EXPECT_EQ(status_of(6), Status::kDoubtful) << "it may have had the version that is lost";
    EXPECT_EQ(status_of(7), Status::kDoubtful) << "so may a block that was never written, as far as is known";
    EXPECT_TRUE(holds(at(5, true), 1)) << "who has asked all replicas gets what is there";
    EXPECT_TRUE(holds(at(7, true), 0));
}

TEST_F(LostRecords, ARecordThatIsGoneBeforeAnotherOneIsMissed) {
    put(5, 1);
    put(6, 2);
    put(7, 3);
    lose(6);
    boot(true);
    EXPECT_EQ(report.records_lost, 1u);
    EXPECT_EQ(status_of(6), Status::kDoubtful);
}

TEST_F(LostRecords, TheOnlyRecordOfAUnitIsMissedWhenItIsDamaged) {
    put(5, 1);
    flash.flip_record(flash.find_last(kVolume, 5));
    boot(true);
    EXPECT_EQ(status_of(5), Status::kDoubtful);
}

TEST_F(LostRecords, TheLastRecordsOfAUnitAreMissedOnceTheJournalHasCountedThem) {
    for (const bool same_boot : {true, false}) {
        SCOPED_TRACE(same_boot ? "a kill" : "a cut of the power");
        put(5, same_boot ? 1 : 3);
        put(6, same_boot ? 2 : 4);
        idle();
        const RamFlash before = flash.image();
        lose(6);
        boot(same_boot);
        EXPECT_EQ(report.records_lost, 1u);
        EXPECT_EQ(status_of(6), Status::kDoubtful);
        flash = before.image();
        boot(same_boot);
        EXPECT_EQ(report.records_lost, 0u);
        EXPECT_EQ(status_of(6), Status::kSuccess);
    }
}

TEST_F(LostRecords, AllRecordsOfAUnitAreMissedOnceTheJournalHasCountedThem) {
    put(5, 1);
    put(6, 2);
    idle();
    lose(5);
    lose(6);
    boot(true);
    EXPECT_EQ(status_of(5), Status::kDoubtful);
    EXPECT_EQ(status_of(6), Status::kDoubtful);
}

TEST_F(LostRecords, ARecordThatIsAnotherPagesIsMissedWhateverWasLostBefore) {
    put(5, 1);
    put(6, 2);
    const RamFlash before = flash.image();
    for (const bool same_boot : {true, false}) {
        flash = before.image();
        flash.copy_record(flash.find_last(kVolume, 5), flash.find_last(kVolume, 6));
        boot(same_boot);
        EXPECT_EQ(status_of(6), Status::kDoubtful);
    }
}

TEST_F(LostRecords, TheDoubtOutlivesBootsAndEndsWithALaterEpochOrTheVolume) {
    put(5, 1);
    put(6, 2);
    flash.flip_record(flash.find_last(kVolume, 6));
    boot(true);
    boot(false);
    EXPECT_EQ(report.records_lost, 0u) << "found before";
    EXPECT_EQ(status_of(6), Status::kDoubtful);
    put(6, 1);
    EXPECT_EQ(status_of(6), Status::kDoubtful) << "it may be older than what was lost";
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

}  // namespace
}  // namespace gnstor::deengine::test
