// cm_messages.hpp: messages of connection management, and their encoding as management datagrams (MADs).
//
// IBA volume 1, 13.4 (MAD header) and 12.6 (REQ, MRA, REJ, REP, RTU, DREQ, DREP); Annex A11 (RDMA IP CM
// service: IP addresses in the private data of REQ, service ids of ports). They travel as UD SEND ONLY
// between queue pairs 1 with the well-known key. Decoding trusts no field; fields that this system does
// not use (alternate path, EE contexts) are ignored and sent as zero. Pure; any thread.
#pragma once

#include "rdma/roce/packet.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace gnstor::rdma::roce {

inline constexpr std::uint32_t kMadBytes = 256;
inline constexpr std::uint32_t kManagementQueuePair = 1;
inline constexpr std::uint32_t kManagementQueueKey = 0x80010000;  ///< 10.2.5: of queue pair 1

/// Attribute of a connection management MAD. 12.6, table 98.
enum class CmKind : std::uint16_t {
    kRequest = 0x10,      ///< REQ
    kReceipt = 0x11,      ///< MRA: "got it, wait"
    kReject = 0x12,       ///< REJ
    kReply = 0x13,        ///< REP
    kReadyToUse = 0x14,   ///< RTU
    kDisconnect = 0x15,   ///< DREQ
    kDisconnected = 0x16  ///< DREP
};

/// Reject reasons that this system sends or evaluates. 12.6.7.2.
enum class RejectReason : std::uint16_t {
    kNone = 0,
    kNoResources = 3,
    kTimeout = 4,
    kUnsupported = 5,
    kInvalidId = 6,
    kInvalidService = 8,
    kInvalidTransport = 9,  ///< another transport service than a reliable connection
    kStaleConnection = 10,
    /// Primary remote port GID rejected. The table has no reason for a partition of which the receiver's
    /// port is not a member; Linux uses this one, as the peer's path is not available here.
    kInvalidPath = 12,
    kInvalidMtu = 26,  ///< larger than the receiver's interface takes
    kConsumer = 28,    ///< the listener refused; its private data has the reason
};

/// Transport service types of a REQ, 12.6.5: 1 is UC, 2 RD, 3 others. Only reliable connections are
/// served.
inline constexpr std::uint8_t kReliableConnection = 0;

using Gid = std::array<std::uint8_t, 16>;  ///< an IPv6 address, or ::ffff:a.b.c.d

/// One message; fields of other kinds than its own are zero.
struct CmMessage {
    CmKind kind{};
    std::uint64_t transaction = 0;
    std::uint32_t local_id = 0;   ///< of its sender
    std::uint32_t remote_id = 0;  ///< of its receiver; REQ has none

    std::uint64_t ca_guid = 0;  ///< REQ, REP, and REJ with kTimeout: of its sender
    // REQ and REP
    std::uint32_t queue_pair = 0;  ///< of its sender; DREQ: of its receiver
    std::uint32_t start_psn = 0;   ///< first PSN that its sender expects: the other side sends from it
    std::uint8_t responder_resources = 0;  ///< READs that its sender serves at once
    std::uint8_t initiator_depth = 0;      ///< READs that its sender will have outstanding at once
    std::uint8_t rnr_retries = 0;
    bool flow_control = false;
    // REQ
    std::uint64_t service_id = 0;
    Gid local_gid{}, remote_gid{};
    std::uint8_t mtu_code = 3;  ///< 1: 256 … 5: 4096
    std::uint8_t transport_service = kReliableConnection;
    std::uint8_t retry_count = 7;
    std::uint8_t ack_timeout = 14;       ///< 4.096 us * 2^n
    std::uint8_t response_timeout = 20;  ///< of CM messages: the sender's own, and what it allows the peer
    std::uint8_t cm_retries = 15;
    std::uint16_t partition_key = kDefaultPkey;
    std::uint8_t hop_limit = 64;
    // REJ, MRA
    std::uint8_t about = 0;  ///< the message that is rejected or received: 0 REQ, 1 REP, 2 another
    RejectReason reason = RejectReason::kNone;
    std::uint8_t service_timeout = 0;  ///< MRA

    std::array<std::byte, 224> private_data{};
    std::uint32_t private_bytes = 0;  ///< after decoding: all that the kind has room for
};

/// Room for private data in a message of this kind.
[[nodiscard]] std::uint32_t private_room(CmKind kind) noexcept;

/// nullopt: `mad` is not a connection management message that this system knows.
[[nodiscard]] std::optional<CmMessage> decode_cm(std::span<const std::byte> mad) noexcept;
/// Writes all 256 bytes. Private data beyond the room of the kind is cut off: check with private_room().
void encode_cm(const CmMessage& message, std::span<std::byte, kMadBytes> mad) noexcept;

/// The packet that carries a MAD between queue pairs 1. It refers to `mad`.
[[nodiscard]] Packet management_packet(std::span<const std::byte, kMadBytes> mad, std::uint32_t psn) noexcept;
/// The MAD in a decoded packet, if it is one for queue pair 1 with the right key and length.
[[nodiscard]] std::optional<std::span<const std::byte>> management_datagram(const Packet& packet) noexcept;

/// Annex A11.4: the first 36 bytes of a REQ's private data name the IP addresses and the sender's port.
struct IpAddresses {
    bool v6 = false;
    std::uint16_t source_port = 0;
    Gid source{}, destination{};  ///< IPv4 as ::ffff:a.b.c.d
};
inline constexpr std::uint32_t kIpAddressBytes = 36;
[[nodiscard]] std::optional<IpAddresses> decode_ip_addresses(
    std::span<const std::byte> private_data) noexcept;
void encode_ip_addresses(const IpAddresses& addresses, std::span<std::byte, kIpAddressBytes> out) noexcept;
/// Annex A11.2: the service of a TCP-like port.
constexpr std::uint64_t service_of_port(std::uint16_t port) noexcept {
    return 0x0000'0000'0106'0000ull | port;
}
static_assert(service_of_port(4420) == 0x0000'0000'0106'1144ull,
              "the service ID that the nvme-rdma driver of Linux requests for port 4420");

}  // namespace gnstor::rdma::roce
