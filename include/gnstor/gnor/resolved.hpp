// resolved.hpp: which write sequences of an opening are resolved: a bit each, in memory of the lanes that
// take them. CPU and GPU lanes. ARRAY.md, rule 8.
//
// What the floor is made of (client/floor_tracker.hpp): the host reads it while lanes go on. A floor that is
// too high has drives refuse a write that is still being retried, and forget what tells its replicas apart.
// Therefore
//   * taking a sequence makes it outstanding, and nothing else does: whatever number the counter has passed
//   is unresolved until its own bit says otherwise. There is no moment in between that could be missed;
//   * a sequence is resolved when its request has ended and all replicas are alike for it: each command of it
//   was carried out by every replica, or was sent to none, or was refused by each before it did anything
//   (refused_before_it_began). Everything else is *in doubt*: an answer is missing, or one replica may have
//   made the change and another not. What is in doubt is counted and never resolved: only the end of the
//   epoch ends it (client::Volume::renew), because the marks above the floor are what the replicas are
//   compared by (ARRAY.md, rule 11). That the old queues are gone, so that nothing comes late any more, is
//   not enough: it says nothing of the replica that has the change, nor of a command inside a drive;
//   * requests that nobody waits for (a dropped token, callbacks that the host gave up) stay unresolved, too;
//   * the bits are a ring: sequence s changes bit s mod kResolvedBits, to 1 the first time round, to 0 the
//   second, and so on, so that nobody has to clear it. That tells rounds apart as long as no sequence is
//   taken more than kResolvedBits above the floor, which the host checks after it has read. Where it is so,
//   the sequence before it on the same bit was resolved, so an addition changes that bit and no other;
//   * a word is 32 bits of sequences, and above them how many were resolved in it, of all rounds. So a word
//   says "all that were taken" by one value alone (all_resolved), however far lanes ran ahead: k that are
//   missing make it smaller by k * 2^32 and by less than that again. A host that looked too late finds the
//   floor again by that.
// The word is changed by an addition that brings nothing back and orders nothing: a GPU's lane does not wait
// for it. Nothing else is concluded from it than that the answers had come.
#pragma once

#include <gnstor/nvme/status.hpp>
#include <gnstor/simt/atomic.hpp>

#include <cstdint>

namespace gnstor::gnor {

inline constexpr std::uint64_t kResolvedBits = 1u << 21;  ///< 512 KiB an opening for writing
inline constexpr std::uint64_t kResolvedInWord = 32;
inline constexpr std::uint64_t kResolvedWords = kResolvedBits / kResolvedInWord;
/// Behind the ring: how many sequences ended in doubt.
inline constexpr std::uint64_t kInDoubtWord = kResolvedWords;

/// Whether a drive that answers a change of `blocks` blocks so has done nothing of it, and will not. Not
/// Granted is not one of them: a drive whose grant ended meanwhile answers so for what it did. Tables and
/// media may be full in the middle of a change.
GN_HD
constexpr bool refused_before_it_began(nvme::Status answer, std::uint32_t blocks) {
    using nvme::Status;
    switch (answer) {
        case Status::kStaleMap:
        case Status::kStaleEpoch:
        case Status::kWrongSsd:
        case Status::kAccessDenied:
        case Status::kNamespaceWriteProtected:
        case Status::kLbaOutOfRange:
        case Status::kInvalidField:
        case Status::kInvalidOpcode:
            return true;
        case Status::kBusy:
        case Status::kCapacityExceeded:
            return blocks == 1;
        default:
            return false;
    }
}

/// Whether sequences of this round say "resolved" by a 1.
GN_HD
constexpr bool resolves_to_one(std::uint64_t sequence) {
    return (sequence / kResolvedBits) % 2 == 0;
}

/// A word of the ring when all sequences up to `last` that it has are resolved, and none above.
GN_HD
constexpr std::uint64_t all_resolved(std::uint64_t word, std::uint64_t last) {
    const std::uint64_t first = word * kResolvedInWord;
    if (last < first) return 0;
    const std::uint64_t rounds = (last - first) / kResolvedBits;
    const std::uint64_t rest = (last - first) % kResolvedBits + 1;
    const std::uint64_t here = rest < kResolvedInWord ? rest : kResolvedInWord;
    const std::uint64_t bits = (std::uint64_t{1} << here) - 1;
    return ((rounds * kResolvedInWord + here) << 32) + (rounds % 2 == 0 ? bits : 0xFFFFFFFFull - bits);
}
/// What the ring begins with, all other words being 0: sequence 0, which there is not, is resolved.
inline constexpr std::uint64_t kFirstResolvedWord = all_resolved(0, 0);

/// Sequences first .. first + count - 1 are resolved. Once for each. `words`: the ring and kInDoubtWord, or
/// null.
GN_HD
inline void mark_resolved(std::uint64_t* words, std::uint64_t first, std::uint64_t count) {
    if (words == nullptr) return;
    while (count != 0) {
        const std::uint64_t in_word = first % kResolvedInWord;
        const std::uint64_t room = kResolvedInWord - in_word;
        const std::uint64_t here = count < room ? count : room;
        const std::uint64_t mask = ((std::uint64_t{1} << here) - 1) << in_word;
        std::uint64_t* const word = words + first / kResolvedInWord % kResolvedWords;
        const std::uint64_t bits = resolves_to_one(first) ? mask : std::uint64_t{0} - mask;
        simt::add<simt::Scope::kDevice>(word, bits + (here << 32));
        first += here;
        count -= here;
    }
}

/// So many sequences ended in doubt. Once for each.
GN_HD
inline void mark_in_doubt(std::uint64_t* words, std::uint64_t count) {
    if (words != nullptr) simt::add<simt::Scope::kDevice>(words + kInDoubtWord, count);
}

}  // namespace gnstor::gnor
