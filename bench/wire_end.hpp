// wire_end.hpp: one end of what `bench wire` moves bytes through: a queue pair of a NIC, its queues and the
// memory that it moves, registered for the other end. One host thread.
#pragma once

#include "rdma/nic/nic.hpp"
#include "rdma/nic/nic_memory.hpp"

#include <gnstor/rdma/poster.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace gnstor::bench::wire_bench {

inline constexpr char kService[] = "4420";

struct EndShape {
    std::uint32_t entries_log2 = 6;
    std::uint64_t bytes = 0;  ///< of memory to move
};

class End {
  public:
    static Result<std::unique_ptr<End>> create(rdma::Nic& nic, EndShape shape);
    ~End();
    End(const End&) = delete;
    End& operator=(const End&) = delete;

    [[nodiscard]] rdma::QpNumber qp() const { return qp_; }
    [[nodiscard]] const rdma::SendQueueRef& queue() const { return send_; }
    [[nodiscard]] std::span<std::byte> memory() const { return {block_.data(), bytes_}; }
    [[nodiscard]] std::uint32_t rkey() const { return keys_.rkey; }
    [[nodiscard]] rdma::mlx5::DataSegment local(std::size_t at, std::uint32_t bytes) const;

  private:
    explicit End(rdma::Nic& nic) : nic_(nic) {}

    rdma::Nic& nic_;
    std::size_t bytes_ = 0;
    rdma::NicMemory block_;  // payload, then queues
    std::unique_ptr<std::uint32_t[]> ready_;
    std::unique_ptr<rdma::SendQueueState> state_;
    rdma::MemoryKeys keys_{};
    rdma::CqNumber cq_ = 0;
    rdma::QpNumber qp_ = 0;
    rdma::SendQueueRef send_{};
};

/// Accepts with the one queue pair there is.
class Door final : public rdma::Listener {
  public:
    explicit Door(rdma::QpNumber qp) : qp_(qp) {}
    rdma::ConnectReply on_connect(const rdma::ConnectRequest& request) override;

  private:
    rdma::QpNumber qp_;
};

/// Words that follow from their place, so that a byte in the wrong one is seen.
void fill(std::span<std::byte> memory, std::uint64_t seed);
/// Places of `place_bytes` that hold what fill() puts there.
std::uint64_t count_good(std::span<const std::byte> memory, std::uint64_t seed, std::uint32_t place_bytes);

}  // namespace gnstor::bench::wire_bench
