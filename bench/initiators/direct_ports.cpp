// direct_ports.cpp: CPU threads that speak to the SSDs themselves: no central engine.
#include "bench/initiators/bed.hpp"
#include "bench/initiators/cpu_initiator.hpp"
#include "bench/initiators/polled_queues.hpp"

#include <algorithm>
#include <bit>

namespace gnstor::bench {
namespace {

class DirectPorts final : public PortFactory {
  public:
    DirectPorts(std::uint32_t depth, rdma::MemoryKeys buffers)
        : entries_(std::clamp(std::bit_ceil(depth), 8u, 1024u)), buffers_(buffers) {}

    Result<void> open(Bed& bed, const InitiatorOptions& options) {
        for (std::uint32_t i = 0; i < options.clients; ++i) {
            client::CreateVolume volume;
            volume.name = fmt::format("bench-{}", i);
            volume.capacity_bytes = options.volume_bytes;
            volume.replicas = options.replicas;
            GN_ASSIGN(std::unique_ptr<HostClient> client,
                      HostClient::open(bed.array().control(), bed.array().host_nic(),
                                       fmt::format("bench-client-{}", i), volume, 128, options.fua));
            clients_.push_back(std::move(client));
        }
        return {};
    }
    Result<std::unique_ptr<Port>> make(std::uint32_t client) override {
        GN_ASSIGN(std::unique_ptr<PolledQueues> queues,
                  PolledQueues::open(*clients_[client], entries_, buffers_));
        return std::unique_ptr<Port>(std::move(queues));
    }
    [[nodiscard]] nvme::VolumeId volume(std::uint32_t client) const override {
        return clients_[client]->record().geometry.volume;
    }
    [[nodiscard]] std::string describe() const override { return ", one doorbell per batch"; }

  private:
    const std::uint32_t entries_;
    const rdma::MemoryKeys buffers_;
    std::vector<std::unique_ptr<HostClient>> clients_;
};

}  // namespace

Result<std::unique_ptr<PortFactory>> make_direct_ports(Bed& bed, const InitiatorOptions& options,
                                                       rdma::MemoryKeys buffers) {
    auto ports = std::make_unique<DirectPorts>(options.depth, buffers);
    GN_TRY(ports->open(bed, options));
    return std::unique_ptr<PortFactory>(std::move(ports));
}

}  // namespace gnstor::bench
