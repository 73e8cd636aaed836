// initiator.hpp: one way for clients to reach the array, as the harness sees it; every way is measured alike.
// Host, one thread.
//
// An Initiator is built over a Bed (an array, its engine threads, nothing opened yet). It registers the
// clients, makes and opens a volume for each, and moves their requests. Who computes is "the GPU" in all of
// them: GPU lanes, or CPU lanes standing in for them. What differs is who initiates:
//
//   gnor           lanes build commands, ring the NIC and take completions themselves (the product)
//   strong-cpu     the best CPU initiator we can write: many threads, queue pairs of their own with no atomic
//                  on the way, one bell a batch, no central engine; data lands where lanes read it
//   gd-deengine    a CPU thread a client, bells rung one by one; data lands where lanes read it; SSDs do what
//                  an array engine would (the paper's "GD+deEngine")
//   gd             the same through a central array engine on the node: threads that lock the blocks, look
//                  the address up in a mapping table, and log every change of it before a write is answered
//   basic          as gd, but data lands in host memory and is copied to or from the lanes' memory
//   ported-locks   straw design: lanes as in gnor, but a lock a channel around submitting and polling
//   coordinating   straw design: lanes as in gnor, but clients agree with each other before each request
//
// Rules that hold for all of them
//   * the same NIC, SSDs, models and engine threads below; one volume a client;
//   * what was read counts once the lanes may use it, what is written is made by the lanes: with CPU
//     initiators through a mailbox a stream, whose round trip is the stage "hand-over". The lanes take
//     latencies (mailbox.hpp), so these hold it: from being ready for a request (for a write: once its data
//     is made) until they see it done;
//   * every word that `verify` asks for is compared by the lanes; commands that SSDs counted must be those
//     that the initiator says it sent;
//   * initiator CPU time: of the threads that initiate; where lanes do, of the process less the emulated
//     hardware's threads (on CPU lanes that holds what lanes do with the data, too: filling and comparing).
//     CPU lanes that stand in for a GPU beside a CPU initiator, and a central engine's threads, are apart.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/simt/launch.hpp>

#include "bench/initiators/load.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::bench {

class Bed;

enum class PathKind : std::uint32_t {
    kGnor,
    kStrongCpu,
    kGdDeEngine,
    kGd,
    kBasic,
    kPortedLocks,
    kCoordinating
};
inline constexpr PathKind kAllPaths[] = {PathKind::kGnor,        PathKind::kStrongCpu, PathKind::kGdDeEngine,
                                         PathKind::kGd,          PathKind::kBasic,     PathKind::kPortedLocks,
                                         PathKind::kCoordinating};
[[nodiscard]] const char* path_name(PathKind path);
/// kInvalidArgument names those there are.
[[nodiscard]] Result<PathKind> parse_path(std::string_view word);
/// Whether requests go through a central array engine.
[[nodiscard]] constexpr bool is_central(PathKind path) {
    return path == PathKind::kGd || path == PathKind::kBasic;
}
/// Whether lanes send the commands themselves.
[[nodiscard]] constexpr bool is_lane_initiated(PathKind path) {
    return path == PathKind::kGnor || path == PathKind::kPortedLocks || path == PathKind::kCoordinating;
}

struct InitiatorOptions {
    PathKind path = PathKind::kGnor;
    simt::LanesKind lanes = simt::LanesKind::kCpu;
    std::uint32_t clients = 1;   ///< 1 .. 32
    std::uint32_t channels = 1;  ///< of a client (lane-initiated)
    std::uint32_t warps = 0;     ///< of a client (lane-initiated); 0: 8 on a GPU, 1 on CPU lanes
    std::uint32_t depth = 32;    ///< requests in flight of a client, on every path: its streams share them
    std::uint32_t threads = 1;   ///< CPU-initiated: of all clients together
    std::uint32_t array_threads = 8;  ///< central engine: threads
    std::uint64_t volume_bytes = 0;   ///< of each client
    std::uint32_t replicas = 2;
    std::uint32_t bytes_max = 65536;  ///< of the largest request
    std::uint64_t seed = 1;
    /// FUA (NVMe NVM Command Set 1.0, CDW12 bit 30) on every command that SSDs get, on every path; else on
    /// none. Never by path: a write that waits for stable media stands beside none that does not.
    bool fua = false;
};

/// What one run did, all streams together.
struct Outcome {
    double seconds = 0;  ///< of wall time, from the first stream's begin to the last one's end
    std::uint64_t operations = 0, reads = 0, checked = 0, wrong = 0, failures = 0;
    bool quota_used = false;  ///< ended because no more might be issued
    nvme::Status first_status{};
    std::uint64_t first_offset = 0;
    std::vector<std::uint32_t> latency_ns;  ///< a uniform sample
    std::uint64_t commands = 0;             ///< that SSDs must have counted
    double initiator_cpu_seconds = 0;
    double lane_cpu_seconds = 0;   ///< CPU lanes beside a CPU initiator
    double array_cpu_seconds = 0;  ///< of the central engine's threads
    /// By stage, mean of an I/O that has it, waiting included; what a path does not have is not here.
    std::map<std::string, double> stage_us;
    /// Seconds that threads, or warps, worked on a stage, of all I/Os together.
    std::map<std::string, double> work_seconds;
};

class Initiator {
  public:
    virtual ~Initiator() = default;
    /// Who initiates, with how many threads or warps; one line for people.
    [[nodiscard]] virtual std::string describe() const = 0;
    /// How many streams, of all clients together.
    [[nodiscard]] virtual std::uint32_t streams() const = 0;
    /// Members of all streams together: what a quota is divided by.
    [[nodiscard]] virtual std::uint64_t members(std::uint32_t bytes) const = 0;
    virtual Result<Outcome> run(const Load& load) = 0;
};

/// Registers clients, makes and opens their volumes. `bed` outlives the initiator.
Result<std::unique_ptr<Initiator>> make_initiator(Bed& bed, const InitiatorOptions& options);

}  // namespace gnstor::bench
