// lanes_test.cpp: the cases on CPU lanes (warps of one) and on test warps, many sharing channels.
#include <gtest/gtest.h>

#include "gnor/bench.hpp"

namespace gnstor::test {
namespace {

TEST(GnorLanes, HundredsOfWarpsShareOneChannel) {
    Bench b(options_of(1), 300, kWarpStride);
    b.launch(300, 1, WarpsWriteAndRead{b.common, 4, 32, false});
    b.expect_good(2400);
    b.rig.expect_clean();
}

TEST(GnorLanes, WarpsOnSeparateChannels) {
    Bench b(options_of(32, 8, false), 32, kWarpStride);
    b.launch(32, 1, WarpsWriteAndRead{b.common, 5, 32, false}, 32);
    b.expect_good(320);
    b.rig.expect_clean();
}

TEST(GnorLanes, SingleLanesDoEveryKindOfCommand) {
    Bench b(options_of(2, 4), 200, 4 * 4096);
    b.launch(50, 4, LanesAlone{b.common, 4, 7});
    b.expect_good(3500);
    b.rig.expect_clean();
}

TEST(GnorLanes, ManyRequestsEachHaveAStatus) {
    Bench b(options_of(1, 4), 8, kWarpStride + 20 * 4096);
    b.launch(8, 1, WarpsMany{b.common, 40});
    b.expect_good(8 * 42);
    b.rig.expect_clean();
}

TEST(GnorLanes, TokensAndCallbacksEndOnce) {
    RigOptions o = options_of(1, 8);
    o.chunk_shift = 2;
    Bench b(o, 1, 64);
    b.launch(40, 1, LanesAsync{b.common, 5});
    b.rig.channels[0]->quiesce(simt::Deadline::in_ns(kLong)).value();
    b.expect_good(40 * 5 * 6);
    EXPECT_EQ(b.report().callbacks, 40u * 5 * 2);
    b.rig.expect_clean(40 * 4);
}

RigOptions one_block_a_command() {
    RigOptions o = options_of(1, 8);
    o.chunk_shift = 0;
    return o;
}

TEST(GnorLanes, LargeRequestsDoNotWaitForEachOthersCommandEntries) {
    Bench b(one_block_a_command(), 1, 64);
    b.launch(8, 1, LanesWithLargeRequests{b.common, 5, 40});
    b.expect_good(8 * 5 * 2);
    b.rig.expect_clean();
}

TEST(GnorLanes, BuffersOnTheStackServeASingleLane) {
    Bench b(options_of(1), 1, 64);
    b.launch(16, 1, BuffersOnTheStack{b.common});
    b.expect_good(16 * 2);
    b.rig.expect_clean();
}

TEST(GnorLanes, ThePoolAllocatesNoBlockTwiceAndLosesNone) {
    Bench b(options_of(1), 1, 64);
    b.launch(16, 8, PoolStress{b.common, 500});
    b.expect_good(16 * 8 * 500);
    b.rig.expect_clean();
}

class TestWarps : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Width, TestWarps, ::testing::Values(1u, 7u, 32u));

TEST_P(TestWarps, WarpsWriteAndReadTogether) {
    Bench b(options_of(2, 8), 4, kWarpStride);
    b.test_warps(4, GetParam(), WarpsWriteAndRead{b.common, 3, 32, false});
    b.expect_good(4 * 3 * 2);
    b.rig.expect_clean();
}
TEST_P(TestWarps, WarpsContinueWhenLanesExit) {
    Bench b(options_of(1, 8, false), 3, kWarpStride);
    b.test_warps(3, GetParam(), WarpsWriteAndRead{b.common, 3, 32, true});
    b.expect_good(3 * 3 * 2);
    b.rig.expect_clean();
}
TEST_P(TestWarps, SingleLanesOfOneWarpDiverge) {
    Bench b(options_of(1, 4), 64, 4 * 4096);
    b.test_warps(2, GetParam(), LanesAlone{b.common, 2, 3});
    b.expect_good(2 * GetParam() * 6);
    b.rig.expect_clean();
}
TEST_P(TestWarps, LargeRequestsOfOneWarpDoNotWaitForEachOthersCommandEntries) {
    Bench b(one_block_a_command(), 1, 64);
    const std::uint32_t lanes = GetParam() < 8 ? GetParam() : 8;
    b.test_warps(1, lanes, LanesWithLargeRequests{b.common, 2, 40});
    b.expect_good(lanes * 2 * 2);
    b.rig.expect_clean();
}
TEST_P(TestWarps, ManyRequestsOverTheMembers) {
    Bench b(options_of(1, 8), 2, kWarpStride + 20 * 4096);
    b.test_warps(2, GetParam(), WarpsMany{b.common, 40});
    b.expect_good(2 * 42);
    b.rig.expect_clean();
}
TEST_P(TestWarps, BatchesRunInFourSteps) {
    Bench b(options_of(1, 8), 1, 64);
    auto batches =
        simt::DeviceMemory::allocate(2 * sizeof(Batch<64, CountHandler>), simt::LanesKind::kCpu).value();
    b.test_warps(4, GetParam(), WarpsBatch<64>{b.common, batches.lane_as<Batch<64, CountHandler>>(), 3}, 2);
    b.expect_good(4 * GetParam() * 7);
    EXPECT_EQ(b.report().callbacks, 4u * GetParam() * 6);
    b.rig.expect_clean();
}

}  // namespace
}  // namespace gnstor::test
