// node.hpp: one storage node in this process: engine threads, its NIC, its SSDs and the target that joins
// them.
//
// Engine threads run the NICs' pollers and the drives; a single thread runs both. Called from host threads
// only; no I/O passes through here.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/embedded_array.hpp>

#include "daemon/decisions/ssd_port.hpp"
#include "embedded/profile.hpp"
#include "nvmf/target/target.hpp"
#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "rdma/wire/shm/shm_server.hpp"
#include "rdma/wire/udp/udp_wire.hpp"
#include "ssd/drive/drive.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace gnstor::embedded {

/// Index of the thread, of `threads`, that fetches a drive's commands and runs its first service unit; its
/// other units run on the threads after it. Units are assigned round robin, drive after drive. When a round
/// ends exactly with a drive, the next round starts one thread later: without that, the same few threads
/// would fetch for all drives.
constexpr std::size_t first_drive_thread(std::size_t drive, std::size_t units_a_drive, std::size_t threads) {
    const std::size_t drives_of_whole_laps = threads / std::gcd(units_a_drive, threads);
    return (drive * units_a_drive + drive / drives_of_whole_laps) % threads;
}

/// Where a node is on the udp wire.
struct UdpListen {
    std::string address;             ///< IP address of this machine, on which UDP port 4791 is bound
    std::string port = "4420";       ///< RDMA service of all its SSDs, and of discovery
    std::filesystem::path shm = {};  ///< socket for processes of this machine (shm wire); empty: none
    std::uint32_t shm_mode = 0600;   ///< mode of the socket: which users may connect
    /// The hosts that may connect, and their keys. Hosts must authenticate over packets, and over shared
    /// memory if their process is of another user. Null: no host must authenticate.
    std::shared_ptr<nvmf::HostRegistry> hosts = {};
};

class Node {
  public:
    /// Opens the stores and serves the SSDs at `address` on `wire`, which outlives the node. Each SSD has its
    /// own RDMA service.
    static Result<std::unique_ptr<Node>> open(const EmbeddedArrayOptions& options, rdma::LoopWire& wire,
                                              const std::string& address);
    /// The same for other processes and machines: on the node's own udp wire and, for processes of this
    /// machine, over shared memory. Both use one NIC and one target, and so share limits, scheduling and
    /// controllers. Of the profile only the drives' timing is used, because the network is real.
    static Result<std::unique_ptr<Node>> open(const EmbeddedArrayOptions& options, const UdpListen& listen);
    ~Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    /// Threads of the NIC's pollers. The clients' NIC uses them too, so that both ends of a connection share
    /// a thread.
    [[nodiscard]] const std::vector<Reactor*>& nic_reactors() const { return nic_reactors_; }
    /// Threads that run the drives and their service units.
    [[nodiscard]] const std::vector<Reactor*>& drive_reactors() const { return drive_reactors_; }
    [[nodiscard]] const std::string& address() const { return address_; }
    [[nodiscard]] std::uint32_t ssd_count() const { return static_cast<std::uint32_t>(drives_.size()); }
    [[nodiscard]] const ssd::Drive& drive(std::uint32_t index) const { return *drives_[index]; }
    [[nodiscard]] const std::string& subsystem_nqn(std::uint32_t index) const {
        return target_->subsystem_nqn(index);
    }
    /// RDMA service of an SSD on the loop wire.
    [[nodiscard]] static std::string service(std::uint32_t index) { return "ssd-" + std::to_string(index); }
    /// The identity by which a daemon knows an SSD: its store's incarnation, and its address.
    [[nodiscard]] daemon::SsdIdentity identity(std::uint32_t index) const;
    /// Null on the loop wire.
    [[nodiscard]] const rdma::UdpWire* udp() const { return udp_.get(); }
    /// Whether processes of this machine reach it over shared memory (UdpListen::shm).
    [[nodiscard]] bool serves_shm() const { return shm_ != nullptr; }
    [[nodiscard]] EmbeddedSsd describe(std::uint32_t index) const;
    [[nodiscard]] std::vector<EngineThread> engine_threads() const;
    /// One line per SSD that was left out (EmbeddedArrayOptions::leave_out_damaged): which one, why, what to
    /// do.
    [[nodiscard]] const std::vector<std::string>& left_out() const { return left_out_; }

  private:
    explicit Node(std::string address) : address_(std::move(address)) {}
    Result<void> start_threads(const EmbeddedArrayOptions& options);
    /// Creates missing stores and serves all SSDs; after an error, removes the stores that it created.
    Result<void> open_drives(const EmbeddedArrayOptions& options);
    [[nodiscard]] ssd::DriveOptions drive_options(const EmbeddedArrayOptions& options,
                                                  std::uint32_t index) const;
    Result<void> make_stores(const EmbeddedArrayOptions& options,
                             std::vector<std::filesystem::path>& made) const;
    Result<void> serve_drives(const EmbeddedArrayOptions& options);
    Result<void> open_target(std::shared_ptr<nvmf::HostRegistry> hosts = nullptr);
    /// Index of the drive thread that fetches a drive's commands; its service units follow from there.
    [[nodiscard]] std::size_t first_thread(std::uint32_t drive) const;

    // Members are destroyed from last to first: the target before the drives and the NIC, those before the
    // threads that run them.
    const std::string address_;
    Profile profile_;
    std::vector<std::unique_ptr<Reactor>> reactors_;
    std::vector<Reactor*> nic_reactors_;
    std::vector<Reactor*> drive_reactors_;
    std::uint32_t units_a_drive_ = 1;
    std::unique_ptr<rdma::UdpWire> udp_;
    std::unique_ptr<rdma::SoftNic> nic_;
    std::vector<std::unique_ptr<ssd::Drive>> drives_;  ///< without the SSDs that were left out
    std::vector<std::uint32_t> numbers_;               ///< number of each of drives_, as in its store's name
    std::vector<std::string> left_out_;
    std::string port_;  ///< RDMA service that all SSDs share; empty: each SSD has its own
    std::unique_ptr<nvmf::Target> target_;
    std::unique_ptr<rdma::ShmServer> shm_;
};

}  // namespace gnstor::embedded
