// psn.hpp: packet sequence numbers of 24 bits. InfiniBand Architecture (IBA) volume 1, 9.7.1, 9.7.2.
//
// The state machines count in 64 bits and never wrap; only the wire has 24 bits. A number from the wire
// is extended to the nearest 64-bit number around a reference, which both ends keep within 2^23 of it, so
// that every window test is a plain comparison. Counting starts at kSequenceBase + the negotiated
// starting PSN, so that numbers from before the start stay above zero.
#pragma once

#include <cstdint>

namespace gnstor::rdma::roce {

inline constexpr std::uint32_t kPsnMask = 0xFFFFFF;
inline constexpr std::uint32_t kPsnHalf = 0x800000;  ///< limit of outstanding packets, and of duplicates
inline constexpr std::uint64_t kSequenceBase = std::uint64_t{1} << 24;

/// A sequence number in 64 bits; its low 24 are the PSN.
using Sequence = std::uint64_t;

constexpr std::uint32_t psn_of(Sequence sequence) noexcept {
    return static_cast<std::uint32_t>(sequence) & kPsnMask;
}
constexpr Sequence first_sequence(std::uint32_t start_psn) noexcept {
    return kSequenceBase + (start_psn & kPsnMask);
}
/// The sequence number with these low 24 bits in [reference - 2^23, reference + 2^23).
constexpr Sequence extend(std::uint32_t psn, Sequence reference) noexcept {
    const std::uint32_t ahead = (psn - psn_of(reference)) & kPsnMask;
    return ahead < kPsnHalf ? reference + ahead : reference + ahead - (std::uint64_t{kPsnMask} + 1);
}
static_assert(psn_of(extend(0x000001, first_sequence(0xFFFFFF))) == 1);
static_assert(extend(0x000001, first_sequence(0xFFFFFF)) == first_sequence(0xFFFFFF) + 2);
static_assert(extend(0xFFFFFE, first_sequence(1) + kSequenceBase) == first_sequence(1) + kSequenceBase - 3);
static_assert(extend(5, first_sequence(5)) == first_sequence(5));

/// Packets of a message of so many bytes: at least one.
constexpr std::uint32_t packets_of(std::uint64_t bytes, std::uint32_t mtu) noexcept {
    return bytes == 0 ? 1 : static_cast<std::uint32_t>((bytes + mtu - 1) / mtu);
}

}  // namespace gnstor::rdma::roce
