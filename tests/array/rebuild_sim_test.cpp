// rebuild_sim_test.cpp: histories of an array that loses drives and fills their slots again, each under its seed, and
// the rules that are broken on purpose, each of which must be noticed. GN_SEED=<n> replays one history,
// GN_TRACE=1 prints it.
#include "array/rebuild_sim.hpp"
#include "array/rebuild_seeds.hpp"

#include <gtest/gtest.h>

#include <string>

namespace gnstor::test {
namespace {

constexpr std::uint64_t kSeeds = 750;
constexpr std::uint64_t kSeedsOfMutation = 20000;

TEST(RebuildSimulation, EveryReplicaHoldsTheLastAcknowledgedVersionOfEveryBlock) {
    run_rebuild_seeds(1, kSeeds);
}

TEST(RebuildSimulation, ADriveThatWasOutIsFilledWithWhatItMissed) {
    run_rebuild_seeds(50'000, kSeeds / 2, 2);
}

/// Histories under `options` from seed `first` on, which has noticed the mutation, until one notices it.
void expect_noticed(RebuildSimOptions options, std::uint64_t first) {
    std::string violation;
    options.seed = first - 1;
    while (violation.empty() && options.seed < first + kSeedsOfMutation) {
        ++options.seed;
        violation = RebuildSim(options).run();
    }
    EXPECT_NE(violation, "") << "not noticed by " << kSeedsOfMutation << " seeds";
    RebuildSimOptions sound = options;
    sound.engine = deengine::Mutation::kNone;
    sound.rebuild = daemon::RebuildMutation::kNone;
    sound.reconcile = daemon::ReconcileMutation::kNone;
    sound.scrub = daemon::ScrubMutation::kNone;
    sound.back_as_in = sound.compare_while_written = sound.keeps_copied = false;
    EXPECT_EQ(RebuildSim(sound).run(), "")
        << "seed " << options.seed << " is violated without the mutation, too";
    std::printf("noticed by seed %llu: %s\n", static_cast<unsigned long long>(options.seed),
                violation.c_str());
}

TEST(RebuildMutations, ACopyOverANewerTrimIsNoticed) {
    RebuildSimOptions options;
    options.engine = deengine::Mutation::kCopyOverTrim;
    options.trims_of_ten = 6;
    expect_noticed(options, 10126);
}

TEST(RebuildMutations, AWindowThatDoesNotKnowEarlierTombstonesIsNoticed) {
    RebuildSimOptions options;
    options.engine = deengine::Mutation::kCopyWindowEmpty;
    options.trims_of_ten = 6;
    expect_noticed(options, 16525);
}

TEST(RebuildMutations, AWindowThatMissesATrimWithoutATombstoneIsNoticed) {
    RebuildSimOptions options;
    options.engine = deengine::Mutation::kCopyUntoldTrim;
    options.trims_of_ten = 8;
    options.max_tombstones = 6;
    expect_noticed(options, 4865);
}

TEST(RebuildMutations, AResolvedVersionThatTheDonorHasNoMoreIsNoticed) {
    RebuildSimOptions options;
    options.engine = deengine::Mutation::kCopyKeepsResolved;
    expect_noticed(options, 1);
}

TEST(RebuildMutations, DonorsThatAreReadBeforeTheWindowIsOpenAreNoticed) {
    RebuildSimOptions options;
    options.rebuild = daemon::RebuildMutation::kReadBeforeOpen;
    options.trims_of_ten = 6;
    expect_noticed(options, 749);
}

TEST(RebuildMutations, ARangeThatNoDonorCouldReadAndIsLeftOutIsNoticed) {
    RebuildSimOptions options;
    options.rebuild = daemon::RebuildMutation::kForgetStuck;
    expect_noticed(options, 1);
}

TEST(RebuildMutations, ASlotThatIsInBeforeItsLastRangeIsCopiedIsNoticed) {
    RebuildSimOptions options;
    options.rebuild = daemon::RebuildMutation::kSkipLastRange;
    expect_noticed(options, 1);
}

TEST(RebuildMutations, AVersionThatOnlyADriveThatWasOutHasAndThatStaysIsNoticed) {
    RebuildSimOptions options;
    options.outs_of_hundred = 2;
    options.engine = deengine::Mutation::kCopyKeepsNewer;
    expect_noticed(options, 1);
}

TEST(RebuildMutations, ATargetThatIsNotAskedWhatItHasIsNoticed) {
    RebuildSimOptions options;
    options.rebuild = daemon::RebuildMutation::kDonorsOnly;
    options.outs_of_hundred = 2;
    expect_noticed(options, 76);
}

TEST(ScrubMutations, ADifferenceThatIsNotResolvedAndIsReportedIsNoticed) {
    RebuildSimOptions options;
    options.scrub = daemon::ScrubMutation::kFloorIgnored;
    expect_noticed(options, 1);
}

TEST(ScrubMutations, AMissingBlockThatIsReportedAtTheFirstLookIsNoticed) {
    RebuildSimOptions options;
    options.scrub = daemon::ScrubMutation::kTrustAbsence;
    expect_noticed(options, 1);
}

TEST(ScrubMutations, ABlockThatCannotBeReadAndIsLeftIsNoticed) {
    RebuildSimOptions options;
    options.scrub = daemon::ScrubMutation::kNoMend;
    expect_noticed(options, 1);
}

TEST(ReconcileMutations, ATrimmedExtentThatDoesNotCountAsChangedIsNoticed) {
    RebuildSimOptions options;
    options.engine = deengine::Mutation::kTrimNotNoted;
    options.trims_of_ten = 6;
    expect_noticed(options, 1);
}

TEST(ReconcileMutations, ExtentsThatDoNotCountAsChangedAfterAMountAreNoticed) {
    RebuildSimOptions options;
    options.engine = deengine::Mutation::kMountUnchanged;
    expect_noticed(options, 1);
}

TEST(ReconcileMutations, AFloorWithoutAComparisonIsNoticed) {
    RebuildSimOptions options;
    options.reconcile = daemon::ReconcileMutation::kNoComparison;
    expect_noticed(options, 1);
}

TEST(ReconcileMutations, BlocksThatSomeReplicaLacksAndAreNotComparedAreNoticed) {
    RebuildSimOptions options;
    options.reconcile = daemon::ReconcileMutation::kIgnoreAbsent;
    options.trims_of_ten = 8;
    options.max_tombstones = 6;
    expect_noticed(options, 524);
}

TEST(ReconcileMutations, AComparisonThatEndsAfterOneRangeIsNoticed) {
    RebuildSimOptions options;
    options.reconcile = daemon::ReconcileMutation::kFirstRange;
    expect_noticed(options, 1);
}

TEST(ReconcileMutations, AComparisonBeforeTheWritersEndIsInForceIsNoticed) {
    RebuildSimOptions options;
    options.compare_while_written = true;
    expect_noticed(options, 1);
}

TEST(ReconcileMutations, ARebuildThatKeepsWhatItCopiedBeforeTheComparisonIsNoticed) {
    RebuildSimOptions options;
    options.keeps_copied = true;
    options.writers_of_hundred = 1;
    expect_noticed(options, 111);
}

TEST(RebuildMutations, ADriveThatWasOutAndIsInAtOnceIsNoticed) {
    RebuildSimOptions options;
    options.outs_of_hundred = 2;
    options.back_as_in = true;
    expect_noticed(options, 1);
}

TEST(RebuildMutations, ABlockThatWasTrimmedWhileTheDriveWasOutAndStaysIsNoticed) {
    RebuildSimOptions options;
    options.outs_of_hundred = 2;
    options.engine = deengine::Mutation::kCopyKeepsResolved;
    expect_noticed(options, 1);
}

}  // namespace
}  // namespace gnstor::test
