// test_warp.hpp: warps of W lanes on the CPU, one thread a lane, to test code for groups where
// ThreadSanitizer can see it.
//
// Every collective is a meeting (rendezvous) of threads that checks what a GPU leaves undefined: all members
// call the same collective at the same place in the code; no shfl from a lane that has left. active() returns
// seeded subsets of the lanes that arrive. Lanes that leave the kernel drop out of later meetings. Only
// sync() orders memory: the other collectives are hidden from ThreadSanitizer, so a kernel that relies on a
// ballot for order shows a race, as it has on a GPU. In builds with GN_TEST_WARPS each atomic may yield the
// processor, by seed and by a lane's changing priority.
//
// A broken rule ends the run with an Error, never with a hang: meetings have a deadline, deadlocks among the
// lanes are found at once, and the other lanes are ended (an exception through the kernel) at their next
// meeting or atomic.
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
    std::uint64_t meetings = 0;    ///< collectives completed
    std::uint64_t gatherings = 0;  ///< calls of active() completed, one for all lanes that came together
    std::uint64_t splits = 0;      ///< gatherings divided into more than one group
    std::uint64_t atomics = 0;     ///< yield points passed (builds with GN_TEST_WARPS)
    std::uint64_t yields = 0;      ///< yield points at which the lane yielded
};

/// Runs `kernel` once for each lane of options.warps warps, all at once, and waits for all. Host thread. The
/// Error of a broken rule names the rule, the lanes, their places in the code and the seed.
[[nodiscard]] Result<TestWarpCounters> run_test_warps(const TestWarpOptions& options,
                                                      const std::function<void(Lane)>& kernel);

}  // namespace gnstor::simt
