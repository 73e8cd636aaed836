// gpu_fixture.hpp: what device tests of gnor begin with: skipped where no GPU is to be had, and a rig whose
// lanes are the GPU's. Host threads. Compiled by nvcc.
#pragma once

#include <gtest/gtest.h>

#include "gnor/bench.hpp"

namespace gnstor::test {

inline constexpr simt::LanesKind kGpu = simt::LanesKind::kGpu;

class OnGpu : public ::testing::Test {
  protected:
    void SetUp() override {
        const auto usable = simt::check_lanes(kGpu);
        if (!usable.ok()) GTEST_SKIP() << usable.error().message;
    }
};

inline RigOptions gpu_options(std::uint32_t channels, std::uint32_t depth = 32, bool scatter = true) {
    RigOptions o = options_of(channels, depth, scatter);
    o.lanes = kGpu;
    return o;
}
inline RigOptions gpu_options(Sharing sharing, std::uint32_t channels, std::uint32_t depth = 8) {
    RigOptions o = gpu_options(channels, depth);
    o.sharing = sharing;
    return o;
}

}  // namespace gnstor::test
