// completion_queue.hpp: the NIC's side of a completion queue: a ring with owner bits, or one collapsed entry.
//
// Invariants
//   * completions are written in the order of `producer_`, each whole before its last word (a release), so
//   that whoever
//     acquires one has all before it;
//   * no entry is written before the consumer record shows that it was consumed: otherwise the queue has
//   overrun, and
//     every queue pair that completes into it goes to error.
// Several engines may complete into one queue: each write holds a spin lock for a few stores, never across a
// wait.
#pragma once

#include "rdma/nic.hpp"

#include <atomic>
#include <cstdint>

namespace gnstor::rdma {

/// What a completion says. `inline_data` is null or points to `bytes` (at most 32) bytes.
struct CompletionFields {
    std::uint32_t qpn = 0;
    std::uint16_t wqe_counter = 0;
    std::uint8_t opcode = mlx5::kCqeRequest;
    std::uint8_t syndrome = mlx5::kSyndromeNone;
    std::uint8_t send_opcode = 0;
    std::uint32_t bytes = 0;
    std::uint32_t invalidated_rkey = 0;
    const std::byte* inline_data = nullptr;
};

class CompletionQueue {
  public:
    explicit CompletionQueue(const CompletionQueueConfig& config);

    /// Any engine. False: the queue has overrun (now or before), and nothing was written.
    bool write(const CompletionFields& fields);
    [[nodiscard]] bool overrun() const noexcept { return overrun_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool collapsed() const noexcept { return config_.collapsed; }
    /// Marks a collapsed entry as never written, for a queue pair that starts anew.
    void restart_collapsed();

    std::uint32_t affinity =
        0;  ///< of the queue pairs that receive through it (ConnectRequest); set at creation
    std::atomic<std::uint32_t> users{0};  ///< queue pairs that complete here; under the NIC's control mutex

  private:
    void lock() noexcept;
    void unlock() noexcept { locked_.store(false, std::memory_order_release); }

    CompletionQueueConfig config_;
    std::uint32_t entries_log2_;
    std::uint64_t producer_ = 0;
    std::atomic<bool> overrun_{false};
    std::atomic<bool> locked_{false};
};

}  // namespace gnstor::rdma
