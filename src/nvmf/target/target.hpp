// target.hpp: the NVMe over RDMA target of one node: takes capsules from the NIC to the drives' own queues,
// and back.
//
// One subsystem a drive. A subsystem may have a listener of its own; a port (TargetOptions) leads to all of
// them, by the name that Connect carries. The data path (connection.hpp) runs on the NIC's pollers
// without locks or allocation; connecting, keep-alive expiry and clearing up run on one control thread of the
// Target. No array software looks at an I/O command here: permission, placement and epoch are the drive's to
// check.
//
// Threads: open, counters, check_time and the destructor from any host thread that is no reactor's. NVMe
// Base 2.0, 3.1.1 (dynamic controllers), 6 (fabrics); NVMe RDMA Transport 1.0.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>

#include "nvmf/target/controllers.hpp"
#include "rdma/nic/nic.hpp"
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
    std::string service;  ///< its own listener on the NIC, for example "ssd-0"; empty: ports alone lead to it
    Reactor* drive_reactor =
        nullptr;  ///< woken when commands are submitted; null: the drive's thread finds them by itself
};

/// A listener that leads to every subsystem of the target, and to its discovery controller: Connect names it.
struct PortConfig {
    std::string service;  ///< on the NIC, for example "4420"
    std::string address;  ///< what the discovery log says of it; empty: the NIC's
};

/// What the connections of one poller of the NIC share (the udp wire has one poller); clients take turns.
struct TurnOptions {
    /// Memory for what commands have under way where it has to be the node's own: payload that is copied out
    /// of capsules, and on wires that move packets all other payload. Each subsystem has an equal share, of
    /// 4 MiB at least, so that a drive that hangs keeps no other's; one client has at most half of a share.
    /// 4 MiB more are for connections before Connect, and for discovery.
    std::uint64_t staging_bytes = 256u << 20;
    /// And of each connection's own.
    std::uint64_t staging_assured_bytes = 64u << 10;
    /// Commands at one drive from which on clients wait for one another. One that is alone never waits.
    std::uint32_t places = 64;
};

struct TargetOptions {
    ControllerOptions controllers;
    std::vector<PortConfig> ports;
    Reactor* discovery_reactor =
        nullptr;  ///< where discovery controllers are served; null: on the first subsystem's drive_reactor
    std::uint32_t connections_max = 16384;
    /// Of the queues of all connections, admin and I/O; half of them of one peer at most. An entry costs
    /// some 5 KB here, so they bound what hosts may have of this machine's memory. Connections beyond that
    /// are rejected with "no resources".
    std::uint32_t entries_max = 1u << 20;
    TurnOptions turns;
    std::uint32_t connect_timeout_ms =
        5000;  ///< from the RDMA connection to a successful Connect; then it is failed
    std::uint32_t drain_timeout_ms =
        10000;  ///< how long the destructor waits for drives to answer what they hold
    std::function<std::uint64_t()> now_ns;  ///< clock of keep-alives; empty: the monotonic clock
};

/// What a subsystem's connections did since the target was opened.
struct SubsystemCounters {
    std::uint64_t capsules;                                     ///< commands that arrived, of all kinds
    std::uint64_t reads, writes, flushes, trims, write_zeroes;  ///< taken to the drive
    std::uint64_t admin;                                        ///< admin and fabrics commands
    std::uint64_t refused;                        ///< answered with an error by the target itself
    std::uint64_t drive_errors;                   ///< answered with an error by the drive
    std::uint64_t malformed;                      ///< capsules that broke the rules of the transport
    std::uint64_t bytes_to_host, bytes_to_drive;  ///< of I/O commands taken to the drive
    std::uint64_t connections_accepted, connections_open;
    std::uint64_t connections_refused;  ///< requests that were rejected: what they ask for, or no room
    std::uint64_t connections_failed;   ///< ended for a broken rule or time limit: capsules, Connect, silence
    std::uint64_t
        connections_disconnected;      ///< ended otherwise: by the host, with its controller or the target
    std::uint64_t keep_alive_expired;  ///< controllers
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
    /// Stops listening, fails every connection, waits (bounded) until the drives have let go, frees the
    /// queues.
    ~Target();
    Target(const Target&) = delete;
    Target& operator=(const Target&) = delete;

    /// Looks at the clock now (it is looked at every 50 ms anyway): expires keep-alives and connections that
    /// never connected.
    void check_time();

    /// Of the subsystem that has this name or this listener. A port's: its connections that reached none.
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
