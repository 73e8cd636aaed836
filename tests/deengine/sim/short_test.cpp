// short_test.cpp: the simulation in its short form; the long form is long_test.cpp, the hours are ./run sim.
#include "deengine/sim/test_run.hpp"

namespace gnstor::deengine::sim {
namespace {

TEST(Simulation, ShortHistoriesSurviveACutAtEveryFlashOperation) {
    SimCounters sum;
    run_seeds("short", 1, scaled(300), Mutation::kNone, sum);
    print_counts("sim", sum);
}

TEST(Simulation, LongHistoriesSurviveCutsAndContinue) {
    SimCounters sum;
    run_seeds("long", 1, scaled(30), Mutation::kNone, sum);
    print_counts("sim", sum);
}

TEST(Simulation, CorruptPagesAreDistinguishedFromPagesTornByACut) {
    SimCounters sum;
    run_seeds("rot", 1, scaled(20), Mutation::kNone, sum);
    gnstor::test::count("sim_rotten", sum.rotten);
    print_counts("sim", sum);
}

TEST(Simulation, AMapThatIsNearlyFullSurvivesDisplacementsWhileACheckpointIsWritten) {
    SimCounters sum;
    run_seeds("tight", 1, scaled(4), Mutation::kNone, sum);
    gnstor::test::count("sim_displaced", sum.displaced);
    gnstor::test::count("sim_displaced_in_slices", sum.displaced_in_slices);
    gnstor::test::count("sim_tombstones_full", sum.tombstones_full);
    gnstor::test::count("sim_groups_aged", sum.groups_aged);
    print_counts("sim", sum);
}

TEST(Simulation, InvalidCommandsAreRefusedAndChangeNothing) {
    SimCounters sum;
    run_seeds("clients", 1, scaled(8), Mutation::kNone, sum);
    gnstor::test::count("sim_strangers", sum.strangers);
    gnstor::test::count("sim_grants_ended", sum.grants_ended);
    gnstor::test::count("sim_suspensions", sum.suspensions);
    gnstor::test::count("sim_states_rotten", sum.states_rotten);
    print_counts("sim", sum);
}

TEST(Simulation, AKillFollowedByACutDuringRecoveryLosesNothing) {
    SimCounters sum;
    run_seeds("kills", 1, scaled(4), Mutation::kNone, sum);
    run_seeds("spare", 1, scaled(4), Mutation::kNone, sum);
    gnstor::test::count("sim_kills_first", sum.kills_first);
    print_counts("sim", sum);
}

TEST(Simulation, AFullDiskUnderTheStoreDelaysChangesAndLosesNothing) {
    SimCounters sum;
    run_seeds("sparse", 1, scaled(20), Mutation::kNone, sum);
    gnstor::test::count("sim_disks_full", sum.disks_full);
    gnstor::test::count("sim_mounts_waiting", sum.mounts_waiting);
    gnstor::test::count("sim_settled", sum.settled);
    print_counts("sim", sum);
}

TEST(Simulation, AFullDriveCutRepeatedlyKeepsItsCapacity) {
    SimCounters sum;
    run_seeds("full", 1, scaled(20), Mutation::kNone, sum);
    print_counts("sim", sum);
}

TEST(Simulation, PermanentlyLostBlocksAreReportedAndTheirReadsFail) {
    SimCounters sum;
    run_seeds("loss", 1, scaled(60), Mutation::kNone, sum);
    gnstor::test::count("sim_losses_accepted", sum.losses_accepted);
    gnstor::test::count("sim_reads_of_lost_blocks", sum.blocks_lost);
    print_counts("sim", sum);
}

TEST(Simulation, ARarelyPolledDriveKeepsItsCapacity) {
    SimCounters sum;
    for (const char* profile : {"lazy", "idle", "wide"})
        run_seeds(profile, 1, scaled(20), Mutation::kNone, sum);
    print_counts("sim", sum);
}

TEST(Simulation, BlocksLostWithTheirRecordsNeverSilentlyReadAsOlderDataOrZeroes) {
    SimCounters sum;
    run_seeds("records", 1, scaled(40), Mutation::kNone, sum);
    gnstor::test::count("sim_records_lost", sum.records_lost);
    print_counts("sim", sum);
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
                  {"long", 100'019},    {"records", 2131},    {"records", 2163}};
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
