// completion_queue.hpp: the NIC's side of a completion queue: a ring with owner bits, or one collapsed entry.
//
// Invariants
//   * completions are written in the order of `producer_`, each whole before its last word (a release), so
//   that whoever
//     acquires one has all before it;
//   * no entry is written before the consumer record shows that it was consumed: otherwise the queue has
//   overrun, and
//     every queue pair that completes into it goes to error.
// Several engines may complete into one ring: each write holds a spin lock for a few stores, never across a
// wait. A collapsed queue belongs to one queue pair, so to one engine at a time, and needs none.
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
    /// A hint: the next entries will be written soon. Lanes touched them last. Any engine, without the lock.
    void prefetch(std::uint32_t count) const noexcept {
        // Relaxed: whichever entry another engine writes just now, a hint misses by one.
        const std::uint64_t next = producer_.load(std::memory_order_relaxed);
        for (std::uint32_t i = 0; i < count; ++i)
            __builtin_prefetch(&config_.ring[(next + i) & (config_.entries - 1)], 1);
    }
    [[nodiscard]] bool overrun() const noexcept { return overrun_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool collapsed() const noexcept { return config_.collapsed; }
    [[nodiscard]] std::uint32_t entries() const noexcept { return config_.entries; }
    [[nodiscard]] RingUse use() const noexcept { return config_.use; }
    /// Marks a collapsed entry as never written, for a queue pair that starts anew.
    void restart_collapsed();

    std::uint32_t affinity =
        0;  ///< of the queue pairs that receive through it (ConnectRequest); set at creation
    std::atomic<std::uint32_t> users{0};  ///< queue pairs that complete here; under the NIC's control mutex

  private:
    /// Entries written and, as far as is known, not consumed: 24 bits, as the record has them.
    [[nodiscard]] std::uint32_t behind() const noexcept {
        return (static_cast<std::uint32_t>(producer_.load(std::memory_order_relaxed)) - consumed_) &
               mlx5::kConsumerMask;
    }
    void lock() noexcept;
    void unlock() noexcept {
        if (!config_.collapsed) locked_.store(false, std::memory_order_release);
    }

    CompletionQueueConfig config_;
    std::uint32_t entries_log2_;
    std::atomic<std::uint64_t> producer_{0};  ///< written under the lock; relaxed, the lock orders it
    std::uint32_t consumed_ = 0;              ///< as last read of the consumer record
    std::atomic<bool> overrun_{false};
    std::atomic<bool> locked_{false};
};

}  // namespace gnstor::rdma
