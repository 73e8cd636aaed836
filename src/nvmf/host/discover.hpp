// discover.hpp: asks a discovery controller which subsystems there are and where: the host's side of the
// discovery log page. NVMe Base 2.0, 3.1.2.3, 5.16.1.23. Any thread except a reactor's; every wait has a
// deadline.
#pragma once

#include <gnstor/base/result.hpp>

#include "rdma/nic/nic.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gnstor::nvmf {

struct DiscoveredSubsystem {
    std::string nqn;
    std::string address;  ///< IP address
    std::string service;  ///< decimal port
};

/// NVM subsystems that are reached by RDMA, in the order of the log. `timeout_ms`: deadline of connecting,
/// and of each command.
Result<std::vector<DiscoveredSubsystem>> discover(rdma::Nic& nic, const std::string& address,
                                                  const std::string& service, std::uint32_t timeout_ms);

/// Parses a log page; `peer` names its sender in errors. kCorrupt for a page that breaks the format. Pure.
Result<std::vector<DiscoveredSubsystem>> read_discovery_log(std::span<const std::byte> page,
                                                            const std::string& peer);

}  // namespace gnstor::nvmf
