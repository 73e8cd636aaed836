// tickets.hpp: positions in a completion ring that several processes fill: which queue pair took which.
//
// One word per ring entry, in memory of the ring's owner: the newest position taken at that entry (40
// bits) and the queue pair whose completion goes there (24 bits). Processes take positions in order, each
// by one compare-and-exchange; the winner alone writes the completion. So no process waits for another.
// If a process ends after it took a position and before it wrote, the ticket says which completion is
// missing: the ring's owner writes it (CompletionQueue::complete_for).
//
// Invariants, unless a process corrupts the words
//   * position p is taken only after p - 1 was, and after the completion of p - entries was consumed;
//   * so the tickets alone tell the next position, also to a process that attaches later.
// The words are not trusted: whatever they contain, Taker ends after a bounded number of steps, which
// does not grow with the ring.
#pragma once

#include <gnstor/rdma/mlx5.hpp>
#include <gnstor/simt/atomic.hpp>

#include <cstdint>

namespace gnstor::rdma::tickets {

inline constexpr std::uint32_t kQpnBits = 24;
inline constexpr std::uint32_t kPositionBits = 64 - kQpnBits;
inline constexpr std::uint64_t kPositionMask = (std::uint64_t{1} << kPositionBits) - 1;

constexpr std::uint64_t make(std::uint64_t position, std::uint32_t qpn) noexcept {
    return (position << kQpnBits) | (qpn & ((1u << kQpnBits) - 1));
}
constexpr std::uint32_t qpn_of(std::uint64_t ticket) noexcept {
    return static_cast<std::uint32_t>(ticket & ((1u << kQpnBits) - 1));
}
constexpr std::uint64_t position_of(std::uint64_t ticket) noexcept {
    return ticket >> kQpnBits;
}
/// Distance from `position` to the ticket's position (negative: the ticket is older), modulo 2^40, the
/// shorter way.
constexpr std::int64_t ahead_of(std::uint64_t ticket, std::uint64_t position) noexcept {
    const std::uint64_t apart = (position_of(ticket) - position) & kPositionMask;
    return static_cast<std::int64_t>(apart << kQpnBits) >> kQpnBits;
}

/// By the ring's owner, before any other process knows the words: no position is taken.
inline void prepare(std::uint64_t* words, std::uint32_t entries) noexcept {
    for (std::uint32_t i = 0; i < entries; ++i)
        simt::store_release<simt::Scope::kSystem>(words + i,
                                                  make(std::uint64_t{i} - std::uint64_t{entries}, 0));
}

/// One process's view of a ring's tickets. One thread at a time.
class Taker {
  public:
    Taker(std::uint64_t* words, std::uint32_t entries, const std::uint32_t* consumer_record) noexcept
        : words_(words), mask_(entries - 1), record_(consumer_record) {
        find_front();
    }

    enum class Outcome : std::uint8_t { kTaken, kFull, kScribbled };
    /// Takes the next position for a completion of `qpn`. kFull: the entry's earlier completion is not
    /// consumed yet. kScribbled: the words make no sense.
    Outcome take(std::uint32_t qpn, std::uint64_t& position) noexcept {
        // Far more tries than correct processes can ever make necessary.
        std::uint32_t searches = kSearches, passed = 0, to_search = kStepsToSearch;
        for (std::uint32_t steps = kSteps; steps != 0 && searches != 0; --steps) {
            std::uint64_t* const word = words_ + (front_ & mask_);
            // Acquire: the process that took this position saw earlier completions consumed.
            const std::uint64_t seen = simt::load_acquire<simt::Scope::kSystem>(word);
            const std::int64_t ahead = ahead_of(seen, front_);
            if (ahead >= 0) {  // another process took it, or even a later lap's position
                front_ += static_cast<std::uint64_t>(ahead) + 1;
                // Search, at doubling intervals: while many others take positions, a search may find the
                // front too late again.
                if (++passed == to_search) {
                    find_front();
                    passed = 0;
                    to_search *= 2;
                }
                continue;
            }
            if (ahead !=
                -static_cast<std::int64_t>(mask_) - 1) {  // idle for 2^39 completions, or words corrupted
                find_front();
                --searches;
                continue;
            }
            if (!has_room()) {
                look_at_consumer();
                // Others may have taken positions before the record was read, and the consumer may have
                // passed `front_`.
                if (simt::load_acquire<simt::Scope::kSystem>(word) != seen) continue;
                if (!has_room()) return Outcome::kFull;
            }
            // The winner writes the completion; has_room() acquired the consumer's release of the entry.
            if (simt::compare_exchange<simt::Scope::kSystem>(word, seen, make(front_, qpn)) == seen) {
                position = front_++;
                return Outcome::kTaken;
            }
        }
        return Outcome::kScribbled;
    }

  private:
    static constexpr std::uint32_t kSteps = 4096, kSearches = 64;
    static constexpr std::uint32_t kStepsToSearch = 16;  ///< single steps before a search

    /// Binary search: words before the front are of the newest lap, the others of the lap before.
    void find_front() noexcept {
        const std::uint64_t first = position_of(simt::load_acquire<simt::Scope::kSystem>(words_));
        std::uint64_t low = 1, high = mask_ + 1;
        while (low < high) {
            const std::uint64_t middle = low + (high - low) / 2;
            const std::uint64_t seen = simt::load_acquire<simt::Scope::kSystem>(words_ + middle);
            if (ahead_of(seen, first + middle) >= 0)
                low = middle + 1;
            else
                high = middle;
        }
        front_ = (first + low) & kPositionMask;
        consumed_ = front_ - mask_ - 1;  // as if full, so that the record is read first
    }
    [[nodiscard]] bool has_room() const noexcept { return front_ - consumed_ <= mask_; }
    void look_at_consumer() noexcept {
        // Acquire: pairs with the consumer's release: it has read (and poisoned) the entries that it gave
        // back.
        const std::uint32_t record = be32(simt::load_acquire<simt::Scope::kSystem>(record_));
        consumed_ = front_ - ((static_cast<std::uint32_t>(front_) - record) & mlx5::kConsumerMask);
    }

    std::uint64_t* words_;
    std::uint64_t mask_;
    const std::uint32_t* record_;
    std::uint64_t front_ = 0;     ///< every position before it is taken
    std::uint64_t consumed_ = 0;  ///< the record as last read, widened to 64 bits
};

}  // namespace gnstor::rdma::tickets
