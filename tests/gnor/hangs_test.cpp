// hangs_test.cpp: nothing hangs on CPU lanes: grids far larger than the threads that run them, lanes that
// leave early, answers that never come, requests that nobody waits for; and warps under contention all get
// their share.
#include <gtest/gtest.h>

#include "gnor/hang_runs.hpp"
#include "support/count.hpp"

namespace gnstor::test {
namespace {

TEST(NothingHangs, GridsOfThousandsOfWarpsRunToTheirEndOnAFewThreads) {
    Bench b(options_of(2, 8), 1, 64);
    b.launch(3000, 1, WarpsComeAndGo{b.common, 2}, 4);
    b.expect_good(3000 * 4);
    b.rig.expect_clean();
    count("gnor_warps_of_large_grids", 3000);
}

class NothingHangsInWarps : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Width, NothingHangsInWarps, ::testing::Values(3u, 8u));
TEST_P(NothingHangsInWarps, WarpsContinueWhenLanesAndWarpsExit) {
    Bench b(options_of(1, 4), 1, 64);
    b.test_warps(12, GetParam(), WarpsComeAndGo{b.common, 4});
    b.expect_good(12 * 4);
    b.rig.expect_clean();
}

TEST(NothingHangs, CallsWithoutAnswersEndAtTheirDeadlinesAndReclaimResetsTheChannel) {
    std::uint64_t quarantined = 0;
    for (const std::uint32_t channels : {1u, 3u})
        quarantined += run_without_answers(options_of(channels, 8), 24, 2);
    EXPECT_GT(quarantined, 10u);
    count("gnor_commands_without_answers", quarantined);
}

TEST(NothingHangs, RequestsOfExitedLanesAreFoundAndCancelled) {
    run_with_requests_left_behind(options_of(1, 16), 100, 2);
    run_with_requests_left_behind(options_of(2, 16), 20, 4);
}

TEST(NothingHangs, EveryWarpGetsItsShareWhileAllOthersCompete) {
    constexpr std::uint32_t kWarps = 16, kShare = 40;
    for (const std::uint32_t depth : {2u, 8u}) {
        Bench b(options_of(1, depth), 1, 64);
        auto memory = simt::DeviceMemory::allocate(4 + kWarps * 4, simt::LanesKind::kCpu).value();
        auto done = simt::DeviceMemory::allocate(kWarps * 4, simt::LanesKind::kCpu).value();
        const WarpsShareFairly kernel{b.common, memory.lane_as<std::uint32_t>(),
                                      done.lane_as<std::uint32_t>(), kWarps, kShare};
        b.test_warps(kWarps, 2, kernel);
        expect_fair(b, done, kWarps, kShare);
    }
}

}  // namespace
}  // namespace gnstor::test
