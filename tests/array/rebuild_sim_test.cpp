// rebuild_sim_test.cpp: histories of an array that loses drives and fills their slots again, each under its seed, and
// the rules that are broken on purpose, each of which must be noticed. GN_SEED=<n> replays one history,
// GN_TRACE=1 prints it.
#include "array/rebuild_sim.hpp"
#include "array/rebuild_seeds.hpp"

#include <gtest/gtest.h>

#include <string>

namespace gnstor::test {
namespace {

constexpr std::uint64_t kSeeds = 600;
constexpr std::uint64_t kSeedsOfMutation = 20000;

TEST(RebuildSimulation, EveryReplicaHoldsTheLastAcknowledgedVersionOfEveryBlock) {
    run_rebuild_seeds(1, kSeeds);
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
    std::printf("noticed by seed %llu: %s\n", static_cast<unsigned long long>(options.seed),
                violation.c_str());
}

TEST(RebuildMutations, ACopyOverANewerTrimIsNoticed) {
    RebuildSimOptions options;
    options.engine = deengine::Mutation::kCopyOverTrim;
    options.trims_of_ten = 6;
    expect_noticed(options, 1643);
}

TEST(RebuildMutations, AWindowThatDoesNotKnowEarlierTombstonesIsNoticed) {
    RebuildSimOptions options;
    options.engine = deengine::Mutation::kCopyWindowEmpty;
    options.trims_of_ten = 6;
    expect_noticed(options, 2232);
}

TEST(RebuildMutations, AResolvedVersionThatTheDonorHasNoMoreIsNoticed) {
    RebuildSimOptions options;
    options.engine = deengine::Mutation::kCopyKeepsResolved;
    expect_noticed(options, 180);
}

TEST(RebuildMutations, DonorsThatAreReadBeforeTheWindowIsOpenAreNoticed) {
    RebuildSimOptions options;
    options.rebuild = daemon::RebuildMutation::kReadBeforeOpen;
    options.trims_of_ten = 6;
    expect_noticed(options, 2247);
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

TEST(RebuildMutations, ACopyThatBeginsBeforeTheMapIsInForceIsNoticed) {
    RebuildSimOptions options;
    options.array = ArrayMutation::kCopyBeforeInForce;
    expect_noticed(options, 1);
}

}  // namespace
}  // namespace gnstor::test
