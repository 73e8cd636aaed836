// lane_bench.hpp: what benches of lanes have in common: memory for the cases of gnor/cases.hpp, their report,
// and ways to run them: CPU lanes, GPU lanes, test warps. Volume and channels are the bench's own.
#pragma once

#include <gnstor/simt/device_memory.hpp>
#include <gnstor/simt/launch.hpp>

#include <gtest/gtest.h>

#include <cstdint>

#include "gnor/cases.hpp"
#if !defined(__CUDACC__)
#include "support/test_warp.hpp"
#endif

namespace gnstor::test {

class LaneBench {
  public:
    template <class Kernel>
    void launch(std::uint32_t blocks, std::uint32_t threads, Kernel kernel, std::uint32_t workers = 0) {
        simt::LaunchOptions o;
        o.cpu_workers = workers;
        const auto done = simt::launch(lanes_, blocks, threads, kernel, o);
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

    Common common{};

  protected:
    /// `stride` bytes for each of `users` warps or lanes; zeroes, as the report.
    LaneBench(simt::LanesKind lanes, std::uint64_t users, std::uint64_t stride, std::uint64_t seed,
              std::uint64_t timeout_ns)
        : lanes_(lanes),
          memory_(simt::DeviceMemory::allocate(users * stride, lanes).value()),
          report_(simt::DeviceMemory::allocate(sizeof(Report), lanes).value()) {
        common.report = report_.lane_as<Report>();
        common.memory = memory_.lane_as<std::byte>();
        common.stride = stride;
        common.seed = seed;
        common.timeout_ns = timeout_ns;
    }
    ~LaneBench() = default;
    /// No call failed, no word was wrong, and at least `floor` operations were done.
    Report expect_good_report(std::uint64_t floor) {
        const Report r = report();
        EXPECT_EQ(r.failures, 0u) << "lanes report failed commands, last status " << std::hex << r.last_status
                                  << std::dec << ", GN_SEED=" << common.seed;
        EXPECT_EQ(r.mismatches, 0u) << "GN_SEED=" << common.seed;
        EXPECT_GE(r.operations, floor);
        return r;
    }

  private:
    const simt::LanesKind lanes_;
    simt::DeviceMemory memory_, report_;
};

}  // namespace gnstor::test
