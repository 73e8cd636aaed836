// seeds_test.cpp: the seeds of each profile that short_test.cpp leaves out, so that a change of the drive's
// code is tested within seconds first.
#include "deengine/sim/histories.hpp"

namespace gnstor::deengine::sim {
namespace {

TEST(SimulationSeeds, ShortHistoriesSurviveACutAtEveryFlashOperation) {
    cut_short_histories_everywhere(Part::kOthers);
}

TEST(SimulationSeeds, LongHistoriesSurviveCutsAndContinue) {
    cut_long_histories(Part::kOthers);
}

TEST(SimulationSeeds, CorruptPagesAreDistinguishedFromPagesTornByACut) {
    rot(Part::kOthers);
}

TEST(SimulationSeeds, AMapThatIsNearlyFullSurvivesDisplacementsWhileACheckpointIsWritten) {
    fill_the_map(Part::kOthers);
}

TEST(SimulationSeeds, InvalidCommandsAreRefusedAndChangeNothing) {
    send_invalid_commands(Part::kOthers);
}

TEST(SimulationSeeds, AKillFollowedByACutDuringRecoveryLosesNothing) {
    kill_and_cut_the_recovery(Part::kOthers);
}

TEST(SimulationSeeds, AFullDiskUnderTheStoreDelaysChangesAndLosesNothing) {
    fill_the_disk_below(Part::kOthers);
}

TEST(SimulationSeeds, AFullDriveCutRepeatedlyKeepsItsCapacity) {
    cut_full_drives(Part::kOthers);
}

TEST(SimulationSeeds, PermanentlyLostBlocksAreReportedAndTheirReadsFail) {
    lose_blocks(Part::kOthers);
}

TEST(SimulationSeeds, ARarelyPolledDriveKeepsItsCapacity) {
    poll_rarely(Part::kOthers);
}

TEST(SimulationSeeds, BlocksLostWithTheirRecordsNeverSilentlyReadAsOlderDataOrZeroes) {
    lose_records(Part::kOthers);
}

}  // namespace
}  // namespace gnstor::deengine::sim
