// node.hpp: one storage node in this process: engine threads, its NIC, its SSDs and the target that joins
// them.
//
// Engine threads run the NICs' pollers and the drives; with one thread, everything shares it. Host threads
// only, no I/O passes through here.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/embedded_array.hpp>

#include "daemon/decisions/ssd_port.hpp"
#include "embedded/profile.hpp"
#include "nvmf/target/target.hpp"
#include "rdma/nic/nic.hpp"
#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/shm/shm_wire.hpp"
#include "rdma/wire/udp/udp_wire.hpp"
#include "ssd/drive/drive.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace gnstor::embedded {

/// The thread, of so many, that fetches a drive's commands and runs its first service unit; the others
/// follow. Units go round the threads, drive after drive. Where whole laps end with a drive the next lap
/// begins a thread further, or the same few threads would fetch for all drives.
constexpr std::size_t first_drive_thread(std::size_t drive, std::size_t units_a_drive, std::size_t threads) {
    const std::size_t drives_of_whole_laps = threads / std::gcd(units_a_drive, threads);
    return (drive * units_a_drive + drive / drives_of_whole_laps) % threads;
}

/// Where a node is on the udp wire.
struct UdpListen {
    std::string address;             ///< of this machine; port 4791 is taken there
    std::string port = "4420";       ///< RDMA service of all its SSDs, and of discovery
    std::filesystem::path shm = {};  ///< socket for processes of this machine (shm wire); empty: none
    std::uint32_t shm_mode = 0600;   ///< of the socket: who may connect
};

class Node {
  public:
    /// Opens the stores and starts serving at `address` on `wire`, which outlives the node. Each SSD has a
    /// service of its own.
    static Result<std::unique_ptr<Node>> open(const EmbeddedArrayOptions& options, rdma::LoopWire& wire,
                                              const std::string& address);
    /// The same for other processes and machines, on a udp wire of the node's own and, for processes of this
    /// machine, over shared memory: one NIC and one target, so both have the same limits, turns and
    /// controllers. Of the profile only the drives count: the network is there.
    static Result<std::unique_ptr<Node>> open(const EmbeddedArrayOptions& options, const UdpListen& listen);
    ~Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    /// Threads for NIC pollers: also those of the clients' NIC, so that both ends of a connection share a
    /// thread.
    [[nodiscard]] const std::vector<Reactor*>& nic_reactors() const { return nic_reactors_; }
    /// Threads that run the drives and their service units.
    [[nodiscard]] const std::vector<Reactor*>& drive_reactors() const { return drive_reactors_; }
    [[nodiscard]] const std::string& address() const { return address_; }
    [[nodiscard]] std::uint32_t ssd_count() const { return static_cast<std::uint32_t>(drives_.size()); }
    [[nodiscard]] const ssd::Drive& drive(std::uint32_t index) const { return *drives_[index]; }
    [[nodiscard]] const std::string& subsystem_nqn(std::uint32_t index) const {
        return target_->subsystem_nqn(index);
    }
    /// Of an SSD on the loop wire.
    [[nodiscard]] static std::string service(std::uint32_t index) { return "ssd-" + std::to_string(index); }
    /// As a daemon knows it: which incarnation it is, and where a host reaches it.
    [[nodiscard]] daemon::SsdIdentity identity(std::uint32_t index) const;
    /// Null on the loop wire.
    [[nodiscard]] const rdma::UdpWire* udp() const { return udp_.get(); }
    /// Whether processes of this machine reach it over shared memory (UdpListen::shm).
    [[nodiscard]] bool serves_shm() const { return shm_ != nullptr; }
    [[nodiscard]] EmbeddedSsd describe(std::uint32_t index) const;
    [[nodiscard]] std::vector<EngineThread> engine_threads() const;
    /// Of each SSD that was left out (EmbeddedArrayOptions::leave_out_damaged): which one, why, what to do.
    [[nodiscard]] const std::vector<std::string>& left_out() const { return left_out_; }

  private:
    explicit Node(std::string address) : address_(std::move(address)) {}
    Result<void> start_threads(const EmbeddedArrayOptions& options);
    /// Stores that are not there are made: all of them and served, or none.
    Result<void> open_drives(const EmbeddedArrayOptions& options);
    [[nodiscard]] ssd::DriveOptions drive_options(const EmbeddedArrayOptions& options,
                                                  std::uint32_t index) const;
    Result<void> make_stores(const EmbeddedArrayOptions& options,
                             std::vector<std::filesystem::path>& made) const;
    Result<void> serve_drives(const EmbeddedArrayOptions& options);
    Result<void> open_target();
    /// The drive thread that fetches a drive's commands; its service units follow from there.
    [[nodiscard]] std::size_t first_thread(std::uint32_t drive) const;

    // Destroyed from the last to the first: the target before the drives and the NIC, those before the
    // threads that run them.
    const std::string address_;
    Profile profile_;
    std::vector<std::unique_ptr<Reactor>> reactors_;
    std::vector<Reactor*> nic_reactors_;
    std::vector<Reactor*> drive_reactors_;
    std::uint32_t units_a_drive_ = 1;
    std::unique_ptr<rdma::UdpWire> udp_;
    std::unique_ptr<rdma::SoftNic> nic_;
    std::vector<std::unique_ptr<ssd::Drive>> drives_;  ///< without those that were left out
    std::vector<std::uint32_t> numbers_;               ///< of those, as in the names of their stores
    std::vector<std::string> left_out_;
    std::string port_;  ///< of a listener that leads to all; empty: each SSD has one of its own
    std::unique_ptr<nvmf::Target> target_;
    std::unique_ptr<rdma::ShmServer> shm_;
};

}  // namespace gnstor::embedded
