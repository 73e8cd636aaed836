// shares.hpp: how much of one thing of a node (queue pairs, mappings, bytes) each of its clients may have.
//
// Invariants, with `clients` the most clients there can be
//   * each client can have its assured part at any time, whatever others have: what clients have beyond
//     theirs is at most total - clients * assured, all of them together;
//   * nobody has more than `most`.
// A Share is asked from the threads of all clients: one atomic. A Portion belongs to one thread, and gives
// all back at its end; its Share outlives it.
#pragma once

#include "rdma/wire/shm/shm_wire.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace gnstor::rdma::shm {

class Share {
  public:
    /// `name`: of the things, in errors: "queue pairs". Of `limit`, what cannot be kept to all is less:
    /// `assured` where all clients together would get more than there is, `most` at what is left beyond.
    Share(const char* name, ShmLimit limit, std::uint32_t clients)
        : name_(name),
          assured_(std::min({limit.assured, limit.most, limit.total / std::max(clients, 1u)})),
          beyond_max_(limit.total - assured_ * std::max(clients, 1u)),
          most_(std::min(limit.most, assured_ + beyond_max_)) {}

    /// For a client that has `has`. kNoSpace: it has as many as one may have, or others have the rest.
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
    std::atomic<std::uint64_t> beyond_{0};  ///< of all clients; relaxed: a count that orders nothing
};

/// What one client has of it.
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
    /// It is never given back: the client's end did not free it.
    void forfeit() noexcept { held_ = 0; }
    [[nodiscard]] std::uint64_t held() const noexcept { return held_; }

  private:
    Share& share_;
    std::uint64_t held_ = 0;
};

/// All that is shared out.
struct Shares {
    Shares(const ShmLimits& limits, std::uint32_t clients);
    Share queue_pairs, completion_queues, send_entries, blocks, bytes;
};

}  // namespace gnstor::rdma::shm
