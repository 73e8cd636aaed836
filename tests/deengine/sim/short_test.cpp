// short_test.cpp: the simulation in its short form: of each profile some seeds, and every seed that once
// failed. The other seeds are seeds_test.cpp, the long form is long_test.cpp, the hours are ./run sim.
#include "deengine/sim/histories.hpp"

namespace gnstor::deengine::sim {
namespace {

TEST(Simulation, ShortHistoriesSurviveACutAtEveryFlashOperation) {
    cut_short_histories_everywhere(Part::kFast);
}

TEST(Simulation, LongHistoriesSurviveCutsAndContinue) {
    cut_long_histories(Part::kFast);
}

TEST(Simulation, CorruptPagesAreDistinguishedFromPagesTornByACut) {
    rot(Part::kFast);
}

TEST(Simulation, AMapThatIsNearlyFullSurvivesDisplacementsWhileACheckpointIsWritten) {
    fill_the_map(Part::kFast);
}

TEST(Simulation, InvalidCommandsAreRefusedAndChangeNothing) {
    send_invalid_commands(Part::kFast);
}

TEST(Simulation, AKillFollowedByACutDuringRecoveryLosesNothing) {
    kill_and_cut_the_recovery(Part::kFast);
}

TEST(Simulation, AFullDiskUnderTheStoreDelaysChangesAndLosesNothing) {
    fill_the_disk_below(Part::kFast);
}

TEST(Simulation, AFullDriveCutRepeatedlyKeepsItsCapacity) {
    cut_full_drives(Part::kFast);
}

TEST(Simulation, PermanentlyLostBlocksAreReportedAndTheirReadsFail) {
    lose_blocks(Part::kFast);
}

TEST(Simulation, ARarelyPolledDriveKeepsItsCapacity) {
    poll_rarely(Part::kFast);
}

TEST(Simulation, BlocksLostWithTheirRecordsNeverSilentlyReadAsOlderDataOrZeroes) {
    lose_records(Part::kFast);
}

/// Each of these found a defect once: docs/history/008-defects-that-simulation-found.md.
TEST(Simulation, SeedsThatOnceFoundADefectPass) {
    constexpr struct {
        const char* profile;
        std::uint64_t seed;
    } kSeeds[] = {{"long", 10'025'100}, {"long", 40'009'292}, {"rot", 482},        {"rot", 552},
                  {"rot", 1571},        {"rot", 60'000'197},  {"rot", 60'002'593}, {"mixed", 20},
                  {"spare", 1504},      {"full", 657},        {"idle", 42},        {"idle", 157},
                  {"idle", 40'123},     {"wide", 4},          {"wide", 72},        {"wide", 162},
                  {"long", 100'019},    {"records", 2131},    {"records", 2163},   {"rot", 500'132}};
    for (const auto& [profile, seed] : kSeeds) {
        const SimConfig config = make_config(profile, seed, 3000, Mutation::kNone);
        EXPECT_EQ(run_history(config).failure, "") << replay_command(profile, seed, 3000, Mutation::kNone);
    }
}

TEST(Simulation, EveryCommandAloneSurvivesEveryCut) {
    enumerate_all(1, "sim");
}

/// By the one history that `--list` names for it.
TEST(Simulation, EveryMutationIsDetectedByItsSeed) {
    std::uint64_t found = 0;
    for (const NamedMutation& m : mutations()) {
        EXPECT_NE(m.seed != 0, m.why_none != nullptr) << m.name;
        if (m.seed == 0) continue;
        const bool noticed = !run_history(make_config(m.profile, m.seed, 0, m.mutation)).failure.empty();
        EXPECT_TRUE(noticed) << "no check detected that " << m.about << "; './run sim --mutation " << m.name
                             << "' finds the seeds of profile " << m.profile << " that do";
        found += noticed ? 1 : 0;
    }
    gnstor::test::count("sim_mutations_found", found);
}

TEST(Simulation, ASeedReplaysToTheLastFlashOperation) {
    for (const char* profile : {"short", "long"}) {
        const SimConfig c = make_config(profile, 4, 0, Mutation::kNone);
        const RunResult a = run_history(c);
        const RunResult b = run_history(c);
        EXPECT_EQ(std::memcmp(&a.counters, &b.counters, sizeof(a.counters)), 0);
    }
}

TEST(Simulation, TheOracleDetectsTheLossOfAnAcknowledgedWrite) {
    // The oracle's own teeth: a drive that lost everything it acknowledged must be seen.
    BlockState block;
    const WriteOrder order{1, 5, order_crc(7)};
    block.send(order, 7);
    block.acknowledge(order, true);
    Contents zeroes;
    std::memset(zeroes.bytes, 0, sizeof(zeroes.bytes));
    EXPECT_EQ(block.find(zeroes.bytes, 0, nvme::kSectorsPerBlock, true), nullptr);
    Contents mixed;
    Pattern(7).fill(mixed.bytes);
    EXPECT_NE(block.find(mixed.bytes, 0, nvme::kSectorsPerBlock, true), nullptr);
    mixed.bytes[4000] ^= std::byte{1};
    EXPECT_EQ(block.find(mixed.bytes, 0, nvme::kSectorsPerBlock, true), nullptr);
}

}  // namespace
}  // namespace gnstor::deengine::sim
