// target.hpp: the NVMe over RDMA target of one node: moves commands from the NIC to the drives' queues, and
// responses back.
//
// One subsystem for each drive. A subsystem may have a listener of its own; a port (TargetOptions) serves all
// of them: Connect names the subsystem. The data path (connection.hpp) runs on the NIC's pollers without
// locks or allocation; connecting, keep-alive expiry and cleanup run on one control thread of the Target. The
// target does not interpret I/O commands: the drive checks permission, placement and epoch.
//
// Threads: open, counters, check_time and the destructor from any host thread except a reactor's. NVMe Base
// 2.0, 3.1.1 (dynamic controllers), 6 (fabrics); NVMe RDMA Transport 1.0.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>

#include "nvmf/access/host_registry.hpp"
#include "nvmf/auth/dhchap_transaction.hpp"
#include "nvmf/target/controllers.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "ssd/queues/nvme_device.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gnstor::nvmf {

struct SubsystemConfig {
    ssd::NvmeDevice* device = nullptr;  ///< outlives the target
    std::string nqn;                    ///< empty: ssd_subsystem_nqn of the device's UUID
    std::string service;  ///< its own listener on the NIC, for example "ssd-0"; empty: reached by ports alone
    Reactor* drive_reactor =
        nullptr;  ///< woken when commands are submitted; null: the drive's thread polls for them
};

/// A listener for every subsystem of the target and its discovery controller; Connect names the subsystem.
struct PortConfig {
    std::string service;  ///< on the NIC, for example "4420"
    std::string address;  ///< its address in the discovery log; empty: the NIC's
};

/// Budgets that the connections of one NIC poller share (the udp wire has one poller); clients are served
/// round robin.
struct SharedBudgetOptions {
    /// The node's memory for payload in flight: payload that is copied out of capsules and, on wires that
    /// move packets, all other payload. Each subsystem has an equal share of at least 4 MiB, so that a drive
    /// that hangs does not take the others' memory; one client gets at most half of a share. Connections
    /// before Connect and discovery share another 4 MiB.
    std::uint64_t staging_bytes = 256u << 20;
    /// Assured to each connection in addition.
    std::uint64_t staging_assured_bytes = 64u << 10;
    /// Commands at one drive above which clients wait for one another. A client that is alone never waits.
    std::uint32_t places = 64;
};

struct TargetOptions {
    ControllerOptions controllers;
    std::vector<PortConfig> ports;
    Reactor* discovery_reactor =
        nullptr;  ///< serves discovery controllers; null: the first subsystem's drive_reactor
    std::uint32_t connections_max = 16384;
    /// Queue entries of all connections, admin and I/O; one peer gets at most half. An entry costs some 5 KB
    /// here, so this limits the memory that hosts can occupy. Connections beyond it are rejected with "no
    /// resources".
    std::uint32_t entries_max = 1u << 20;
    SharedBudgetOptions turns;
    std::uint32_t connect_timeout_ms =
        5000;  ///< longest time from the RDMA connection to a successful Connect
    std::uint32_t drain_timeout_ms =
        10000;  ///< how long the destructor waits for drives to answer their outstanding commands
    /// Which hosts are let in. Every queue of a host must authenticate before any other command, but for
    /// those of discovery controllers and of peers of the same user (rdma::PeerKind).
    /// Null: no host authenticates; a local process of another user is then refused as the admin host.
    std::shared_ptr<HostRegistry> hosts;
    auth::DhchapPolicy auth_policy;
    /// Longest time from a successful Connect to the end of authentication.
    std::uint32_t auth_timeout_ms = 10'000;
    /// Queues that may be authenticating at once, of all peers and of one: each costs a Diffie-Hellman
    /// exchange. One more ends the oldest of them.
    std::uint32_t authenticating_max = 256, authenticating_of_peer_max = 16;
    /// Where hosts authenticate: connections at once of peers of which none has proven a key, of all such peers
    /// and of one. One more ends the oldest of them. Together they get at most a quarter of entries_max, and
    /// one peer a sixteenth, before the oldest are ended.
    std::uint32_t strangers_max = 512, strangers_of_peer_max = 64;
    std::function<std::uint64_t()> now_ns;  ///< clock of keep-alives; empty: the monotonic clock
};

/// What a subsystem's connections did since the target was opened.
struct SubsystemCounters {
    std::uint64_t capsules;                                     ///< commands that arrived, of all kinds
    std::uint64_t reads, writes, flushes, trims, write_zeroes;  ///< passed to the drive
    std::uint64_t admin;                                        ///< admin and fabrics commands
    std::uint64_t refused;                        ///< answered with an error by the target itself
    std::uint64_t drive_errors;                   ///< answered with an error by the drive
    std::uint64_t malformed;                      ///< capsules that broke the rules of the transport
    std::uint64_t bytes_to_host, bytes_to_drive;  ///< of I/O commands taken to the drive
    std::uint64_t connections_accepted, connections_open;
    std::uint64_t connections_refused;  ///< requests that were rejected: bad parameters, or no resources
    std::uint64_t connections_failed;   ///< ended by a protocol violation or a time limit
    std::uint64_t
        connections_disconnected;      ///< ended otherwise: by the host, with its controller or the target
    std::uint64_t keep_alive_expired;  ///< controllers whose keep-alive time expired
    std::uint64_t waits_for_memory;    ///< commands that waited for staging memory
    std::uint64_t waits_for_turn;      ///< commands that waited because other clients wanted the drive, too
    std::uint64_t staged_writes;  ///< writes with payload in the capsule that was copied, not read in place
};

class Target {
  public:
    /// Listens on `nic` (outlives the target) for every subsystem.
    static Result<std::unique_ptr<Target>> open(rdma::SoftNic& nic,
                                                std::span<const SubsystemConfig> subsystems,
                                                TargetOptions options = {});
    /// Stops listening, fails every connection, waits (bounded) until the drives hold no commands, frees the
    /// queues.
    ~Target();
    Target(const Target&) = delete;
    Target& operator=(const Target&) = delete;

    /// Expires keep-alives and connections without a Connect now; the control thread does so every 50 ms.
    void check_time();

    /// Counters of the subsystem that has this NQN or this listener; of a port: of its connections that
    /// reached no subsystem.
    [[nodiscard]] Result<SubsystemCounters> counters(const std::string& name) const;
    [[nodiscard]] std::size_t subsystem_count() const;
    [[nodiscard]] const std::string& subsystem_nqn(std::size_t index) const;
    [[nodiscard]] std::size_t connections_open() const;

    struct Impl;

  private:
    explicit Target(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::nvmf
