// serve.hpp: volumes on the fabric: a gateway each, and the target in front of them, behind one port.
//
// Any Linux host: nvme discover -t rdma -a ADDRESS -s PORT, then nvme connect with the name that this shows.
// Host threads that are no reactor's.
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

/// "nqn.2026-11.io.gnstor:volume:NAME"
std::string volume_subsystem_nqn(const std::string& volume);

struct VolumeToServe {
    client::Client* client = nullptr;  ///< of this gateway alone (client_options()); outlives what serves it
    GatewayOptions options;
    std::string nqn;  ///< empty: volume_subsystem_nqn()
};

/// Of a gateway's target: queue entries of all hosts, half of them of one, at up to 11 KB each. A Linux host
/// asks for a queue of 128 entries a processor: it is granted no more queues than a few volumes' fit for, as
/// a queue that is refused fails its Connect as a whole.
inline constexpr std::uint32_t kEntriesMost = 1u << 15;
inline constexpr std::uint32_t kQueuesMost = 32;
inline nvmf::TargetOptions target_options() {
    nvmf::TargetOptions options;
    options.entries_max = kEntriesMost;
    options.controllers.queues.io_queues_max = kQueuesMost;
    return options;
}

struct ServeOptions {
    /// Where hosts connect, for all volumes and for discovery: a port number on the udp wire, on others any
    /// name. Used where `target` names no ports.
    std::string port = "4420";
    nvmf::TargetOptions target = target_options();
};

class ServedVolumes {
  public:
    /// Commands under way end; hosts are disconnected; the volumes are released.
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
    std::unique_ptr<nvmf::Target> target_;  // goes first
};

/// Opens the volumes, each by its client, and listens for hosts on `nic`, which outlives what comes back. It
/// may be the clients' own.
Result<std::unique_ptr<ServedVolumes>> serve(rdma::SoftNic& nic, std::span<const VolumeToServe> volumes,
                                             ServeOptions options = {});

}  // namespace gnstor::gateway
