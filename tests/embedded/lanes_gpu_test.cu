// lanes_gpu_test.cu: the cases on real GPU warps against a whole array. Built where nvcc is, run where a GPU
// is.
#include <cstdlib>
#include <string_view>

#include "embedded/bench.hpp"
#include "gnor/pool_cases.hpp"

namespace gnstor::test {
namespace {

/// Times less work where compute-sanitizer looks at every access.
std::uint32_t scale() {
    static const std::uint32_t times = std::getenv("GN_UNDER_TOOL") != nullptr ? 8 : 1;
    return times;
}

BenchOptions gpu(std::uint32_t channels = 4, std::uint32_t depth = 32) {
    BenchOptions o;
    o.lanes = simt::LanesKind::kGpu;
    o.channels = channels;
    o.depth = depth;
    o.engine_threads = 4;
    return o;
}

/// A client whose channel has a pool that is too small for the warps that come.
class GrowingPool : public LaneBench {
  public:
    GrowingPool(std::uint64_t bytes, std::uint64_t bytes_max, std::uint32_t warps)
        : LaneBench(simt::LanesKind::kGpu, warps, 64, run_seed(), kLongNs),
          rig(rig_options(4)),
          client(connect(bytes, bytes_max)),
          volume(rig.volume(*client, "v", warps * 512)) {
        common.volume = volume->ref();
        common.channels = client->channels();
    }
    [[nodiscard]] std::uint32_t* counter() const { return reinterpret_cast<std::uint32_t*>(common.memory); }
    void expect_good(std::uint64_t floor) {
        count("array_pool_operations", expect_good_report(floor).operations);
    }

    ArrayRig rig;
    std::unique_ptr<client::Client> client;
    std::unique_ptr<client::Volume> volume;

  private:
    std::unique_ptr<client::Client> connect(std::uint64_t bytes, std::uint64_t bytes_max) {
        client::ClientOptions o;
        o.name = "grower";
        o.lanes = simt::LanesKind::kGpu;
        o.channels = 1;
        o.pool_bytes = bytes;
        o.pool_bytes_max = bytes_max;
        return std::move(client::Client::connect(*rig.control, *rig.nic, o).value());
    }
};

class ArrayGpu : public ::testing::Test {
  protected:
    void SetUp() override {
        const auto usable = simt::check_lanes(simt::LanesKind::kGpu);
        if (!usable.ok()) GTEST_SKIP() << usable.error().message;
    }
};

TEST_F(ArrayGpu, HundredsOfWarpsShareTwoChannels) {
    BenchOptions o = gpu(2);
    o.blocks = 512 * 16;
    ArrayBench b(o, 512, RandomMix::kStride);
    b.launch(64 / scale(), 256, b.mix(16, 30));
    b.expect_good(512 / scale() * 25);
    b.expect_tagged();
    b.expect_clean();
}
TEST_F(ArrayGpu, EachWarpHasItsOwnChannelAndLanesMayExitEarly) {
    BenchOptions o = gpu(8, 8);
    o.replicas = 3;
    o.blocks = 8 * 256;
    ArrayBench b(o, 8, RandomMix::kStride);
    b.launch(8, 32, b.mix(256, 200 / scale(), 0, true));
    b.expect_good(8 * 180 / scale());
    b.expect_tagged();
    b.expect_clean();
}
TEST_F(ArrayGpu, AGridFarLargerThanWhatRunsAtOnce) {
    BenchOptions o = gpu(16);
    o.blocks = 16384 * 2;
    o.chunk_bytes = 4096;
    o.engine_threads = 8;
    ArrayBench b(o, 16384, RandomMix::kStride);
    b.launch(4096 / scale() / scale(), 128, b.mix(2, 3));
    b.expect_good(16384 / scale() / scale());
    b.expect_tagged();
    b.expect_clean();
}
TEST_F(ArrayGpu, APoolIsGrownByTheClientsHostThreadUnderARunningKernel) {
    const char* const tool = std::getenv("GN_UNDER_TOOL");
    if (tool != nullptr && std::string_view(tool) == "memcheck")
        GTEST_SKIP() << "compute-sanitizer memcheck does not recognize memory that was registered after a "
                        "kernel started";
    constexpr std::uint32_t kWarps = 64;
    GrowingPool b(256u << 10, 4u << 20, kWarps);
    b.launch(16, 128, PoolGrows{b.common, b.counter(), kWarps, 16});
    b.expect_good(kWarps * 4);
    EXPECT_EQ(b.client->channel(0).pool_bytes(), 4u << 20);
    b.rig.expect_clean(*b.client);
}
TEST_F(ArrayGpu, BlocksWrittenConcurrentlyEndEqualOnAllReplicas) {
    for (const std::uint32_t replicas : {2u, 4u}) {
        BenchOptions o = gpu();
        o.replicas = replicas;
        o.blocks = 64;
        ArrayBench b(o, 64, ContendedWriters::kStride);
        const ContendedWriters kernel{b.common, 40, 24 / scale()};
        b.launch(16, 128, kernel);
        b.expect_good(64 * 2 * 24 / scale());
        b.expect_contended(64, kernel);
        b.expect_clean();
    }
}
TEST_F(ArrayGpu, SingleLanesDoEveryKindOfCommand) {
    BenchOptions o = gpu();
    o.blocks = 1024 * 8;
    ArrayBench b(o, 1024, 4 * 4096);
    b.launch(16 / scale(), 64, LanesAlone{b.common, 2, 7});
    b.expect_good(8000 / scale());
    b.expect_clean();
}
TEST_F(ArrayGpu, BatchesRunInFourSteps) {
    BenchOptions o = gpu(1, 32);
    ArrayBench b(o, 1, 64);
    b.launch(4, 64, WarpsBatch<64>{b.common, nullptr, 3});
    b.expect_good(4 * 64 * 7);
    EXPECT_EQ(b.report().callbacks, 4u * 64 * 6);
    b.expect_clean();
}
TEST_F(ArrayGpu, HostTransfersAndKernelsTakeTurnsOnOneOpening) {
    BenchOptions o = gpu();
    o.blocks = 32 * 16;
    ArrayBench b(o, 32, RandomMix::kStride);
    b.launch(8, 128, b.mix(16, 10));
    std::vector<std::byte> all(o.blocks * 4096), back(all.size());
    ASSERT_TRUE(b.volume->read(0, all).ok());
    ASSERT_TRUE(b.volume->write(0, all).ok());
    b.launch(8, 128, b.mix(16, 10, 10));
    b.expect_tagged();
    ASSERT_TRUE(b.volume->write(0, all).ok());
    ASSERT_TRUE(b.volume->read(0, back).ok());
    EXPECT_EQ(all, back) << "a host write after kernels must be the newest";
    b.expect_clean();
}
TEST_F(ArrayGpu, KilledQueuePairsAreReportedReclaimedAndNothingAcknowledgedIsLost) {
    constexpr std::uint32_t kWarps = 32, kEach = 16, kRounds = 64;
    BenchOptions o = gpu(2, 8);
    o.blocks = kWarps * kEach;
    o.chunk_bytes = 4096;
    ArrayBench b(o, kWarps, ThroughFaults::kStride);
    auto memory = simt::PinnedMemory::map(kWarps * kEach * 8 + 4096, simt::LanesKind::kGpu).value();
    auto* words = reinterpret_cast<std::uint64_t*>(memory.data());
    auto* acknowledged = reinterpret_cast<std::uint32_t*>(words + 64);
    auto* tried = acknowledged + kWarps * kEach;
    std::uint32_t first = 0;
    for (std::uint32_t kill = 0; kill < 8 / scale(); ++kill) {
        const auto kernel = [&] {
            return ThroughFaults{b.common, acknowledged, tried, kEach, first, kRounds, words, words + 1};
        };
        const std::uint64_t before = simt::load_relaxed<simt::Scope::kSystem>(words);
        auto run = simt::launch_async(simt::LanesKind::kGpu, 8, 128, kernel());
        ASSERT_TRUE(run.ok()) << run.error().message;
        while (!run->done() &&
               simt::load_relaxed<simt::Scope::kSystem>(words) < before + kWarps * kRounds / 4)
            std::this_thread::yield();
        b.rig.nic->disconnect(b.client->channel(kill % 2).queue_pair(kill % 4));
        ASSERT_TRUE(run->wait(late()).ok());
        first += kRounds;
        const auto reclaimed = b.client->reclaim();
        ASSERT_TRUE(reclaimed.ok()) << reclaimed.error().message;
        const std::uint64_t settled = words[1] + words[2] + words[3];
        b.launch(8, 128, kernel());
        first += kRounds;
        EXPECT_EQ(words[1] + words[2] + words[3], settled) << "a reclaimed channel must work";
    }
    EXPECT_EQ(b.report().mismatches, 0u);
    for_each_replica(*b.reader, "v", [&](std::uint32_t block, std::uint32_t slot, const std::uint64_t* w) {
        const std::uint64_t round = w[0] & 0xFFFFFFFFu;
        EXPECT_TRUE(is_whole(w, b.common.seed, block)) << "slot " << slot << " block " << block;
        EXPECT_GE(round, acknowledged[block]) << "lost on slot " << slot << ", block " << block;
        EXPECT_LE(round, tried[block]);
    });
    count("array_gpu_kills", 8 / scale());
    b.expect_clean();
}

}  // namespace
}  // namespace gnstor::test
