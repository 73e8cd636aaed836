// bench.hpp: a rig with memory for the cases, and ways to run them: CPU lanes, GPU lanes, test warps.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>

#include "gnor/cases.hpp"
#include "gnor/rig.hpp"
#if !defined(__CUDACC__)
#include "simt/test_warp.hpp"
#endif

namespace gnstor::test {

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
#if !defined(__CUDACC__)
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
#endif
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

inline constexpr std::uint64_t kWarpStride = 40 * 4096;

inline RigOptions options_of(std::uint32_t channels, std::uint32_t depth = 32, bool scatter = true) {
    RigOptions o;
    o.channels = channels;
    o.depth = depth;
    o.scatter = scatter;
    o.seed = seed_from_environment(1);
    return o;
}

}  // namespace gnstor::test
