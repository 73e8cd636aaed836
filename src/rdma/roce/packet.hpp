// packet.hpp: one RoCEv2 packet as a value, and its encoding as a UDP payload.
//
// A Packet refers to its payload and owns nothing: the payload of a decoded packet lies in the datagram,
// that of a packet to be sent in the caller's memory, in up to three pieces. Decoding trusts no field: an
// accepted packet has all its headers, a valid pad count, and no payload where its operation has none;
// the state machines check lengths against MTU and message. A refusal is an enum, not a message, so that
// a flood of bad packets costs little. Pure; any thread. ICRC: icrc.hpp.
#pragma once

#include <gnstor/base/result.hpp>

#include "rdma/roce/headers.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gnstor::rdma::roce {

inline constexpr std::uint32_t kPiecesMax = 3;

/// Bytes in up to three pieces.
struct Payload {
    std::array<std::span<const std::byte>, kPiecesMax> pieces{};
    std::uint32_t count = 0;
    std::uint32_t bytes = 0;

    /// Appends a piece; ignores empty ones and those beyond kPiecesMax.
    void add(std::span<const std::byte> piece) noexcept;
};

/// Copies `bytes` into memory of several pieces, from its byte `at` on. Bytes without room are dropped:
/// callers have compared the lengths before.
void scatter(std::span<const std::byte> bytes, std::span<const std::span<std::byte>> pieces,
             std::uint64_t at) noexcept;

/// One packet, host byte order. Fields of headers that the operation does not carry are zero.
struct Packet {
    Opcode opcode{};
    bool solicited = false;
    bool ack_request = false;
    bool congestion = false;  ///< FECN or BECN was set; informative
    std::uint16_t partition_key = kDefaultPkey;
    std::uint32_t queue_pair = 0;  ///< destination
    std::uint32_t psn = 0;
    // RETH
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
    std::uint32_t length = 0;
    // AETH
    std::uint8_t syndrome = 0;
    std::uint32_t message_number = 0;
    // IETH, ImmDt, DETH
    std::uint32_t invalidate_rkey = 0;
    std::uint32_t immediate = 0;
    std::uint32_t queue_key = 0;
    std::uint32_t source_queue_pair = 0;

    Payload payload;
};

/// Properties of an operation, and the headers that it carries.
struct OpcodeTraits {
    bool known = false;
    bool request = false;  ///< goes to a responder; otherwise to a requester
    bool reth = false, aeth = false, ieth = false, immediate = false, deth = false, atomic = false,
         atomic_ack = false;
    bool payload = false;            ///< may carry one
    bool first = false;              ///< begins a message (first or only)
    bool last = false;               ///< ends a message (last or only)
    std::uint32_t header_bytes = 0;  ///< BTH and extended headers
};
[[nodiscard]] const OpcodeTraits& traits(Opcode opcode) noexcept;
[[nodiscard]] std::string_view name_of(Opcode opcode) noexcept;

enum class DecodeVerdict : std::uint8_t {
    kGood,
    kShort,      ///< shorter than its headers and ICRC
    kVersion,    ///< transport header version other than 0
    kOpcode,     ///< not an operation of this transport
    kPad,        ///< pad count beyond the payload, or on a first or middle packet
    kPayload,    ///< payload on an operation that has none
    kPartition,  ///< not the default partition
    kTooLong,    ///< longer than the largest MTU allows
};
[[nodiscard]] std::string_view name_of(DecodeVerdict verdict) noexcept;

/// Decodes a UDP payload, ICRC included as its last four bytes (not checked here: icrc.hpp). `packet.payload`
/// refers to `bytes`. On anything but kGood, `packet` is unspecified.
[[nodiscard]] DecodeVerdict decode(std::span<const std::byte> bytes, Packet& packet) noexcept;

/// Fields of a truncated packet, as in an ICMP message that quotes its first bytes.
struct QuotedPacket {
    std::uint32_t queue_pair = 0;  ///< destination
    std::uint32_t psn = 0;
};
/// nullopt: fewer bytes than a base transport header.
[[nodiscard]] std::optional<QuotedPacket> decode_quoted(std::span<const std::byte> bytes) noexcept;

/// Bytes of `packet` as a UDP payload, pad and ICRC included.
[[nodiscard]] std::uint32_t encoded_bytes(const Packet& packet) noexcept;

/// Writes headers, payload and pad to `out`, and leaves the last four bytes of encoded_bytes() for the
/// ICRC. Returns the number of bytes with ICRC; kInvalidArgument: `out` is too small or a field is out of
/// range.
Result<std::uint32_t> encode(const Packet& packet, std::span<std::byte> out);

}  // namespace gnstor::rdma::roce
