// tickets.hpp: places in a completion ring that several processes fill: who took which.
//
// One word an entry of the ring, in the memory of the ring's owner: the newest position (its low 40 bits)
// that was taken at that entry, and the queue pair whose completion goes there. Positions are taken in their
// order, each by one compare-and-exchange; its winner alone writes the completion. So nobody waits for
// anybody, and where a process ends between the two its tickets say which completions it owes: the ring's
// owner writes those (CompletionQueue::complete_for).
//
// Invariants, while nobody scribbles
//   * position p is taken only when p - 1 was, and when the completion of p - entries was consumed;
//   * so the tickets of a ring say where it stands, also to a process that comes later.
// Nothing in the words is to be trusted: Taker ends after a bounded number of steps, which does not grow with
// the ring, whatever they say.
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
/// How far the ticket's position lies behind `position` (negative: before it), by the shorter way round.
constexpr std::int64_t ahead_of(std::uint64_t ticket, std::uint64_t position) noexcept {
    const std::uint64_t apart = (position_of(ticket) - position) & kPositionMask;
    return static_cast<std::int64_t>(apart << kQpnBits) >> kQpnBits;
}

/// By the ring's owner, before anybody knows them: nothing is taken.
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
    /// Takes the next position for a completion of `qpn`. kFull: it has not been consumed since the last lap.
    Outcome take(std::uint32_t qpn, std::uint64_t& position) noexcept {
        // As often as honest others may come before, and far more.
        std::uint32_t searches = kSearches, passed = 0, to_search = kStepsToSearch;
        for (std::uint32_t steps = kSteps; steps != 0 && searches != 0; --steps) {
            std::uint64_t* const word = words_ + (front_ & mask_);
            // Acquire: with it comes what its taker knew to be consumed.
            const std::uint64_t seen = simt::load_acquire<simt::Scope::kSystem>(word);
            const std::int64_t ahead = ahead_of(seen, front_);
            if (ahead >= 0) {  // others took it, or a later lap's
                front_ += static_cast<std::uint64_t>(ahead) + 1;
                // Less often each time: whoever searches while many others take places may come late again.
                if (++passed == to_search) {
                    find_front();
                    passed = 0;
                    to_search *= 2;
                }
                continue;
            }
            if (ahead !=
                -static_cast<std::int64_t>(mask_) - 1) {  // idle for 2^39 completions, or scribbled over
                find_front();
                --searches;
                continue;
            }
            if (!has_room()) {
                look_at_consumer();
                // Others may have gone on before the record was read, and the consumer past `front_`.
                if (simt::load_acquire<simt::Scope::kSystem>(word) != seen) continue;
                if (!has_room()) return Outcome::kFull;
            }
            // Whoever wins writes the completion; the consumer's release of the record came before
            // (has_room).
            if (simt::compare_exchange<simt::Scope::kSystem>(word, seen, make(front_, qpn)) == seen) {
                position = front_++;
                return Outcome::kTaken;
            }
        }
        return Outcome::kScribbled;
    }

  private:
    static constexpr std::uint32_t kSteps = 4096, kSearches = 64;
    static constexpr std::uint32_t kStepsToSearch =
        16;  ///< places one by one, before the front is searched for

    /// Words up to the front are of the newest lap, those from there on of the lap before it.
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
        consumed_ = front_ - mask_ - 1;  // as if full: the record is read first
    }
    [[nodiscard]] bool has_room() const noexcept { return front_ - consumed_ <= mask_; }
    void look_at_consumer() noexcept {
        // Acquire: pairs with the consumer's release: it has read (and poisoned) what it gave back.
        const std::uint32_t record = be32(simt::load_acquire<simt::Scope::kSystem>(record_));
        consumed_ = front_ - ((static_cast<std::uint32_t>(front_) - record) & mlx5::kConsumerMask);
    }

    std::uint64_t* words_;
    std::uint64_t mask_;
    const std::uint32_t* record_;
    std::uint64_t front_ = 0;     ///< no position before it is free
    std::uint64_t consumed_ = 0;  ///< as last read of the record, and whole
};

}  // namespace gnstor::rdma::tickets
