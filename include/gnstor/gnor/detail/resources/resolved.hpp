// resolved.hpp: which write sequences of an opening are resolved: a bit each, in memory of the lanes that
// take them. CPU and GPU lanes. docs/array.md, rule 8.
//
// The host computes the floor from these bits (client/floor_tracker.hpp) while lanes continue. With a floor
// that is too high, drives would refuse a write that is still being retried, and forget what tells its
// replicas apart. Therefore
//   * taking a sequence makes it outstanding, and nothing else does: every number that the counter has passed
//     is unresolved until its own bit says otherwise. There is no moment in between that could be missed;
//   * a sequence is resolved when its request has ended and all replicas are alike for it: each command of it
//     was carried out by every replica, or was sent to none, or was refused by each before it did anything
//     (refused_before_it_began). Everything else is *in doubt*: an answer is missing, or one replica may have
//     made the change and another not. A sequence in doubt is counted and never resolved: only the end of the
//     epoch ends the doubt (client::Volume::renew), because replicas are compared by the marks above the
//     floor (docs/array.md, rule 11). It is not enough that the old queues are gone and nothing arrives late
//     any more: one replica may still have a change that another lacks, and a command may still be inside a
//     drive;
//   * requests without a waiter (a dropped token, callbacks that the host gave up) stay unresolved, too;
//   * the bits are a ring: sequence s changes bit s mod kResolvedBits, to 1 in the first round, to 0 in the
//     second, and so on, so that no bit has to be cleared. Rounds can be told apart as long as no sequence is
//     taken more than kResolvedBits above the floor, which the host checks after it has read. Then the
//     previous sequence on the same bit was resolved, so an addition changes that bit and no other;
//   * a word has the bits of 32 sequences in its low half, and in its high half how many were resolved in it,
//     in all rounds. So one value alone says "all that were taken" (all_resolved), however far lanes ran
//     ahead: k missing ones make the word smaller by k * 2^32, give or take less than 2^32. A host that read
//     too late finds the floor again by that.
// The word is changed by an addition that returns nothing and orders nothing: a GPU's lane does not wait for
// it. Readers conclude from it only that the answers had come.
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

/// Whether this answer to a change of `blocks` blocks means that the drive has done nothing of it, and will
/// not. Not Granted does not mean that: a drive whose grant ended meanwhile gives the same answer for a
/// change that it made. Busy and Capacity Exceeded mean it for one block only: tables and media may fill up
/// in the middle of a change.
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

/// Whether a 1 says "resolved" for sequences of this round; else a 0 does.
GN_HD
constexpr bool resolves_to_one(std::uint64_t sequence) {
    return (sequence / kResolvedBits) % 2 == 0;
}

/// The value of a ring word whose sequences up to `last` are all resolved, and none above.
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
/// The ring's first word at the beginning, all others being 0: sequence 0, which is never taken, is resolved.
inline constexpr std::uint64_t kFirstResolvedWord = all_resolved(0, 0);

/// Marks sequences first .. first + count - 1 as resolved. Once for each. `words`: the ring and kInDoubtWord,
/// or null.
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

/// Counts sequences that ended in doubt. Once for each.
GN_HD
inline void mark_in_doubt(std::uint64_t* words, std::uint64_t count) {
    if (words != nullptr) simt::add<simt::Scope::kDevice>(words + kInDoubtWord, count);
}

}  // namespace gnstor::gnor
