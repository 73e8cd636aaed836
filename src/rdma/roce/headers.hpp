// headers.hpp: transport headers of RoCEv2 as on the wire. Big endian throughout.
//
// IBA volume 1, release 1.3: chapter 9.2 (BTH), 9.3 (extended headers), 9.7.5.2 (AETH syndromes), and table
// 35 (operation codes); Annex A17 (RoCEv2: UDP destination port 4791). This directory, src/rdma/roce/, is
// separate from the rest of rdma/ because it is pure logic: no threads, clocks or sockets, so that the
// NIC's engine and a simulator drive the same code. Layout only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gnstor::rdma::roce {

inline constexpr std::uint16_t kUdpPort = 4791;  ///< Annex A17.2
inline constexpr std::uint32_t kQpMask = 0xFFFFFF;
inline constexpr std::uint16_t kDefaultPkey = 0xFFFF;
inline constexpr std::uint32_t kIcrcBytes = 4;
inline constexpr std::uint32_t kMtuMin = 256;
inline constexpr std::uint32_t kMtuMax = 4096;

/// BTH operation codes. Table 35: bits 7:5 the service (000 RC, 011 UD), 4:0 the operation.
enum class Opcode : std::uint8_t {
    kSendFirst = 0x00,
    kSendMiddle = 0x01,
    kSendLast = 0x02,
    kSendLastImmediate = 0x03,
    kSendOnly = 0x04,
    kSendOnlyImmediate = 0x05,
    kWriteFirst = 0x06,
    kWriteMiddle = 0x07,
    kWriteLast = 0x08,
    kWriteLastImmediate = 0x09,
    kWriteOnly = 0x0A,
    kWriteOnlyImmediate = 0x0B,
    kReadRequest = 0x0C,
    kReadResponseFirst = 0x0D,
    kReadResponseMiddle = 0x0E,
    kReadResponseLast = 0x0F,
    kReadResponseOnly = 0x10,
    kAcknowledge = 0x11,
    kAtomicAcknowledge = 0x12,
    kCompareSwap = 0x13,
    kFetchAdd = 0x14,
    kSendLastInvalidate = 0x16,
    kSendOnlyInvalidate = 0x17,
    kUdSendOnly = 0x64,
};

/// Base transport header. 9.2.
struct Bth {
    std::uint8_t opcode;
    std::uint8_t flags;  ///< solicited event 7, migration request 6, pad count 5:4, header version 3:0
    std::uint16_t partition_key;  ///< be16
    std::uint32_t
        reserved_qp;        ///< be32: FECN 31, BECN 30, reserved 29:24 (masked in the ICRC), queue pair 23:0
    std::uint32_t ack_psn;  ///< be32: acknowledge request 31, reserved 30:24, PSN 23:0
};
static_assert(sizeof(Bth) == 12 && offsetof(Bth, partition_key) == 2, "the BTH is 12 bytes");
static_assert(offsetof(Bth, reserved_qp) == 4 && offsetof(Bth, ack_psn) == 8,
              "the BTH has the layout of IBA 9.2");

/// RDMA extended transport header. 9.3.3. On the wire it is not aligned to 8, so the address is two words.
struct Reth {
    std::uint32_t address_high;  ///< be32
    std::uint32_t address_low;   ///< be32
    std::uint32_t rkey;          ///< be32
    std::uint32_t length;        ///< be32: of the whole message, at most 2^31
};
static_assert(sizeof(Reth) == 16 && offsetof(Reth, rkey) == 8 && offsetof(Reth, length) == 12,
              "the RETH has the layout of IBA 9.3.3");

/// Acknowledge extended transport header. 9.3.5.
struct Aeth {
    std::uint32_t syndrome_msn;  ///< be32: syndrome 31:24, message sequence number 23:0
};
static_assert(sizeof(Aeth) == 4, "the AETH has the layout of IBA 9.3.5");

/// Invalidate extended transport header. 9.3.7.
struct Ieth {
    std::uint32_t rkey;  ///< be32
};
static_assert(sizeof(Ieth) == 4, "the IETH has the layout of IBA 9.3.7");

/// Immediate data. 9.3.6. Parsed; this transport refuses the operations that carry it.
struct ImmediateHeader {
    std::uint32_t data;  ///< be32
};
static_assert(sizeof(ImmediateHeader) == 4, "the ImmDt header has the layout of IBA 9.3.6");

/// Datagram extended transport header. 9.3.2.
struct Deth {
    std::uint32_t queue_key;        ///< be32
    std::uint32_t reserved_source;  ///< be32: reserved 31:24, source queue pair 23:0
};
static_assert(sizeof(Deth) == 8 && offsetof(Deth, reserved_source) == 4, "IBA 9.3.2");

inline constexpr std::uint32_t kAtomicHeaderBytes = 28;  ///< 9.3.4: skipped, as atomics are refused
inline constexpr std::uint32_t kAtomicAckBytes = 8;      ///< 9.3.5.3
/// Longest headers: BTH, RETH, immediate data (RDMA WRITE ONLY with immediate).
inline constexpr std::uint32_t kHeaderBytesMax = 12 + 16 + 4;

inline constexpr std::uint8_t kFlagSolicited = 0x80;
inline constexpr std::uint8_t kFlagMigrated = 0x40;  ///< queue pairs without path migration have it set
inline constexpr std::uint32_t kAckRequest = 0x80000000u;

/// AETH syndrome: bits 7:5 give the kind. 9.7.5.2.
enum class AckKind : std::uint8_t { kAck = 0, kRnrNak = 1, kReserved = 2, kNak = 3 };
/// Low five bits of a NAK. Table 47.
enum class NakCode : std::uint8_t {
    kSequenceError = 0,
    kInvalidRequest = 1,
    kRemoteAccess = 2,
    kRemoteOperational = 3,
    kInvalidReadDestination = 4,
};
inline constexpr std::uint8_t kCreditsUnlimited = 0x1F;  ///< of an ACK: no end-to-end credits

constexpr std::uint8_t ack_syndrome(std::uint8_t credits = kCreditsUnlimited) noexcept {
    return credits & 0x1Fu;
}
constexpr std::uint8_t nak_syndrome(NakCode code) noexcept {
    return static_cast<std::uint8_t>(0x60u | static_cast<std::uint8_t>(code));
}
constexpr std::uint8_t rnr_syndrome(std::uint8_t timer) noexcept {
    return static_cast<std::uint8_t>(0x20u | (timer & 0x1Fu));
}
/// Bit 7 is reserved and ignored.
constexpr AckKind ack_kind(std::uint8_t syndrome) noexcept {
    return static_cast<AckKind>((syndrome >> 5) & 3u);
}
constexpr std::uint8_t ack_value(std::uint8_t syndrome) noexcept {
    return syndrome & 0x1Fu;
}

/// Time that a requester waits after an RNR NAK, in nanoseconds. Table 45.
std::uint64_t rnr_timer_ns(std::uint8_t timer) noexcept;
/// Number of receives that an ACK's credit code means (0 to 30; 31 is unlimited). Table 48: 0, 1, 2, 3,
/// 4, 6, 8, …
std::uint32_t credits_of(std::uint8_t code) noexcept;

}  // namespace gnstor::rdma::roce
