// completion_queue.hpp: the NIC's side of a completion queue: a ring with owner bits, or one collapsed entry.
//
// Invariants
//   * completions are written in the order of `producer_`, each whole before its last word (a release), so
//   that whoever
//     acquires one has all before it;
//   * no entry is written before the consumer record shows that it was consumed: otherwise the queue has
//   overrun, and
//     every queue pair that completes into it goes to error;
//   * in a ring with tickets (tickets.hpp), which NICs of several processes fill, both hold of each entry by
//   itself: completions become valid in any order, and lanes take the valid prefix.
// Several engines may complete into one ring: each write holds a spin lock for a few stores, never across a
// wait. A collapsed queue belongs to one queue pair, so to one engine at a time, and needs none.
#pragma once

#include "rdma/nic/nic.hpp"
#include "rdma/nic/tickets.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

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

/// Whether a ring and its record are what a NIC takes.
[[nodiscard]] Result<void> check(const CompletionQueueConfig& config);
/// Marks all entries as never written, and nothing as consumed.
void prepare_ring(const CompletionQueueConfig& config);

class CompletionQueue {
  public:
    /// Prepares the ring, but one with tickets.
    explicit CompletionQueue(const CompletionQueueConfig& config);

    /// Any engine. False: the queue has overrun (now or before), and nothing was written.
    bool write(const CompletionFields& fields);
    /// A hint: the next entries will be written soon. Lanes touched them last. Any engine, without the lock.
    void prefetch(std::uint32_t count) const noexcept {
        // Relaxed: whichever entry another engine writes just now, a hint misses by one.
        if (taker_) return;  // where other processes are is not known without looking
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

    // Of a ring with tickets: by its owner, for queue pairs of a process that has ended.
    /// Writes `fields`, with its number, where such a queue pair took a place and never wrote. Returns whose
    /// those were.
    std::vector<QpNumber> complete_for(const std::function<bool(QpNumber)>& is_gone, CompletionFields fields);
    /// Completions of a queue pair that have not been consumed, as far as the record says.
    struct Waiting {
        std::uint32_t completions = 0, errors = 0;  ///< the latter are in both
    };
    [[nodiscard]] Waiting waiting_of(QpNumber qp) const;
    /// Whether lanes that look can see all completions of a queue pair that takes no places any more: nobody
    /// has taken a place before them and not written it yet.
    [[nodiscard]] bool is_settled(QpNumber qp) const;

    std::uint32_t affinity =
        0;  ///< of the queue pairs that receive through it (ConnectRequest); set at creation
    std::atomic<std::uint32_t> users{0};  ///< queue pairs that complete here; under the NIC's control mutex

  private:
    /// Entries written and, as far as is known, not consumed: 24 bits, as the record has them.
    [[nodiscard]] std::uint32_t behind() const noexcept {
        return (static_cast<std::uint32_t>(producer_.load(std::memory_order_relaxed)) - consumed_) &
               mlx5::kConsumerMask;
    }
    /// Where the next completion goes. Nothing: the queue has overrun. Under the lock.
    [[nodiscard]] std::optional<std::uint64_t> next_place(QpNumber qpn);
    /// What the entry's last word says that is of this position.
    [[nodiscard]] std::uint8_t owner_at(std::uint64_t position) const noexcept {
        return static_cast<std::uint8_t>((position >> entries_log2_) & 1);
    }
    /// Whether its entry holds the completion of this position.
    [[nodiscard]] bool is_written(std::uint64_t position) const;
    static void store(mlx5::Cqe64* cqe, std::uint8_t owner, const CompletionFields& fields);
    void lock() noexcept;
    void unlock() noexcept {
        if (!config_.collapsed) locked_.store(false, std::memory_order_release);
    }

    CompletionQueueConfig config_;
    std::uint32_t entries_log2_;
    std::atomic<std::uint64_t> producer_{0};  ///< written under the lock; relaxed, the lock orders it
    std::uint32_t consumed_ = 0;              ///< as last read of the consumer record
    std::optional<tickets::Taker> taker_;  ///< instead of those two, in a ring with tickets; under the lock
    std::atomic<bool> overrun_{false};
    std::atomic<bool> locked_{false};
};

}  // namespace gnstor::rdma
