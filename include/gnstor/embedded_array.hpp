// embedded_array.hpp: a whole array in one process, as an object: node (NIC, SSDs, target), daemon decisions,
// clients.
//
// For demos, tests, examples and benchmarks, and for `gnstor put|get`. Software NIC on the loop wire,
// emulated SSDs; everything else is the product: capsules, queues, permission tables, leases. Why a layer of
// its own (above the daemon): it joins both sides of the wire, which no layer below may see.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/client/array.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::rdma {
class SoftNic;
}
namespace gnstor::daemon {
class RecordStore;
class InProcessControlPlane;
}  // namespace gnstor::daemon

namespace gnstor {

/// What an acknowledged write survives (DESIGN.md, "Durability promise").
enum class SsdDurability : std::uint8_t {
    kDefault,  ///< power loss for SSDs in files, kill -9 of the process for those in memory
    kProcess,
    kPower,
};

struct EmbeddedArrayOptions {
    std::uint32_t ssds = 4;                         ///< 1 .. 64
    std::uint64_t ssd_capacity_bytes = 1ull << 30;  ///< of each
    /// Of each, where it is memory: got from the system at the beginning, not when it is written first.
    std::uint64_t ssd_memory_at_opening = 0;
    std::filesystem::path directory;   ///< empty: memory; else ssd-<n>.store files there, made if absent
    std::uint32_t engine_threads = 1;  ///< threads that run the NICs and the SSDs; 1: all on one
    std::uint32_t nic_threads = 0;     ///< of those, how many run NICs only; 0: chosen
    bool strict_nic = false;           ///< the software NIC checks everything and delays at random
    std::uint64_t seed = 1;
    std::uint64_t lease_ms = 300'000;
    /// For so long SSDs go on serving while the daemon's thread stands still; renewed at a third of it. 0:
    /// for ever.
    std::uint32_t grant_ms = 10'000;
    std::uint32_t service_units = 1;           ///< shards of a new SSD, each run by one engine thread
    std::uint32_t scrub_pages_per_second = 0;  ///< of each service unit: checks data at rest; 0: none
    SsdDurability durability = SsdDurability::kDefault;
    /// A device across the bus fetches what is read (clients with GPU lanes): drives of memory store it past
    /// the CPU's caches, from which it would have to be fetched. No more than a matter of speed.
    bool reads_for_device = false;
    bool direct_io = false;  ///< stores without the page cache (O_DIRECT)
    /// An SSD whose store is refused as damaged is left out, with a warning in the daemon's start report,
    /// where another SSD can be served and, of an EmbeddedArray, the records hold volumes, whose other
    /// replicas then answer reads. Otherwise its error is that of the opening.
    bool leave_out_damaged = false;
    /// A Unix socket by which other processes of this machine reach the SSDs over shared memory, at the loop
    /// wire's speed (RemoteArray); empty: none do.
    std::filesystem::path shm_socket;
    std::uint32_t shm_mode = 0600;  ///< of that socket: who may connect
    /// The hardware that drives and network stand for: "none", another built-in name (share/profiles), or the
    /// path of a profile (with a slash, or ending in .json). Contents and counts do not depend on it.
    std::string profile = "none";
};

/// What one emulated SSD did since it was opened.
struct EmbeddedSsd {
    std::uint32_t slot;  ///< its number, as in the name of its store
    std::string serial;
    std::string subsystem_nqn;
    std::uint64_t capacity_blocks;
    std::uint64_t reads, writes, flushes, trims, refused, media_errors;  ///< commands
    std::uint64_t blocks_read, blocks_written, mapped_blocks, free_pages;
    std::uint64_t pages_programmed,
        gc_pages_copied;  ///< of flash: the rest of their difference is the journal
    std::uint64_t scrubbed, scrub_bad, units_bad, lost_blocks;
    std::uint64_t capsules;  ///< that arrived at its target offload
    std::uint64_t forced;    ///< commands with FUA: answered from stable media
    bool write_protected;    ///< its store can be read alone
};

struct EngineThread {
    std::string name;
    std::uint64_t cpu_time_ns;
    std::uint64_t busy_time_ns;  ///< of wall time: rounds in which it did work (Reactor::busy_time_ns)
};

class EmbeddedArray final : public client::Array {
  public:
    /// Opens the stores (recovering them), starts the engine threads and the daemon's thread.
    /// Records of volumes and clients are rebuilt from the SSDs.
    static Result<std::unique_ptr<EmbeddedArray>> open(const EmbeddedArrayOptions& options);
    /// The same with durable records (src/daemon/records/records.hpp): what gnstord does.
    static Result<std::unique_ptr<EmbeddedArray>> open(const EmbeddedArrayOptions& options,
                                                       std::unique_ptr<daemon::RecordStore> records);
    /// Clients must be gone.
    ~EmbeddedArray() override;

    Result<std::unique_ptr<client::Client>> connect(const client::ClientOptions& options) override;
    [[nodiscard]] client::ControlPlane& control() override;
    [[nodiscard]] rdma::SoftNic& host_nic() override;
    [[nodiscard]] std::string wire() const override;
    [[nodiscard]] daemon::InProcessControlPlane& daemon();

    /// Stops everything of the daemon: its thread, and calls to control() answer kState. I/O goes on: the
    /// daemon is not in its path.
    void suspend_daemon();
    void resume_daemon();
    [[nodiscard]] bool daemon_suspended() const;

    [[nodiscard]] std::vector<EmbeddedSsd> ssds() const;
    [[nodiscard]] std::vector<EngineThread> engine_threads() const;
    [[nodiscard]] const EmbeddedArrayOptions& options() const;

  private:
    struct Impl;
    explicit EmbeddedArray(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor
