// embedded_array.hpp: a whole array in one process, as an object: node (NIC, SSDs, target), the daemon's
// decisions, and clients.
//
// For demos, tests, examples and benchmarks, and for `gnstor put|get`. The NIC is software on the loop wire
// and the SSDs are emulated; capsules, queues, permission tables and leases are those of the product. It is a
// layer of its own, above the daemon, because it joins both sides of the wire, which no layer below may see.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/client/array.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::rdma {
class Nic;
}
namespace gnstor::daemon {
class RecordStore;
class InProcessControlPlane;
}  // namespace gnstor::daemon

namespace gnstor {

/// What an acknowledged write survives (docs/design.md, "Durability promise").
enum class SsdDurability : std::uint8_t {
    kDefault,  ///< power loss for SSDs in files, kill -9 of the process for those in memory
    kProcess,
    kPower,
};

struct EmbeddedArrayOptions {
    std::uint32_t ssds = 4;                         ///< 1 .. 64
    std::uint64_t ssd_capacity_bytes = 1ull << 30;  ///< of each SSD
    /// Bytes of each in-memory SSD that are allocated when it is opened; the rest is allocated when first
    /// written.
    std::uint64_t ssd_memory_at_opening = 0;
    /// Empty: SSDs in memory; else files `ssd-<n>.store` there, created if absent.
    std::filesystem::path directory;
    std::uint32_t engine_threads = 1;  ///< threads that run the NICs and the SSDs; 1: both share one thread
    std::uint32_t nic_threads = 0;     ///< how many of those run NICs only; 0: chosen by the node
    bool strict_nic = false;           ///< the software NIC checks every entry and delays at random
    std::uint64_t seed = 1;
    std::uint64_t lease_ms = 300'000;
    /// Time between two passes of the scrub, which compares the replicas and mends what an SSD cannot read; 0: never. The
    /// first pass begins within an hour.
    std::uint64_t scrub_every_ms = 7ull * 86'400'000;
    std::uint64_t scrub_bytes_per_s = 64ull << 20;  ///< what it reads from all SSDs together
    std::uint64_t spare_after_ms = 600'000;  ///< a slot that is out so long is given to a spare; 0: never
    /// How long SSDs go on serving after the daemon last renewed their grant; the daemon renews it at a third
    /// of this time. 0: without limit.
    std::uint32_t grant_ms = 10'000;
    std::uint32_t service_units = 1;           ///< shards of a new SSD, each run by one engine thread
    std::uint32_t scrub_pages_per_second = 0;  ///< per service unit: checks data at rest; 0: no scrubbing
    SsdDurability durability = SsdDurability::kDefault;
    /// Read data goes to a device across the bus (clients with GPU lanes): SSDs in memory copy it with stores
    /// that bypass the CPU's caches, so that the device reads it from memory. Affects speed only.
    bool reads_for_device = false;
    bool direct_io = false;  ///< file stores bypass the page cache (O_DIRECT)
    /// Leaves out an SSD whose store is damaged, with a warning in the daemon's start report, instead of
    /// failing open(). Needs another SSD that can be served; an EmbeddedArray also needs records that hold
    /// volumes, whose other replicas then answer reads.
    bool leave_out_damaged = false;
    /// Unix socket by which other processes of this machine reach the SSDs over shared memory, at the loop
    /// wire's speed (RemoteArray); empty: not served to other processes.
    std::filesystem::path shm_socket;
    std::uint32_t shm_mode = 0600;  ///< mode of that socket: which users may connect
    /// Which hardware's timing the drives and the network imitate: "none", another built-in name
    /// (share/profiles), or the path of a profile (with a slash, or ending in .json). Changes timing only,
    /// neither data nor counters.
    std::string profile = "none";
};

/// What one emulated SSD has done since it was opened.
struct EmbeddedSsd {
    std::uint32_t slot;  ///< its number, as in the name of its store
    std::string serial;
    std::string subsystem_nqn;
    std::uint64_t capacity_blocks;
    std::uint64_t reads, writes, flushes, trims, refused, media_errors;  ///< commands
    std::uint64_t blocks_read, blocks_written, mapped_blocks, free_pages;
    std::uint64_t pages_programmed,
        gc_pages_copied;  ///< flash pages; pages_programmed includes the journal
    std::uint64_t scrubbed, scrub_bad, units_bad, lost_blocks;
    std::uint64_t capsules;  ///< that arrived at its target offload
    std::uint64_t forced;    ///< commands with FUA: answered from stable media
    bool write_protected;    ///< its store can be read but not written
};

struct EngineThread {
    std::string name;
    std::uint64_t cpu_time_ns;
    std::uint64_t busy_time_ns;  ///< wall time of the rounds in which it did work (Reactor::busy_time_ns)
};

class EmbeddedArray final : public client::Array {
  public:
    /// Opens the stores (recovering them), starts the engine threads and the daemon's thread. Records of
    /// volumes and clients are rebuilt from the SSDs.
    static Result<std::unique_ptr<EmbeddedArray>> open(const EmbeddedArrayOptions& options);
    /// The same with durable records (src/daemon/records/records.hpp), as gnstord uses it.
    static Result<std::unique_ptr<EmbeddedArray>> open(const EmbeddedArrayOptions& options,
                                                       std::unique_ptr<daemon::RecordStore> records);
    /// All clients must have been destroyed.
    ~EmbeddedArray() override;

    Result<std::unique_ptr<client::Client>> connect(const client::ClientOptions& options) override;
    [[nodiscard]] client::ControlPlane& control() override;
    [[nodiscard]] rdma::Nic& host_nic() override;
    [[nodiscard]] std::string wire() const override;
    [[nodiscard]] daemon::InProcessControlPlane& daemon();

    /// Stops the daemon's thread; calls to control() then return kState. I/O continues, because the daemon is
    /// not in its path.
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
