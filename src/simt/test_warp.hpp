// test_warp.hpp: warps of W lanes on the CPU, one thread a lane, to test code for groups where
// ThreadSanitizer can see it.
//
// Every collective is a meeting of threads that checks what a GPU leaves undefined: all members at the same
// place in the code, calling the same collective; no shfl from a lane that is not there. active() hands out
// seeded subsets of those who came by. Lanes that leave the kernel drop out of later meetings. Only sync()
// orders memory: under ThreadSanitizer the other collectives are hidden, so a kernel that leans on a ballot
// for order is a race there, as it is on a GPU. In builds with GN_TEST_WARPS each atomic may give the
// processor away, by seed and by a lane's changing priority.
//
// A broken rule ends the run with an Error, never with a hang: meetings have a deadline, lanes that all wait
// for each other are found at once, and the other lanes are ended (an exception through the kernel) at their
// next meeting or atomic.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/simt/group.hpp>

#include <cstdint>
#include <functional>

namespace gnstor::simt {

struct TestWarpOptions {
    std::uint32_t warps = 1;
    std::uint32_t lanes = 32;  ///< of each warp, 1 to 32
    std::uint64_t seed = 1;
    std::uint32_t warps_per_block = 1;
    std::uint64_t meeting_timeout_ns = 120'000'000'000;
};

struct TestWarpCounters {
    std::uint64_t meetings = 0;    ///< collectives that came to their end
    std::uint64_t gatherings = 0;  ///< groups asked of active()
    std::uint64_t splits = 0;      ///< gatherings that were handed out as more than one group
    std::uint64_t atomics = 0;     ///< yield points passed (builds with GN_TEST_WARPS)
    std::uint64_t yields = 0;      ///< and taken
};

/// Runs `kernel` once for each lane of options.warps warps, all at once, and waits for all. Host thread. The
/// Error of a broken rule names the rule, the lanes, their places in the code and the seed.
[[nodiscard]] Result<TestWarpCounters> run_test_warps(const TestWarpOptions& options,
                                                      const std::function<void(Lane)>& kernel);

}  // namespace gnstor::simt
