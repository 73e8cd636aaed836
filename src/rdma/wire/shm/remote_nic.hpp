// remote_nic.hpp: SoftNic's calls on the shm wire, where all that they are about is another process's: one
// node's (client.hpp) or several ones' (nodes.hpp). As nic.hpp says of each. Any host thread.
#pragma once

#include "rdma/nic/nic.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gnstor::rdma::shm {

class RemoteNic {
  public:
    virtual ~RemoteNic() = default;
    virtual Result<void> share(void* base, std::size_t bytes, int file, std::size_t offset) = 0;
    virtual Result<void> unshare(void* base) = 0;
    virtual Result<MemoryKeys> register_memory(void* base, std::size_t bytes, std::uint32_t access) = 0;
    virtual Result<void> deregister_memory(MemoryKeys keys) = 0;
    virtual Result<CqNumber> create_ring(const CompletionQueueConfig& config) = 0;
    virtual Result<void> destroy_ring(CqNumber cq) = 0;
    virtual Result<QpNumber> create_queue_pair(const QueuePairConfig& config) = 0;
    virtual Result<void> destroy_queue_pair(QpNumber qp) = 0;
    virtual Result<void> reset(QpNumber qp) = 0;
    virtual Result<std::vector<std::byte>> connect_queue_pair(QpNumber qp, const std::string& peer_address,
                                                              const std::string& service,
                                                              std::span<const std::byte> private_data,
                                                              std::uint32_t timeout_ms) = 0;
    virtual void disconnect(QpNumber qp) = 0;
    virtual QpState state(QpNumber qp) = 0;
    virtual NicCounters counters() = 0;
    virtual void keep(std::shared_ptr<void> memory) = 0;
    [[nodiscard]] virtual const std::string& address() const = 0;
};

}  // namespace gnstor::rdma::shm
