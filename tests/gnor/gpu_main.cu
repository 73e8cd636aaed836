// gpu_main.cu: the cases on real GPU warps, against model drives behind the software NIC. Built where nvcc
// is.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "gnor/gpu_fixture.hpp"
#include "gnor/pool_bench.hpp"

namespace gnstor::test {
namespace {

class GnorGpu : public OnGpu {};

/// A type of this source alone, and so a kernel of its own: of one type in several, the linker keeps one.
struct RunDueHere : RunDueCallbacks {};

TEST_F(GnorGpu, HundredsOfWarpsShareOneChannel) {
    Bench b(gpu_options(1), 256, kWarpStride);
    b.launch(32, 256, WarpsWriteAndRead{b.common, 4, 32, false});
    b.expect_good(2048);
    b.rig.expect_clean();
}
TEST_F(GnorGpu, WarpsOnSeparateChannelsWithLanesThatExit) {
    constexpr std::uint32_t kWarps = 32;
    const std::uint32_t rounds = std::max(20 / scale(), 4u);
    Bench b(gpu_options(kWarps, 8, false), kWarps, kWarpStride);
    b.launch(kWarps, 32, WarpsWriteAndRead{b.common, rounds, 32, true});
    b.expect_good(kWarps * rounds * 2);
    b.rig.expect_clean();
}
TEST_F(GnorGpu, SingleLanesDoEveryKindOfCommand) {
    Bench b(gpu_options(4), 1024, 4 * 4096);
    b.launch(16, 64, LanesAlone{b.common, 2, 7});
    b.expect_good(8000);
    b.rig.expect_clean();
}
TEST_F(GnorGpu, GridsLargerThanTheGpuHoldsRunToTheirEnd) {
    // More blocks than 132 SMs x 32 blocks can hold at once.
    Bench b(gpu_options(8), 8192, 4 * 4096);
    b.launch(8192, 1, LanesAlone{b.common, 1, 0});
    b.expect_good(8192 * 6);
    b.rig.expect_clean();
}
TEST_F(GnorGpu, ManyRequestsEachHaveAStatus) {
    Bench b(gpu_options(2), 32, kWarpStride + 20 * 4096);
    b.launch(8, 128, WarpsMany{b.common, 40});
    b.expect_good(32 * 42);
    b.rig.expect_clean();
}
TEST_F(GnorGpu, TokensAndCallbacksEndOnce) {
    RigOptions o = gpu_options(2, 8);
    o.chunk_shift = 2;
    Bench b(o, 1, 64);
    b.launch(2, 32, LanesAsync{b.common, 3});
    b.rig.channels[0]->quiesce(simt::Deadline::in_ns(kLong)).value();
    b.rig.channels[1]->quiesce(simt::Deadline::in_ns(kLong)).value();
    b.launch(2, 32, RunDueHere{{b.common}});
    b.expect_good(64 * 3 * 6);
    EXPECT_EQ(b.report().callbacks, 64u * 3 * 2);
    for (auto& c : b.rig.channels) EXPECT_EQ(c->usage().value().commands_pending, 0u);
}
TEST_F(GnorGpu, BuffersOnTheStackServeOneLaneAndNoGroup) {
    Bench b(gpu_options(2), 1, 64);
    b.launch(2, 32, BuffersOnTheStack{b.common});
    b.expect_good(64 * 4);
    b.rig.expect_clean();
}
TEST_F(GnorGpu, LargeRequestsOfOneWarpDoNotWaitForEachOthersCommandEntries) {
    RigOptions o = gpu_options(1, 8);
    o.chunk_shift = 0;
    Bench b(o, 1, 64);
    b.launch(1, 8, LanesWithLargeRequests{b.common, 5, 40});
    b.expect_good(8 * 5 * 2);
    b.rig.expect_clean();
}
TEST_F(GnorGpu, BatchesRunInFourSteps) {
    Bench b(gpu_options(2), 1, 64);
    b.launch(4, 128, WarpsBatch<128>{b.common, nullptr, 3});
    b.expect_good(512 * 7);
    EXPECT_EQ(b.report().callbacks, 512u * 6);
    b.rig.expect_clean();
}
TEST_F(GnorGpu, ThePoolAllocatesNoBlockTwiceAndLosesNone) {
    Bench b(gpu_options(1), 1, 64);
    b.launch(16, 64, PoolStress{b.common, 200});
    b.expect_good(16 * 64 * 200);
    b.rig.expect_clean();
}

RigOptions gpu_pool(std::uint64_t bytes, std::uint64_t bytes_max = 0) {
    RigOptions o = pool_options(bytes, bytes_max);
    o.lanes = simt::LanesKind::kGpu;
    return o;
}

TEST_F(GnorGpu, ThousandsOfLanesGetNoPoolBlockTwiceAndLoseNone) {
    PoolBench b(gpu_pool(64u << 20));
    b.launch(64, 256, PoolMix{b.common, b.owners(), 40, 256, 0});
    b.expect_whole(64 * 256 * 40);
}
TEST_F(GnorGpu, EachMemberGetsItsOwnPoolBuffer) {
    PoolBench b(gpu_pool(64u << 20));
    b.launch(64, 128, PoolEach{b.common, b.owners(), 30});
    b.expect_whole(64 * 128 * 30);
}
TEST_F(GnorGpu, APoolDoublesUnderARunningKernelAndItsMemoryIsRegistered) {
    // The checker takes what was registered after a kernel began for no memory at all.
    if (tool() == "memcheck")
        GTEST_SKIP()
            << "compute-sanitizer memcheck recognizes only memory that was registered before the launch";
    PoolBench b(gpu_pool(256u << 10, 4u << 20));
    constexpr std::uint32_t kWarps = 64;
    auto run =
        simt::launch_async(simt::LanesKind::kGpu, 16, 128, PoolGrows{b.common, b.counter(), kWarps, 16})
            .value();
    std::uint32_t grown = 0;
    while (!run.done()) {
        grown += b.rig.channels[0]->grow_pool_if_asked().value() ? 1 : 0;
        std::this_thread::yield();
    }
    run.wait(simt::Deadline::in_ns(kLong)).value();
    EXPECT_EQ(grown, 4u) << "256 KiB, 512 KiB, 1, 2, 4 MiB";
    b.expect_whole(kWarps * 4, false);
}

}  // namespace
}  // namespace gnstor::test
