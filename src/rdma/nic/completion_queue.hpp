// completion_queue.hpp: the NIC's side of a completion queue: a ring with owner bits, or one collapsed entry.
//
// Invariants
//   * completions are written in the order of `producer_`, the last word of each last (a release), so
//     that a lane that acquires one sees all before it;
//   * no entry is written before the consumer record shows that it was consumed: otherwise the queue has
//     overrun, and every queue pair that completes into it goes to error;
//   * in a ring with tickets (tickets.hpp), which NICs of several processes fill, both hold for each
//     entry separately: completions become valid in any order, and lanes take the valid prefix.
// Several engines may complete into one ring: each write holds a spin lock for a few stores, never across
// a wait. A collapsed queue belongs to one queue pair, so to one engine at a time, and needs no lock.
#pragma once

#include "rdma/nic/nic.hpp"
#include "rdma/nic/tickets.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace gnstor::rdma {

/// Fields of a completion. `inline_data` is null or points to `bytes` (at most 32) bytes.
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

/// kInvalidArgument unless alignment, size and record of the ring are valid.
[[nodiscard]] Result<void> check(const CompletionQueueConfig& config);
/// Marks all entries as never written; nothing is consumed.
void prepare_ring(const CompletionQueueConfig& config);

class CompletionQueue {
  public:
    /// Prepares the ring, unless it has tickets: then its owner has prepared it.
    explicit CompletionQueue(const CompletionQueueConfig& config);

    /// Any engine. False: the queue has overrun (now or before), and nothing was written.
    bool write(const CompletionFields& fields);
    /// A hint that the next `count` entries will be written soon; lanes touched their lines last. Any
    /// engine, without the lock.
    void prefetch(std::uint32_t count) const noexcept {
        // Relaxed: if another engine writes meanwhile, the hint misses by one entry.
        if (taker_) return;  // the position depends on other processes: finding it would cost a read
        const std::uint64_t next = producer_.load(std::memory_order_relaxed);
        for (std::uint32_t i = 0; i < count; ++i)
            __builtin_prefetch(&config_.ring[(next + i) & (config_.entries - 1)], 1);
    }
    [[nodiscard]] bool overrun() const noexcept { return overrun_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool collapsed() const noexcept { return config_.collapsed; }
    [[nodiscard]] std::uint32_t entries() const noexcept { return config_.entries; }
    [[nodiscard]] RingUse use() const noexcept { return config_.use; }
    /// Marks a collapsed entry as never written, for a queue pair that is connected again.
    void restart_collapsed();

    // For the owner of a ring with tickets, about queue pairs of a process that has ended.
    /// Writes `fields`, with the queue pair's number, at each position that a queue pair with `is_gone`
    /// took and never wrote. Returns the queue pair number of each.
    std::vector<QpNumber> complete_for(const std::function<bool(QpNumber)>& is_gone, CompletionFields fields);
    /// Completions of a queue pair that were not consumed, by the consumer record.
    struct Waiting {
        std::uint32_t completions = 0, errors = 0;  ///< `completions` includes the errors
    };
    [[nodiscard]] Waiting waiting_of(QpNumber qp) const;
    /// Whether lanes can reach all completions of a queue pair that takes no more positions: every
    /// position before its newest one is written.
    [[nodiscard]] bool is_settled(QpNumber qp) const;

    std::uint32_t affinity = 0;  ///< set at creation; of the queue pairs that receive here (ConnectRequest)
    std::atomic<std::uint32_t> users{0};  ///< queue pairs that complete here; under the NIC's control mutex

  private:
    /// Entries written and not known to be consumed: 24 bits, as in the record.
    [[nodiscard]] std::uint32_t behind() const noexcept {
        return (static_cast<std::uint32_t>(producer_.load(std::memory_order_relaxed)) - consumed_) &
               mlx5::kConsumerMask;
    }
    /// Position of the next completion. nullopt: the queue has overrun. Under the lock.
    [[nodiscard]] std::optional<std::uint64_t> next_place(QpNumber qpn);
    /// The owner bit of a completion at this position.
    [[nodiscard]] std::uint8_t owner_at(std::uint64_t position) const noexcept {
        return static_cast<std::uint8_t>((position >> entries_log2_) & 1);
    }
    /// Whether the entry holds the completion of this position.
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
    std::optional<tickets::Taker> taker_;  ///< replaces the two above in a ring with tickets; under the lock
    std::atomic<bool> overrun_{false};
    std::atomic<bool> locked_{false};
};

}  // namespace gnstor::rdma
