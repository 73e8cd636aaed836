// serve.hpp: a volume on the fabric: a gateway, the target in front of it, and its names.
//
// Any Linux host: nvme connect -t rdma -a ADDRESS -n <nqn>. Host threads that are no reactor's.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/client/client.hpp>

#include "gateway/gateway.hpp"
#include "nvmf/target.hpp"

#include <memory>
#include <string>

namespace gnstor::rdma {
class SoftNic;
}

namespace gnstor::gateway {

/// "nqn.2026-11.io.gnstor:volume:NAME"
std::string volume_subsystem_nqn(const std::string& volume);

struct ServeOptions {
    GatewayOptions gateway;
    std::string service;  ///< listener on the NIC: a port number on the udp wire; empty: "volume-NAME"
    std::string nqn;      ///< empty: volume_subsystem_nqn()
    nvmf::TargetOptions target;
};

class ServedVolume {
  public:
    /// Commands under way end; hosts are disconnected; the volume is released.
    ~ServedVolume();
    ServedVolume(const ServedVolume&) = delete;
    ServedVolume& operator=(const ServedVolume&) = delete;

    [[nodiscard]] Gateway& gateway() { return *gateway_; }
    [[nodiscard]] nvmf::Target& target() { return *target_; }
    [[nodiscard]] const std::string& nqn() const { return nqn_; }
    [[nodiscard]] const std::string& service() const { return service_; }

  private:
    friend Result<std::unique_ptr<ServedVolume>> serve(rdma::SoftNic& nic, client::Client& client,
                                                       const ServeOptions& options);
    ServedVolume() = default;
    std::string nqn_, service_;
    std::unique_ptr<Gateway> gateway_;
    std::unique_ptr<nvmf::Target> target_;  // goes first
};

/// Opens the volume by `client` and listens for hosts on `nic`; both outlive what comes back. The client's
/// own NIC may be the same.
Result<std::unique_ptr<ServedVolume>> serve(rdma::SoftNic& nic, client::Client& client,
                                            const ServeOptions& options);

}  // namespace gnstor::gateway
