// sparse_volume_test.cpp: rebuild and comparison of large volumes with few blocks: which commands are sent, in which order,
// and how many. Drives are tables of blocks here; with real firmware: rebuild_sim_test.cpp.
#include "array/tables.hpp"
#include "daemon/decisions/rebuild.hpp"
#include "daemon/decisions/reconcile.hpp"

namespace gnstor::test {
namespace {

template <class Work>
bool run(Work& work, Tables& tables, decltype(work.step(tables)) last) {
    for (int i = 0; i < 1'000'000; ++i)
        if (work.step(tables) == last) return true;
    return false;
}

TEST(SparseVolume, ARebuildReadsOnlyWhatSomeDriveHas) {
    Tables tables;
    for (const nvme::BlockAddress block : {0u, 20'000u, 20'001u, kBlocks - 1}) tables.write(block, 1, {0, 1});
    tables.write(500'000, 2, {2});  // what the target has, and the donors have not
    const auto record = record_of(kBlocks);
    daemon::Rebuild rebuild(map_of(SlotState::kRebuilding), 2, std::span(&record, 1));
    ASSERT_TRUE(run(rebuild, tables, daemon::Rebuild::Step::kDone));
    EXPECT_EQ(tables.tables[2].sequences, tables.tables[0].sequences);
    EXPECT_EQ(tables.count("survey"), kSlots * (kBlocks / nvme::kSurveyBlocksMax));
    EXPECT_EQ(tables.count("write"), 4u) << "20,000 and 20,001 are in one range";
    EXPECT_EQ(rebuild.progress().blocks_done, kBlocks);
    EXPECT_EQ(rebuild.progress().blocks_copied, 4u);
}

TEST(SparseVolume, TheTargetTellsWhatItHasOnceItHasTheDonorsFloor) {
    Tables tables;
    tables.tables[0].floor = 5;
    tables.tables[1].floor = 7;
    const auto record = record_of(64);
    daemon::Rebuild rebuild(map_of(SlotState::kRebuilding), 2, std::span(&record, 1));
    ASSERT_TRUE(run(rebuild, tables, daemon::Rebuild::Step::kDone));
    EXPECT_EQ(tables.commands, (std::vector<std::string>{"survey 0", "survey 1", "floor 2", "survey 2"}));
    EXPECT_EQ(tables.tables[2].floor, 7u);
}

TEST(SparseVolume, TheFloorOfAComparisonIsHandedOnIfEachDonorHasIt) {
    Tables tables;
    tables.tables[0].floor = nvme::kClosedFloor;
    tables.tables[1].floor = 3;
    const auto record = record_of(64);
    daemon::Rebuild one(map_of(SlotState::kRebuilding), 2, std::span(&record, 1));
    ASSERT_TRUE(run(one, tables, daemon::Rebuild::Step::kDone));
    EXPECT_EQ(tables.tables[2].floor, 3u);
    tables.tables[1].floor = nvme::kClosedFloor;
    daemon::Rebuild all(map_of(SlotState::kRebuilding), 2, std::span(&record, 1));
    ASSERT_TRUE(run(all, tables, daemon::Rebuild::Step::kDone));
    EXPECT_EQ(tables.tables[2].floor, nvme::kClosedFloor);
}

TEST(SparseVolume, ARebuildFromFirmwareThatCannotBeAskedReadsEverything) {
    Tables tables;
    tables.knows_survey = false;
    tables.write(3'000, 1, {0, 1});
    const auto record = record_of(4'096);
    daemon::Rebuild rebuild(map_of(SlotState::kRebuilding), 2, std::span(&record, 1));
    ASSERT_TRUE(run(rebuild, tables, daemon::Rebuild::Step::kDone));
    EXPECT_EQ(tables.tables[2].sequences, tables.tables[0].sequences);
    EXPECT_EQ(tables.count("write"), 4'096 / daemon::Rebuild::kRangeBlocks);
}

TEST(SparseVolume, AVolumeThatIsCopiedAgainIsAskedForAgain) {
    Tables tables;
    tables.write(5, 1, {0, 1});
    const auto record = record_of(64);
    daemon::Rebuild rebuild(map_of(SlotState::kRebuilding), 2, std::span(&record, 1));
    ASSERT_TRUE(run(rebuild, tables, daemon::Rebuild::Step::kDone));
    tables.write(40, 2, {0, 1});
    rebuild.again(1);
    EXPECT_EQ(rebuild.progress().blocks_done, 0u);
    ASSERT_TRUE(run(rebuild, tables, daemon::Rebuild::Step::kDone));
    EXPECT_EQ(tables.tables[2].sequences, tables.tables[0].sequences);
    EXPECT_EQ(rebuild.progress().blocks_done, 64u);
}

TEST(SparseVolume, AComparisonWithoutAnythingUnresolvedIsOneCommandADrive) {
    Tables tables;
    tables.write(9, 4, {0, 1, 2});
    tables.tables[1].floor = 4;  // the writer's floor holds for all, whoever has heard it
    daemon::Reconcile reconcile(map_of(SlotState::kIn), record_of(kBlocks));
    ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
    EXPECT_EQ(tables.commands, (std::vector<std::string>{"changes 0", "changes 1", "changes 2"}));
}

TEST(SparseVolume, AComparisonPutsTheNewestVersionWhereItIsMissing) {
    Tables tables;
    for (nvme::BlockAddress block = 0; block < 1'000; ++block) tables.write(block * 1'000, 1, {0, 1, 2});
    for (auto& table : tables.tables) table.floor = 1;
    tables.write(20'000, 2, {1});
    tables.write(20'001, 3, {2, 0});
    tables.write(kBlocks - 1, 4, {0});
    tables.tables[1].sequences.erase(700'000);
    tables.tables[1].trimmed.insert(700'000);
    daemon::Reconcile reconcile(map_of(SlotState::kIn), record_of(kBlocks));
    ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
    EXPECT_EQ(tables.tables[0].sequences, tables.tables[1].sequences);
    EXPECT_EQ(tables.tables[0].sequences, tables.tables[2].sequences);
    EXPECT_EQ(tables.tables[2].sequences.at(20'000), 2u);
    EXPECT_EQ(tables.tables[1].sequences.at(20'001), 3u);
    EXPECT_EQ(tables.tables[1].sequences.at(kBlocks - 1), 4u);
    EXPECT_EQ(reconcile.ranges_compared(), 3u);
    EXPECT_EQ(tables.count("changes"), 4 * kSlots) << "the first window, and those with changes";
    EXPECT_EQ(tables.count("survey"), 3 * kSlots);
    for (const auto& table : tables.tables) EXPECT_EQ(table.floor, nvme::kClosedFloor);
}

TEST(SparseVolume, AComparisonLooksAtEveryBlockIfAnEarlierOneLeftRangesThatDiffer) {
    for (const bool knows : {true, false}) {
        Tables tables;
        tables.knows_changes = knows;
        tables.write(700'000, 1, {0, 1});
        for (auto& table : tables.tables) table.floor = 1;
        tables.write(20'000, 2, {1});
        daemon::Reconcile reconcile(map_of(SlotState::kIn), record_of(kBlocks), knows);
        ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
        EXPECT_EQ(tables.tables[2].sequences.size(), 2u) << "also if a firmware tells no changes alone";
        EXPECT_EQ(tables.tables[0].sequences, tables.tables[2].sequences);
    }
}

TEST(SparseVolume, AThoroughComparisonReadsAllRangesThoughNothingIsUnresolved) {
    Tables tables;
    tables.write(700'000, 1, {0, 1});
    tables.write(5, 1, {0, 1, 2});
    tables.tables[1].sequences[5] = 0;  // an older version, which a drive without room kept
    for (auto& table : tables.tables) table.floor = 1;
    daemon::Reconcile reconcile(map_of(SlotState::kIn), record_of(kBlocks), true);
    ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
    EXPECT_EQ(tables.tables[0].sequences, tables.tables[1].sequences);
    EXPECT_EQ(tables.tables[0].sequences, tables.tables[2].sequences);
}

TEST(SparseVolume, ADriveThatIsRebuildingIsNotComparedAndTakesTheFloorLast) {
    Tables tables;
    tables.write(5, 1, {0, 1});
    tables.write(6, 2, {0, 1, 2});
    daemon::Reconcile reconcile(map_of(SlotState::kRebuilding), record_of(64));
    bool compared = false;
    for (int i = 0; i < 100 && reconcile.step(tables) != daemon::Reconcile::Step::kEqual; ++i) {
        const bool now = reconcile.take_compared();
        EXPECT_EQ(now, now && tables.commands.back() == "floor 1");
        EXPECT_FALSE(now && compared);
        compared = compared || now;
    }
    EXPECT_TRUE(compared) << "else the target would not be filled with what the comparison has put";
    EXPECT_EQ(tables.commands.back(), "floor 2");
    EXPECT_EQ(tables.count("read 2") + tables.count("write 2"), 0u);
}

TEST(SparseVolume, AFloorThatOnlySomeDrivesHaveFromAnEarlierComparisonProvesNothing) {
    Tables tables;
    tables.write(5, 3, {0});
    tables.tables[0].floor = nvme::kClosedFloor;
    daemon::Reconcile reconcile(map_of(SlotState::kIn), record_of(64));
    ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
    EXPECT_EQ(tables.tables[1].sequences, tables.tables[0].sequences);
    EXPECT_EQ(tables.tables[2].sequences, tables.tables[0].sequences);
}

TEST(SparseVolume, ADriveThatIsAwayLearnsByTheFloorThatWhatItAloneHasDoesNotCount) {
    for (const SlotState away : {SlotState::kOut, SlotState::kRebuilding}) {
        Tables tables;
        tables.write(5, 4, {0, 1});
        for (auto& table : tables.tables) table.floor = 4;
        daemon::Reconcile reconcile(map_of(away), record_of(64));
        ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
        EXPECT_EQ(tables.tables[0].floor, nvme::kClosedFloor);
        EXPECT_EQ(tables.tables[1].floor, nvme::kClosedFloor);
        EXPECT_EQ(tables.tables[2].floor, away == SlotState::kOut ? 4 : nvme::kClosedFloor);
        EXPECT_EQ(tables.count("read"), 0u);
    }
}

TEST(SparseVolume, ARangeThatADriveRefusesKeepsNothingFromEnding) {
    Tables tables;
    tables.write(5, 4, {0, 1});
    tables.write(900, 5, {0, 1});
    tables.full = 2;
    daemon::Reconcile reconcile(map_of(SlotState::kIn), record_of(1'024));
    ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
    EXPECT_EQ(reconcile.left(), 2u);
    EXPECT_EQ(reconcile.left_refusal(), Status::kCapacityExceeded);
    EXPECT_EQ(tables.tables[1].sequences.size(), 2u) << "the others keep what they have";
    EXPECT_EQ(tables.tables[2].floor, nvme::kClosedFloor);
}

}  // namespace
}  // namespace gnstor::test
