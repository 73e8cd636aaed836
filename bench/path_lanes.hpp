// path_lanes.hpp: the kernels of `bench path` on the chosen lanes. One implementation (path_lanes.inl),
// compiled once for CPU and once for GPU lanes. Host, one thread.
#pragma once

#include <gnstor/client/client.hpp>
#include <gnstor/simt/device_memory.hpp>
#include <gnstor/simt/pinned_memory.hpp>

#include "bench/cpu_meter.hpp"
#include "recorder.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::bench {

/// How many lanes, and how they share channels.
struct LaneShape {
    std::uint32_t warps;
    std::uint32_t channels;
    std::uint32_t depth;               ///< operations in flight a lane
    bool alone = false;                ///< one lane by itself, one operation at a time (alone_job.hpp)
    Sharing sharing = Sharing::kGrid;  ///< alone: of the channel that the lane uses
    bool stepwise = false;             ///< alone: with the time of each step (alone_steps.hpp)
};

/// One repeat to be run. What is left out of Plan is the lanes' own business.
struct RunRequest {
    std::uint32_t bytes;
    bool write;
    Verify verify;
    std::uint64_t working_set;  ///< bytes
    std::uint64_t seed;         ///< of the contents
    std::uint64_t order_seed;   ///< of the order
    double seconds;
    std::uint64_t operations_max;  ///< of all lanes together
    double offered_per_second =
        0;  ///< open loop: what all lanes together mean to send; 0: as much as they can
};

/// What all lanes together did.
struct RunOutcome {
    double seconds = 0;  ///< from the first lane's begin to the last lane's end, by the lanes' clock
    std::uint64_t operations = 0, checked = 0, wrong = 0, failures = 0;
    bool quota_used = false;      ///< ended by operations_max, before its time
    double lane_cpu_seconds = 0;  ///< CPU lanes only
    double waiting_seconds = 0;   ///< summed over lanes
    nvme::Status first_status{};  ///< of the first failure
    std::uint64_t first_offset = 0;
    std::vector<std::uint32_t> latency_ns;  ///< a uniform sample
    std::map<std::string, double> step_ns;  ///< stepwise: means of an operation, by step; trips to the queue
};

/// A working set in plain host memory, and room for `replicas` copies of it: what the reference uses.
struct ReferenceMemory {
    simt::PinnedMemory source, targets;
    std::uint64_t working_set = 0;
    std::uint32_t replicas = 0;
};

class PathLanes {
  public:
    virtual ~PathLanes() = default;
    [[nodiscard]] virtual simt::LanesKind kind() const = 0;
    [[nodiscard]] virtual std::string describe(const LaneShape& shape) const = 0;
    /// Empty on CPU lanes.
    [[nodiscard]] virtual std::string gpu_name() const = 0;
    /// What is good on this machine beside `engine_threads`.
    [[nodiscard]] virtual LaneShape default_shape(std::uint32_t engine_threads) const = 0;
    [[nodiscard]] virtual std::uint32_t depth_max() const = 0;
    [[nodiscard]] virtual std::uint32_t warps_grain() const = 0;  ///< warps come in multiples of it
    /// Of a warp, how many lanes ask for operations of this size.
    [[nodiscard]] virtual std::uint32_t lanes_a_warp(std::uint32_t bytes) const = 0;

    /// Writes the working set's contents of `seed`.
    virtual Result<void> fill(const LaneShape& shape, client::Client& client, const client::Volume& volume,
                              std::uint64_t working_set, std::uint64_t seed) = 0;
    /// Random reads, or random writes of the contents of seed + 1. `meter` runs while the kernel does.
    virtual Result<RunOutcome> run(const LaneShape& shape, client::Client& client,
                                   const client::Volume& volume, const RunRequest& request,
                                   CpuMeter& meter) = 0;
    /// Reads all of the working set after writes of the last run(): blocks with another word than they should
    /// have, whether written or left alone.
    virtual Result<std::uint64_t> check(const LaneShape& shape, client::Client& client,
                                        const client::Volume& volume, std::uint64_t working_set,
                                        std::uint64_t seed) = 0;

    virtual Result<ReferenceMemory> make_reference(std::uint64_t working_set, std::uint32_t replicas,
                                                   std::uint64_t seed) = 0;
    virtual Result<RunOutcome> run_reference(const LaneShape& shape, const ReferenceMemory& memory,
                                             const RunRequest& request) = 0;
};

std::unique_ptr<PathLanes> make_cpu_path_lanes();
/// Null in a build without CUDA.
std::unique_ptr<PathLanes> make_gpu_path_lanes();

}  // namespace gnstor::bench
