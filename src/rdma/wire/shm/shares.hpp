// shares.hpp: quotas: how much of a node's resource (queue pairs, mappings, bytes) each of its clients
// may have.
//
// Invariants, with `clients` the largest number of clients
//   * each client can have its assured part at any time: all clients together have at most
//     total - clients * assured beyond their assured parts;
//   * no client has more than `most`.
// The threads of all clients use a Share: one atomic. A Portion belongs to one thread and returns all at
// its end; its Share must outlive it.
#pragma once

#include "rdma/wire/shm/shm_server.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace gnstor::rdma::shm {

class Share {
  public:
    /// `name`: of the resource, for errors: "queue pairs". Lowers values of `limit` that cannot be
    /// promised to all clients: `assured` to total / clients, `most` to what is left beyond the assured
    /// parts of the others.
    Share(const char* name, ShmLimit limit, std::uint32_t clients)
        : name_(name),
          assured_(std::min({limit.assured, limit.most, limit.total / std::max(clients, 1u)})),
          beyond_max_(limit.total - assured_ * std::max(clients, 1u)),
          most_(std::min(limit.most, assured_ + beyond_max_)) {}

    /// For a client that has `has`. kNoSpace: it would exceed `most`, or other clients have the rest.
    Result<void> take(std::uint64_t has, std::uint64_t more);
    void give(std::uint64_t has, std::uint64_t less) noexcept {
        beyond_.fetch_sub(beyond(has) - beyond(has - less), std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t assured() const noexcept { return assured_; }
    [[nodiscard]] std::uint64_t most() const noexcept { return most_; }

  private:
    [[nodiscard]] std::uint64_t beyond(std::uint64_t has) const noexcept {
        return has > assured_ ? has - assured_ : 0;
    }

    const char* const name_;
    const std::uint64_t assured_, beyond_max_, most_;
    std::atomic<std::uint64_t> beyond_{0};  ///< used beyond the assured parts; relaxed: orders nothing
};

/// What one client has of a Share.
class Portion {
  public:
    explicit Portion(Share& share) : share_(share) {}
    ~Portion() { give(held_); }
    Portion(const Portion&) = delete;
    Portion& operator=(const Portion&) = delete;

    Result<void> take(std::uint64_t more) {
        GN_TRY(share_.take(held_, more));
        held_ += more;
        return {};
    }
    void give(std::uint64_t less) noexcept {
        share_.give(held_, less);
        held_ -= less;
    }
    /// Keeps the amount taken for good: the client's end did not free it.
    void forfeit() noexcept { held_ = 0; }
    [[nodiscard]] std::uint64_t held() const noexcept { return held_; }

  private:
    Share& share_;
    std::uint64_t held_ = 0;
};

/// The quotas of one node.
struct Shares {
    Shares(const ShmLimits& limits, std::uint32_t clients);
    Share queue_pairs, completion_queues, send_entries, blocks, bytes;
};

}  // namespace gnstor::rdma::shm
