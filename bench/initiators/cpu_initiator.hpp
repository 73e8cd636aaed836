// cpu_initiator.hpp: initiators whose requests CPU threads issue: strong-cpu, gd-deengine, gd, basic. Host,
// one thread; it starts the others.
//
// Owns landing memory, mailboxes, bitmaps and the ports; how a port reaches the array is the factory's
// business (direct_ports.cpp, central_ports.cpp).
#pragma once

#include "bench/initiators/cpu_stream.hpp"
#include "bench/initiators/initiator.hpp"
#include "rdma/nic/nic.hpp"

#include <memory>
#include <vector>

namespace gnstor::bench {

/// Makes ports of one kind of path. Owns what they stand on; ports are gone before it.
class PortFactory {
  public:
    virtual ~PortFactory() = default;
    virtual Result<std::unique_ptr<Port>> make(std::uint32_t client) = 0;
    [[nodiscard]] virtual nvme::VolumeId volume(std::uint32_t client) const = 0;
    [[nodiscard]] virtual std::string describe() const = 0;
    /// Before and after each run: threads behind the ports that run only meanwhile.
    virtual Result<void> start() { return {}; }
    virtual Result<void> stop() { return {}; }
    /// Of the last run: what threads behind the ports did. Ports count their own commands.
    virtual void add_to(Outcome& /*out*/) const {}
};

/// Queue pairs from each thread to every SSD.
Result<std::unique_ptr<PortFactory>> make_direct_ports(Bed& bed, const InitiatorOptions& options,
                                                       rdma::MemoryKeys buffers);
/// Rings to a central array engine, whose threads have queue pairs to every SSD.
Result<std::unique_ptr<PortFactory>> make_central_ports(Bed& bed, const InitiatorOptions& options,
                                                        rdma::MemoryKeys buffers);

Result<std::unique_ptr<Initiator>> make_cpu_initiator(Bed& bed, const InitiatorOptions& options,
                                                      std::unique_ptr<LoadLanes> lanes);
Result<std::unique_ptr<Initiator>> make_lane_initiator(Bed& bed, const InitiatorOptions& options,
                                                       std::unique_ptr<LoadLanes> lanes);

}  // namespace gnstor::bench
