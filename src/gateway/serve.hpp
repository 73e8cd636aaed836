// serve.hpp: serves volumes on the fabric: one gateway each, and one target in front of them, on one port.
//
// On any Linux host: nvme discover -t rdma -a ADDRESS -s PORT, then nvme connect with the NQN that this
// shows. Call from host threads that are not a reactor's.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/client/client.hpp>

#include "gateway/gateway.hpp"
#include "nvmf/target/target.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gnstor::rdma {
class SoftNic;
}

namespace gnstor::gateway {

struct VolumeToServe {
    /// Used by this gateway only (client_options()); outlives ServedVolumes.
    client::Client* client = nullptr;
    GatewayOptions options;
    std::string nqn;  ///< empty: nvmf::volume_subsystem_nqn()
};

/// Limits of a gateway's target. Queue entries of all hosts, at most half of them of one host, take up to 11
/// KB each. A Linux host asks for one queue of 128 entries per processor. The number of queues is limited so
/// that a few volumes' queues fit: a queue that is refused later fails the whole Connect.
inline constexpr std::uint32_t kEntriesMost = 1u << 15;
inline constexpr std::uint32_t kQueuesMost = 32;
inline nvmf::TargetOptions target_options() {
    nvmf::TargetOptions options;
    options.entries_max = kEntriesMost;
    options.controllers.queues.io_queues_max = kQueuesMost;
    return options;
}

struct ServeOptions {
    /// Where hosts connect, for all volumes and for discovery: a port number on the udp wire, any name on
    /// others. Ignored if `target` names ports.
    std::string port = "4420";
    nvmf::TargetOptions target = target_options();
};

class ServedVolumes {
  public:
    /// Ends commands in flight, disconnects the hosts, releases the volumes.
    ~ServedVolumes();
    ServedVolumes(const ServedVolumes&) = delete;
    ServedVolumes& operator=(const ServedVolumes&) = delete;

    [[nodiscard]] std::size_t size() const { return gateways_.size(); }
    [[nodiscard]] Gateway& gateway(std::size_t index) { return *gateways_.at(index); }
    [[nodiscard]] const std::string& nqn(std::size_t index) const { return target_->subsystem_nqn(index); }
    [[nodiscard]] nvmf::Target& target() { return *target_; }

  private:
    friend Result<std::unique_ptr<ServedVolumes>> serve(rdma::SoftNic& nic,
                                                        std::span<const VolumeToServe> volumes,
                                                        ServeOptions options);
    ServedVolumes() = default;
    std::vector<std::unique_ptr<Gateway>> gateways_;
    std::unique_ptr<nvmf::Target> target_;  // destroyed first
};

/// Opens each volume with its client, and listens for hosts on `nic`, which must outlive the result and may
/// be the clients' own.
Result<std::unique_ptr<ServedVolumes>> serve(rdma::SoftNic& nic, std::span<const VolumeToServe> volumes,
                                             ServeOptions options = {});

}  // namespace gnstor::gateway
