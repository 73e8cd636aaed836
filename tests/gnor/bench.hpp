// bench.hpp: a rig of model drives under the cases.
#pragma once

#include <cstdio>

#include "gnor/rig.hpp"
#include "support/lane_bench.hpp"

namespace gnstor::test {

class Bench : public LaneBench {
  public:
    explicit Bench(const RigOptions& options, std::uint64_t lanes, std::uint64_t stride)
        : LaneBench(options.lanes, lanes, stride, seed_from_environment(options.seed), kLong), rig(options) {
        common.volume = rig.volume();
        common.channels = rig.channel_set();
    }
    void expect_good(std::uint64_t floor) {
        const Report r = expect_good_report(floor);
        std::uint64_t served = 0;
        for (auto& d : rig.drives) served += d->served();
        std::printf("  %llu operations checked, %llu commands served\n",
                    static_cast<unsigned long long>(r.operations), static_cast<unsigned long long>(served));
    }
    Rig rig;
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
