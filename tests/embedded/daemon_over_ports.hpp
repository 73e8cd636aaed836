// daemon_over_ports.hpp: gnstord's decisions over NVMe-oF ports to SSDs of other processes or nodes, with its
// records in memory; for tests.
#pragma once

#include "daemon/decisions/in_process.hpp"
#include "daemon/decisions/nvmf_ssd_port.hpp"
#include "daemon/records/records.hpp"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace gnstor::test {

/// Connects a port to the SSD of each slot, adds them to `ports`, which outlives the result, and starts the
/// daemon.
inline std::unique_ptr<daemon::InProcessControlPlane> start_daemon_over(
    rdma::Nic& nic, std::uint32_t slots, const std::function<daemon::SsdIdentity(std::uint32_t)>& identity,
    std::vector<std::unique_ptr<daemon::NvmfSsdPort>>& ports, daemon::InProcessOptions options = {}) {
    std::vector<daemon::SsdPort*> raw;
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
        ports.push_back(daemon::NvmfSsdPort::connect(nic, slot, identity(slot)).value());
        raw.push_back(ports.back().get());
    }
    return daemon::InProcessControlPlane::start(std::make_unique<daemon::MemoryRecordStore>(), std::move(raw),
                                                std::move(options))
        .value();
}

}  // namespace gnstor::test
