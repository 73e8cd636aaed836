// load_lanes.hpp: the kernels of the harness on the chosen lanes: those that initiate I/O themselves, and
// those that use what a CPU initiated. One implementation (load_lanes.inl), compiled once for CPU and once
// for GPU lanes. Host, one thread.
#pragma once

#include <gnstor/client/client.hpp>
#include <gnstor/simt/device_memory.hpp>
#include <gnstor/simt/pinned_memory.hpp>

#include "bench/cpu_meter.hpp"
#include "bench/initiators/initiator.hpp"
#include "bench/initiators/mailbox.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gnstor::bench {

/// How lanes of one channel keep out of each other's way.
enum class Discipline : std::uint32_t {
    kAtomics,      ///< gnor as it is
    kPortedLocks,  ///< a lock a channel around submitting and around polling, taken by each lane for itself
    kCoordinating  ///< before each request: the chunk's lock among all clients, its map entry read from the
                   ///< array; after a write: a log block written to the array
};

/// One client, as its lanes see it.
struct ClientRefs {
    VolumeRef volume;
    ChannelSet channels;
    std::uint32_t* written;     ///< a bit a block of generation 1
    std::uint32_t* locks;       ///< ported locks: one a channel; coordinating: one a chunk; else null
    std::uint32_t data_blocks;  ///< of the volume; metadata lie behind them
};

/// Blocks of a coordinating client's volume behind its data: map entries, then a log that is written in turn.
inline constexpr std::uint32_t kMapEntriesABlock = 256;
inline constexpr std::uint32_t kLogBlocks = 1024;

/// Bulk copies between host memory and the lanes' memory, in order. One thread.
class Copier {
  public:
    virtual ~Copier() = default;
    /// Starts one; `tag` comes back from poll.
    virtual void begin(std::uint32_t tag, void* to, const void* from, std::size_t bytes) = 0;
    /// What was begun may be waited for.
    virtual void seal() = 0;
    virtual std::uint32_t poll(std::span<std::uint32_t> tags) = 0;
    [[nodiscard]] virtual Result<void> error() const = 0;
};

/// Warps that serve mailboxes until told to stop.
class Consumers {
  public:
    virtual ~Consumers() = default;
    /// After every mailbox was told to stop: waits for the end; sums up. Adds latencies to `latency_ns`.
    virtual Result<MailResult> finish(std::vector<std::uint32_t>& latency_ns) = 0;
};

class LoadLanes {
  public:
    virtual ~LoadLanes() = default;
    [[nodiscard]] virtual simt::LanesKind kind() const = 0;
    [[nodiscard]] virtual std::string gpu_name() const = 0;  ///< empty on CPU lanes
    [[nodiscard]] virtual std::uint32_t depth_max() const = 0;
    /// Lanes of a warp that ask for requests at this depth.
    [[nodiscard]] virtual std::uint32_t askers(std::uint32_t depth) const = 0;
    /// Warps that use the data of one client, where nothing else is asked for: as many as consumers of a CPU
    /// initiator's stream.
    [[nodiscard]] std::uint32_t warps_a_client() const { return mailboxes_a_stream(); }
    /// Mailboxes that a stream should have, so that its consumers keep up.
    [[nodiscard]] virtual std::uint32_t mailboxes_a_stream() const = 0;

    /// Every warp of every client is a stream. `meter` runs while the kernel does.
    virtual Result<Outcome> run(std::span<const ClientRefs> clients, std::uint32_t warps_a_client,
                                Discipline discipline, const Load& load, CpuMeter& meter) = 0;
    /// Mailbox i belongs to client owners[i]. `mailboxes` lies in pinned memory of these lanes.
    virtual Result<std::unique_ptr<Consumers>> start_consumers(Mailbox* mailboxes,
                                                               std::span<const Expected> owners) = 0;
    virtual Result<std::unique_ptr<Copier>> make_copier() = 0;
};

/// The most warps up to `wanted` that can share `depth` requests in flight evenly; 0: it cannot be shared.
std::uint32_t warps_for(const LoadLanes& lanes, std::uint32_t wanted, std::uint32_t depth);

std::unique_ptr<LoadLanes> make_cpu_load_lanes();
/// Null in a build without CUDA.
std::unique_ptr<LoadLanes> make_gpu_load_lanes();

/// Adds what a lane or a stream noted to the total.
void add_result(Outcome& out, const LaneResult& r);

}  // namespace gnstor::bench
