// wire_pair.hpp: two NICs on one wire, a queue pair on each, connected, with registered memory: what `bench
// wire` moves bytes through. One host thread posts and waits.
#pragma once

#include "rdma/loop_wire.hpp"
#include "rdma/nic.hpp"
#include "rdma/nic_memory.hpp"
#include "rdma/shm_wire.hpp"
#include "rdma/udp_wire.hpp"

#include <gnstor/base/reactor.hpp>
#include <gnstor/rdma/poster.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gnstor::bench::wire_bench {

/// Queue memory of one end.
class End {
  public:
    static Result<std::unique_ptr<End>> create(rdma::SoftNic& nic, std::uint32_t entries_log2,
                                               std::size_t bytes);
    ~End();
    End(const End&) = delete;
    End& operator=(const End&) = delete;

    [[nodiscard]] rdma::QpNumber qp() const { return qp_; }
    [[nodiscard]] const rdma::SendQueueRef& queue() const { return send_; }
    [[nodiscard]] std::span<std::byte> memory() const { return {block_.data(), bytes_}; }
    [[nodiscard]] rdma::mlx5::DataSegment local(std::size_t at, std::uint32_t bytes) const;
    [[nodiscard]] rdma::mlx5::RemoteAddressSegment remote(std::size_t at) const;

  private:
    explicit End(rdma::SoftNic& nic) : nic_(nic) {}

    rdma::SoftNic& nic_;
    std::size_t bytes_ = 0;
    rdma::NicMemory block_;  // payload, then queues
    std::unique_ptr<std::uint32_t[]> ready_;
    std::unique_ptr<rdma::SendQueueState> state_;
    rdma::MemoryKeys keys_{};
    rdma::CqNumber cq_ = 0;
    rdma::QpNumber qp_ = 0;
    rdma::SendQueueRef send_{};
};

class Pair {
  public:
    /// `wire`: "loop", "shm" (this end is a client of the other's node; both in this process, each with a
    /// mapping of its own) or "udp". The two addresses and the port are the udp wire's.
    static Result<std::unique_ptr<Pair>> open(const std::string& wire, std::span<const std::string> addresses,
                                              std::uint16_t port, std::uint32_t mtu,
                                              std::uint32_t entries_log2, std::size_t bytes);
    ~Pair();
    [[nodiscard]] End& here() const { return *ends_[0]; }
    [[nodiscard]] End& there() const { return *ends_[1]; }
    /// CPU time of the threads that run the NICs.
    [[nodiscard]] double engine_seconds() const;
    [[nodiscard]] std::uint64_t retransmissions() const;
    [[nodiscard]] std::uint64_t overruns() const;
    [[nodiscard]] std::uint32_t mtu() const { return udp_[0] != nullptr ? udp_[0]->mtu() : 0; }

  private:
    Pair() = default;
    Result<void> become_client();

    // Destroyed from the last to the first.
    std::unique_ptr<Reactor> reactors_[2];
    rdma::LoopWire loop_;
    std::unique_ptr<rdma::UdpWire> udp_[2];
    std::unique_ptr<rdma::ShmServer> server_;
    std::unique_ptr<rdma::ShmWire> shm_;
    std::unique_ptr<rdma::SoftNic> nics_[2];
    std::unique_ptr<End> ends_[2];
};

}  // namespace gnstor::bench::wire_bench
