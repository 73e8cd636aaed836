// lanes_test.cpp: CPU lanes (warps of one) and test warps do I/O on a whole array: real capsules, target,
// deEngine.
#include "embedded/bench.hpp"

namespace gnstor::test::lanes_test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint32_t kScale = 6;  // so many times less under a sanitizer
#else
constexpr std::uint32_t kScale = 1;
#endif

constexpr std::uint64_t kCaseStride = 40 * 4096;

TEST(ArrayLanes, HundredsOfWarpsShareTwoChannels) {
    BenchOptions o;
    o.blocks = 400 * 16;
    ArrayBench b(o, 400, RandomMix::kStride);
    b.launch(400, 1, b.mix(16, 24 / kScale));
    b.expect_good(400 * 24 / kScale);
    b.expect_tagged();
    b.expect_clean();
}

TEST(ArrayLanes, EachWarpOnItsOwnChannel) {
    BenchOptions o;
    o.channels = 8;
    o.depth = 8;
    o.replicas = 3;
    o.blocks = 8 * 256;
    ArrayBench b(o, 8, RandomMix::kStride);
    b.launch(8, 1, b.mix(256, 720 / kScale), 8);
    b.expect_good(8 * 720 / kScale);
    b.expect_tagged();
    b.expect_clean();
}

TEST(ArrayLanes, AGridFarLargerThanWhatRunsAtOnce) {
    BenchOptions o;
    o.channels = 3;
    o.blocks = 2048 * 4;
    o.chunk_bytes = 4096;
    ArrayBench b(o, 2048, RandomMix::kStride);
    b.launch(512, 4, b.mix(4, 4 / kScale + 1), 3);
    b.expect_good(2048);
    b.expect_tagged();
    b.expect_clean();
}

TEST(ArrayLanes, ManyMoreWorkersThanProcessorsAndSeveralEngineThreads) {
    BenchOptions o;
    o.engine_threads = 4;
    o.replicas = 4;
    o.blocks = 64 * 64;
    o.chunk_bytes = 1u << 20;
    ArrayBench b(o, 64, RandomMix::kStride);
    b.launch(64, 1, b.mix(64, 60 / kScale), 32);
    b.expect_good(64 * 60 / kScale);
    b.expect_tagged();
    b.expect_clean();
}

TEST(ArrayLanes, LaterLaunchesAndOpeningsContinueFromEarlierOnes) {
    BenchOptions o;
    o.blocks = 32 * 32;
    ArrayBench b(o, 32, RandomMix::kStride);
    for (std::uint32_t life = 0; life < 4; ++life) {
        b.launch(32, 1, b.mix(32, 12, life * 12));
        ASSERT_TRUE(b.volume->release().ok());
        b.volume = b.client->open("v", client::OpenMode::kWrite).value();
        b.common.volume = b.volume->ref();
    }
    b.expect_good(4 * 32 * 12);
    b.expect_tagged();
    b.expect_clean();
}

TEST(ArrayLanes, BlocksWrittenConcurrentlyEndEqualOnAllReplicas) {
    for (const std::uint32_t replicas : {2u, 4u}) {
        BenchOptions o;
        o.replicas = replicas;
        o.blocks = 64;
        o.engine_threads = replicas == 4 ? 3 : 1;
        ArrayBench b(o, 24, ContendedWriters::kStride);
        const ContendedWriters kernel{b.common, 40, 60 / kScale};
        b.launch(24, 1, kernel, 12);
        b.expect_good(24 * 2 * 60 / kScale);
        b.expect_contended(24, kernel);
        b.expect_clean();
    }
}

TEST(ArrayLanes, SingleLanesDoEveryKindOfCommand) {
    BenchOptions o;
    o.depth = 8;
    ArrayBench b(o, 200, 4 * 4096);
    b.launch(50, 4, LanesAlone{b.common, 4, 7});
    b.expect_good(3500);
    b.expect_clean();
}

TEST(ArrayLanes, TokensAndCallbacksEndOnce) {
    BenchOptions o;
    o.channels = 1;
    o.blocks = 8192;
    o.chunk_bytes = 16384;
    ArrayBench b(o, 1, 64);
    b.launch(40, 1, LanesAsync{b.common, 5});
    ASSERT_TRUE(b.client->quiesce(60'000).ok());
    b.launch(1, 1, RunDueCallbacks{b.common});
    b.expect_good(40 * 5 * 6);
    EXPECT_EQ(b.report().callbacks, 40u * 5 * 2);
}

class ArrayWarps : public ::testing::TestWithParam<std::uint32_t> {
  protected:
    static BenchOptions few() {
        BenchOptions o;
        o.depth = 8;
        o.blocks = 1024;
        return o;
    }
};
INSTANTIATE_TEST_SUITE_P(Width, ArrayWarps, ::testing::Values(1u, 7u, 32u));

TEST_P(ArrayWarps, DoEverythingAtRandom) {
    ArrayBench b(few(), 4, RandomMix::kStride);
    b.test_warps(4, GetParam(), b.mix(32, 40 / kScale));
    b.expect_good(4 * 30 / kScale);
    b.expect_tagged();
    b.expect_clean();
}
TEST_P(ArrayWarps, ContinueWhenLanesExit) {
    ArrayBench b(few(), 3, RandomMix::kStride);
    b.test_warps(3, GetParam(), b.mix(32, 30 / kScale, 0, true));
    b.expect_good(3 * 20 / kScale);
    b.expect_tagged();
    b.expect_clean();
}
TEST_P(ArrayWarps, OnTheSameBlocksLeaveThemEqualOnAllReplicas) {
    ArrayBench b(few(), 4, ContendedWriters::kStride);
    const ContendedWriters kernel{b.common, 24, 12 / kScale};
    b.test_warps(4, GetParam(), kernel);
    b.expect_good(4 * 2 * 12 / kScale);
    b.expect_contended(4, kernel);
    b.expect_clean();
}
TEST_P(ArrayWarps, SingleLanesDiverge) {
    BenchOptions o = few();
    o.channels = 1;
    ArrayBench b(o, 64, 4 * 4096);
    b.test_warps(2, GetParam(), LanesAlone{b.common, 2, 3});
    b.expect_good(2 * GetParam() * 6);
    b.expect_clean();
}
TEST_P(ArrayWarps, ManyRequestsOverTheMembers) {
    BenchOptions o = few();
    o.blocks = 4096;
    ArrayBench b(o, 2, kCaseStride + 20 * 4096);
    b.test_warps(2, GetParam(), WarpsMany{b.common, 40});
    b.expect_good(2 * 42);
    b.expect_clean();
}
TEST_P(ArrayWarps, BatchesRunInFourSteps) {
    ArrayBench b(few(), 1, 64);
    auto batches =
        simt::DeviceMemory::allocate(2 * sizeof(Batch<64, CountHandler>), simt::LanesKind::kCpu).value();
    b.test_warps(4, GetParam(), WarpsBatch<64>{b.common, batches.lane_as<Batch<64, CountHandler>>(), 3}, 2);
    b.expect_good(4 * GetParam() * 7);
    EXPECT_EQ(b.report().callbacks, 4u * GetParam() * 6);
    b.expect_clean();
}

}  // namespace gnstor::test::lanes_test
