// lanes_test.cpp: the cases on CPU lanes (warps of one) and on test warps, many sharing channels.
#include <gtest/gtest.h>

#include "gnor/cases.hpp"
#include "gnor/rig.hpp"
#include "simt/test_warp.hpp"

namespace gnstor::test {
namespace {

class Bench {
  public:
    explicit Bench(const RigOptions& options, std::uint64_t lanes, std::uint64_t stride)
        : rig(options),
          memory_(simt::DeviceMemory::allocate(lanes * stride, options.lanes).value()),
          report_(simt::DeviceMemory::allocate(4096, options.lanes).value()) {
        common.volume = rig.volume();
        common.channels = rig.channel_set();
        common.report = report_.lane_as<Report>();
        common.memory = memory_.lane_as<std::byte>();
        common.stride = stride;
        common.seed = seed_from_environment(options.seed);
        common.timeout_ns = kLong;
    }
    template <class Kernel>
    void launch(std::uint32_t blocks, std::uint32_t threads, Kernel kernel) {
        const auto done = simt::launch(rig.options.lanes, blocks, threads, kernel);
        ASSERT_TRUE(done.ok()) << done.error().message;
    }
    template <class Kernel>
    void test_warps(std::uint32_t warps, std::uint32_t lanes, Kernel kernel,
                    std::uint32_t warps_per_block = 1) {
        simt::TestWarpOptions o;
        o.warps = warps;
        o.lanes = lanes;
        o.seed = common.seed;
        o.warps_per_block = warps_per_block;
        const auto done = simt::run_test_warps(o, [kernel](simt::Lane lane) { kernel(lane); });
        ASSERT_TRUE(done.ok()) << done.error().message;
    }
    Report report() {
        Report r{};
        report_.download(0, &r, sizeof(r)).value();
        return r;
    }
    void expect_good(std::uint64_t floor) {
        const Report r = report();
        EXPECT_EQ(r.failures, 0u) << "last status " << std::hex << r.last_status
                                  << ", GN_SEED=" << common.seed;
        EXPECT_EQ(r.mismatches, 0u) << "GN_SEED=" << common.seed;
        EXPECT_GE(r.operations, floor);
        std::uint64_t served = 0;
        for (auto& d : rig.drives) served += d->served();
        std::printf("  %llu operations checked, %llu commands served\n",
                    static_cast<unsigned long long>(r.operations), static_cast<unsigned long long>(served));
    }
    Rig rig;
    Common common{};

  private:
    simt::DeviceMemory memory_, report_;
};

constexpr std::uint64_t kWarpStride = 40 * 4096;

RigOptions options_of(std::uint32_t channels, std::uint32_t depth = 32, bool scatter = true) {
    RigOptions o;
    o.channels = channels;
    o.depth = depth;
    o.scatter = scatter;
    o.seed = seed_from_environment(1);
    return o;
}

TEST(GnorLanes, HundredsOfWarpsShareOneChannel) {
    Bench b(options_of(1), 300, kWarpStride);
    b.launch(300, 1, WarpsWriteAndRead{b.common, 4, 32, false});
    b.expect_good(2400);
    b.rig.expect_clean();
}

TEST(GnorLanes, WarpsOnChannelsOfTheirOwn) {
    Bench b(options_of(4, 8, false), 4, kWarpStride);
    b.launch(4, 1, WarpsWriteAndRead{b.common, 40, 32, false});
    b.expect_good(320);
    b.rig.expect_clean();
}

TEST(GnorLanes, LoneLanesDoEveryKindOfCommand) {
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

TEST(GnorLanes, PoolGivesNoBlockTwiceAndLosesNone) {
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
TEST_P(TestWarps, WarpsGoOnWhenLanesLeave) {
    Bench b(options_of(1, 8, false), 3, kWarpStride);
    b.test_warps(3, GetParam(), WarpsWriteAndRead{b.common, 3, 32, true});
    b.expect_good(3 * 3 * 2);
    b.rig.expect_clean();
}
TEST_P(TestWarps, LoneLanesOfOneWarpDiverge) {
    Bench b(options_of(1, 4), 64, 4 * 4096);
    b.test_warps(2, GetParam(), LanesAlone{b.common, 2, 3});
    b.expect_good(2 * GetParam() * 6);
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
    auto batches = simt::DeviceMemory::allocate(2 * sizeof(Batch<64>), simt::LanesKind::kCpu).value();
    b.test_warps(4, GetParam(), WarpsBatch<64>{b.common, batches.lane_as<Batch<64>>(), 3}, 2);
    b.expect_good(4 * GetParam() * 7);
    EXPECT_EQ(b.report().callbacks, 4u * GetParam() * 6);
    b.rig.expect_clean();
}

}  // namespace
}  // namespace gnstor::test
