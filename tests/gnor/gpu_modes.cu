// gpu_modes.cu: channels of one lane and of one block on real GPU warps. Built where nvcc is.
#include <gtest/gtest.h>

#include "gnor/gpu_fixture.hpp"

namespace gnstor::test {
namespace {

class GnorGpuModes : public OnGpu {};

TEST_F(GnorGpuModes, ALaneWithItsOwnChannelDoesEveryKindOfCommand) {
    Bench b(gpu_options(Sharing::kLane, 16), 16, 4 * 4096);
    b.launch(4, 4, shared_by<Sharing::kLane>(LanesAlone{b.common, 10, 0}));
    b.expect_good(16 * 10 * 6);
    b.launch(2, 8, shared_by<Sharing::kLane>(PoolStress{b.common, 100}));
    b.expect_good(16 * 10 * 6 + 16 * 100);
    b.rig.expect_clean();
}
TEST_F(GnorGpuModes, WarpsOfABlockShareItsChannel) {
    Bench b(gpu_options(Sharing::kBlock, 4, 32), 32, kWarpStride + 20 * 4096);
    b.launch(4, 256, shared_by<Sharing::kBlock>(WarpsWriteAndRead{b.common, 4, 32, false}));
    b.launch(4, 256, shared_by<Sharing::kBlock>(WarpsMany{b.common, 40}));
    b.launch(4, 128, shared_by<Sharing::kBlock>(WarpsBatch<128>{b.common, nullptr, 3}));
    b.expect_good(32 * (4 * 2 + 42) + 512 * 7);
    EXPECT_EQ(b.report().callbacks, 512u * 6);
    b.rig.expect_clean();
}
TEST_F(GnorGpuModes, SingleLanesOfABlockShareItsChannel) {
    Bench b(gpu_options(Sharing::kBlock, 4), 256, 4 * 4096);
    // docs/testing.md: under a tool it has stood still.
    const Beside witness([&b](const Beside::OverWithin& over) { describe_when_slow(b.rig, over); });
    b.launch(4, 64, shared_by<Sharing::kBlock>(LanesAlone{b.common, 2, 0}));
    b.expect_good(256 * 2 * 6);
    b.launch(4, 64, shared_by<Sharing::kBlock>(PoolStress{b.common, 100}));
    b.expect_good(256 * 2 * 6 + 256 * 100);
    b.rig.expect_clean();
}
TEST_F(GnorGpuModes, BlocksWithoutTheirOwnChannelGetAnError) {
    Bench b(gpu_options(Sharing::kBlock, 2), 96, 4 * 4096);
    b.launch(3, 32, shared_by<Sharing::kBlock>(LanesAlone{b.common, 1, 0}));
    const Report r = b.report();
    EXPECT_EQ(r.failures, r.operations);
    EXPECT_EQ(static_cast<Status>(r.last_status), Status::kWrongSharing);
    b.rig.expect_clean();
}

}  // namespace
}  // namespace gnstor::test
