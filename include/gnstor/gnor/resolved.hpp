// resolved.hpp: which write sequences of an opening are resolved: a bit each, in memory of the lanes that
// take them. CPU and GPU lanes. ARRAY.md, rule 8.
//
// What the floor is made of (client/floor_tracker.hpp): the host reads it while lanes go on. A floor that is
// too high has drives refuse a write that is still being retried, and forget what tells its replicas apart.
// Therefore
//   * taking a sequence makes it outstanding, and nothing else does: whatever number the counter has passed
//   is unresolved until its own bit says otherwise. There is no moment in between that could be missed;
//   * the bit of a sequence changes once, when its call has ended and no drive owes it an answer: a call that
//   ended with kTimedOut or kQueueError leaves its bit as it is, and so do requests that nobody waits for
//   here (tokens, callbacks, batches). They hold the floor back for as long as the opening lasts;
//   * the bits are a ring: sequence s changes bit s mod kResolvedBits, to 1 the first time round, to 0 the
//   second, and so on, so that nobody has to clear it. That tells rounds apart as long as no sequence is
//   taken more than kResolvedBits above the floor, which the host checks after it has read. Where it is so,
//   the sequence before it on the same bit was resolved, so an addition changes that bit and no other.
// The bit is changed by an addition that brings nothing back and orders nothing: a GPU's lane does not wait
// for it. Nothing else is concluded from it than that the answers had come.
#pragma once

#include <gnstor/nvme/status.hpp>
#include <gnstor/simt/atomic.hpp>

#include <cstdint>

namespace gnstor::gnor {

inline constexpr std::uint64_t kResolvedBits = 1u << 21;  ///< 256 KiB an opening for writing
inline constexpr std::uint64_t kResolvedWords = kResolvedBits / 64;
/// What the ring begins with, all other words being 0: sequence 0, which there is not, is resolved.
inline constexpr std::uint64_t kFirstResolvedWord = 1;

/// Whether a call that ended so has nothing unanswered with any drive (status_order.hpp: these two are the
/// worst of several).
GN_HD
constexpr bool is_resolved(nvme::Status result) {
    return result != nvme::Status::kTimedOut && result != nvme::Status::kQueueError;
}

/// Whether sequences of this round say "resolved" by a 1.
GN_HD
constexpr bool resolves_to_one(std::uint64_t sequence) {
    return (sequence / kResolvedBits) % 2 == 0;
}

/// Sequences first .. first + count - 1 are resolved. Once for each. `words`: kResolvedWords, or null.
GN_HD
inline void mark_resolved(std::uint64_t* words, std::uint64_t first, std::uint64_t count) {
    if (words == nullptr) return;
    while (count != 0) {
        const std::uint64_t in_word = first % 64;
        const std::uint64_t here = count < 64 - in_word ? count : 64 - in_word;
        const std::uint64_t mask = (here == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << here) - 1)
                                   << in_word;
        std::uint64_t* const word = words + first / 64 % kResolvedWords;
        simt::add<simt::Scope::kDevice>(word, resolves_to_one(first) ? mask : std::uint64_t{0} - mask);
        first += here;
        count -= here;
    }
}

}  // namespace gnstor::gnor
