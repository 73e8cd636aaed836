// gpu_left.cu: what GPU kernels leave behind, and what they find when nobody answers: callbacks and buffers
// given up by the host, tokens dropped, a NIC that stands still, channels of CPU lanes; several kernels on
// one set of channels. Built where nvcc is.
#include <gtest/gtest.h>

#include "gnor/gpu_fixture.hpp"
#include "gnor/left_runs.hpp"

namespace gnstor::test {
namespace {

/// A type of this source alone, and so a kernel of its own: of one type in several, the linker keeps one.
struct RunDueHere : RunDueCallbacks {};

class GnorGpuLeft : public OnGpu {
  protected:
    void SetUp() override {
        OnGpu::SetUp();
        if (tool() == "racecheck")
            GTEST_SKIP()
                << "compute-sanitizer racecheck checks shared memory, which these kernels do not use";
    }
};

TEST_F(GnorGpuLeft, CallbacksAndBuffersOfAKernelThatExitedWithRequestsInFlightAreReleased) {
    for (const std::uint32_t chunk_shift : {1u, 4u}) {  // two commands a request, and one
        RigOptions o = gpu_options(2, 16);
        o.chunk_shift = chunk_shift;
        Bench b(o, 1, 64);
        const std::uint32_t blocks = tool().empty() ? 8 : 2;
        run_with_callbacks_left_behind(b, 3,
                                       [&b, blocks](const auto& kernel) { b.launch(blocks, 32, kernel); });
        b.expect_good(std::uint64_t{3} * blocks * 32 * 8);
    }
}

TEST_F(GnorGpuLeft, TokensDroppedWithoutWaitingKeepTheirBuffersUntilTheAnswersCome) {
    EXPECT_GT(run_with_dropped_tokens(gpu_options(2, 32), 64 / scale(), 32), 0u);
}

TEST_F(GnorGpuLeft, WithAStoppedNicEveryCallEndsAtItsDeadlineAndWorksAgainWhenTheNicResumes) {
    EXPECT_GT(run_without_any_answer(gpu_options(2, 32), 32 / scale(), 32, Silent::kNic), 0u);
}

TEST_F(GnorGpuLeft, WithUnresponsiveDrivesEveryCallEndsAtItsDeadlineAndReclaimResetsTheChannel) {
    EXPECT_GT(run_without_any_answer(gpu_options(1, 32), 32 / scale(), 32, Silent::kDrives), 0u);
    EXPECT_GT(run_without_any_answer(gpu_options(4, 8), 32 / scale(), 32, Silent::kDrives), 0u);
}

TEST_F(GnorGpuLeft, KernelsOnTwoStreamsShareOneSetOfChannels) {
    run_kernels_side_by_side(gpu_options(4, 16), 3, 64 / scale(), 32, 4);
    run_kernels_side_by_side(gpu_options(1, 4), 2, 32 / scale(), 32);
}

/// Nothing lies there, for anybody.
template <class T>
T* out_of_reach() {
    return reinterpret_cast<T*>(std::uintptr_t{64});
}

TEST_F(GnorGpuLeft, ChannelsOfCpuLanesAreRefusedInAKernelAndTheirMemoryIsNotTouched) {
    Bench b(gpu_options(1, 8), 1, 64);
    LanesOnChannelsOfOthers kernel{b.common, {out_of_reach<gnor::ChannelState>(), simt::LanesKind::kCpu}};
    kernel.common.channels = ChannelSet{out_of_reach<const ChannelRef>(), 2, simt::LanesKind::kCpu};
    b.launch(2, 64, kernel);
    b.expect_good(128 * LanesOnChannelsOfOthers::kExpectations);
    b.launch(2, 64, WarpsComeAndGo{b.common, 1});  // the GPU is well, and so are its own channels
    b.rig.expect_clean();
}

TEST_F(GnorGpuLeft, ChannelsOfTheGpuAreRefusedOnCpuLanes) {
    Rig rig(gpu_options(2, 8));
    Report report{};
    LanesOnChannelsOfOthers kernel{};
    kernel.common.volume = rig.volume();
    kernel.common.channels = rig.channel_set();
    kernel.common.report = &report;
    kernel.common.timeout_ns = kLong;
    kernel.channel = rig.channel();
    ASSERT_TRUE(simt::launch(simt::LanesKind::kCpu, 2, 4, kernel).ok());
    EXPECT_EQ(report.failures, 0u) << report.last_status;
    EXPECT_EQ(report.operations, 8 * LanesOnChannelsOfOthers::kExpectations);
    rig.expect_clean();
}

}  // namespace

void poll_from_another_module(Bench& b) {
    b.launch(1, 1, RunDueHere{{b.common}});
}
}  // namespace gnstor::test
