// gpu_hangs.cu: nothing hangs on a GPU: grids larger than its residency, lanes that leave early, answers that
// never come, requests that nobody waits for; and warps under contention all get their share. Built where
// nvcc is.
#include <gtest/gtest.h>

#include "gnor/gpu_fixture.hpp"
#include "gnor/hang_runs.hpp"

namespace gnstor::test {
namespace {

class GnorGpuHangs : public OnGpu {
  protected:
    void SetUp() override {
        OnGpu::SetUp();
        // It takes minutes, and would watch nothing: these kernels have no shared memory.
        if (tool() == "racecheck")
            GTEST_SKIP()
                << "compute-sanitizer racecheck checks shared memory, which these kernels do not use";
    }
};

TEST_F(GnorGpuHangs, GridsOfThousandsOfBlocksRunToTheirEnd) {
    // 16384 warps in blocks of two: 132 SMs hold 8448 warps, 4224 such blocks, at once.
    const std::uint32_t blocks = 8192 / scale();
    Bench b(gpu_options(8, 32), 1, 64);
    b.launch(blocks, 64, WarpsComeAndGo{b.common, 2});
    b.expect_good(std::uint64_t{blocks} * 2 * 4);
    b.rig.expect_clean();
}
TEST_F(GnorGpuHangs, CallsWithoutAnswersEndAtTheirDeadlinesAndReclaimResetsTheChannel) {
    EXPECT_GT(run_without_answers(gpu_options(1, 32), 16, 32) +
                  run_without_answers(gpu_options(4, 32), 64 / scale(), 32),
              20u);
}
TEST_F(GnorGpuHangs, RequestsOfExitedLanesAreFoundAndCancelled) {
    run_with_requests_left_behind(gpu_options(1, 32), 512 / scale(), 32);
    run_with_requests_left_behind(gpu_options(2, 32), 16, 64);
}
TEST_F(GnorGpuHangs, EveryWarpGetsItsShareWhileAllOthersCompete) {
    const std::uint32_t warps = 512 / scale(), share = 50;
    for (const std::uint32_t channels : {1u, 4u}) {
        Bench b(gpu_options(channels, 32), 1, 64);
        auto finished = simt::DeviceMemory::allocate(4, kGpu).value();
        auto done = simt::DeviceMemory::allocate(warps * 4, kGpu).value();
        b.launch(warps / 4, 128,
                 WarpsShareFairly{b.common, finished.lane_as<std::uint32_t>(), done.lane_as<std::uint32_t>(),
                                  warps, share});
        expect_fair(b, done, warps, share);
    }
}

}  // namespace
}  // namespace gnstor::test
