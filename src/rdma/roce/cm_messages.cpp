// cm_messages.cpp: reads and writes the fields of connection management MADs at their offsets.
#include "rdma/roce/cm_messages.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::rdma::roce {
namespace {

// MAD header, 13.4.3: base version, class, class version, method, status, class specific, transaction,
// attribute.
constexpr std::uint32_t kDataAt = 24;
constexpr std::uint32_t kGuidBytes = 8;
constexpr std::uint8_t kBaseVersion = 1, kClass = 0x07, kClassVersion = 2, kMethodSend = 0x03;
constexpr std::uint32_t kRequestRoom = 92;

// Offsets of private data from the start of the MAD's data, by kind (12.6.5 to 12.6.11).
struct Room {
    std::uint32_t at, bytes;
};
constexpr Room room_of(CmKind kind) noexcept {
    switch (kind) {
        case CmKind::kRequest:
            return {140, kRequestRoom};
        case CmKind::kReceipt:
            return {10, 222};
        case CmKind::kReject:
            return {84, 148};
        case CmKind::kReply:
            return {36, 196};
        case CmKind::kReadyToUse:
            return {8, 224};
        case CmKind::kDisconnect:
            return {12, 220};
        case CmKind::kDisconnected:
            return {8, 224};
    }
    return {0, 0};
}
static_assert(room_of(CmKind::kRequest).at + room_of(CmKind::kRequest).bytes == kMadBytes - kDataAt);
static_assert(room_of(CmKind::kReceipt).at + room_of(CmKind::kReceipt).bytes == kMadBytes - kDataAt);
static_assert(room_of(CmKind::kReject).at + room_of(CmKind::kReject).bytes == kMadBytes - kDataAt);
static_assert(room_of(CmKind::kReply).at + room_of(CmKind::kReply).bytes == kMadBytes - kDataAt);
static_assert(room_of(CmKind::kReadyToUse).at + room_of(CmKind::kReadyToUse).bytes == kMadBytes - kDataAt);
static_assert(room_of(CmKind::kDisconnect).at + room_of(CmKind::kDisconnect).bytes == kMadBytes - kDataAt);

/// Big-endian fields of any number of bytes.
std::uint64_t get(const std::byte* at, std::uint32_t bytes) noexcept {
    std::uint64_t value = 0;
    for (std::uint32_t i = 0; i < bytes; ++i) value = (value << 8) | std::to_integer<std::uint64_t>(at[i]);
    return value;
}
void put(std::byte* at, std::uint32_t bytes, std::uint64_t value) noexcept {
    for (std::uint32_t i = bytes; i > 0; --i, value >>= 8) at[i - 1] = static_cast<std::byte>(value);
}
std::uint8_t get8(const std::byte* at) noexcept {
    return std::to_integer<std::uint8_t>(*at);
}
std::uint32_t get24(const std::byte* at) noexcept {
    return static_cast<std::uint32_t>(get(at, 3));
}
std::uint32_t get32(const std::byte* at) noexcept {
    return static_cast<std::uint32_t>(get(at, 4));
}

void decode_request(const std::byte* d, CmMessage& m) noexcept {
    m.service_id = get(d + 8, 8);
    m.ca_guid = get(d + 16, 8);
    m.queue_pair = get24(d + 32);
    m.responder_resources = get8(d + 35);
    m.initiator_depth = get8(d + 39);
    m.response_timeout = get8(d + 43) >> 3;
    m.transport_service = (get8(d + 43) >> 1) & 3u;
    m.flow_control = (get8(d + 43) & 1u) != 0;
    m.start_psn = get24(d + 44);
    m.retry_count = get8(d + 47) & 7u;
    m.partition_key = static_cast<std::uint16_t>(get(d + 48, 2));
    m.mtu_code = get8(d + 50) >> 4;
    m.rnr_retries = get8(d + 50) & 7u;
    m.cm_retries = get8(d + 51) >> 4;
    std::memcpy(m.local_gid.data(), d + 56, 16);
    std::memcpy(m.remote_gid.data(), d + 72, 16);
    m.hop_limit = get8(d + 93);
    m.ack_timeout = get8(d + 95) >> 3;
}

void encode_request(const CmMessage& m, std::byte* d) noexcept {
    put(d + 8, 8, m.service_id);
    put(d + 16, 8, m.ca_guid);
    put(d + 32, 3, m.queue_pair);
    put(d + 35, 1, m.responder_resources);
    put(d + 39, 1, m.initiator_depth);
    // Remote response timeout 7:3, transport service 2:1, end-to-end flow control 0.
    put(d + 43, 1,
        ((m.response_timeout & 31u) << 3) | ((m.transport_service & 3u) << 1) | (m.flow_control ? 1u : 0u));
    put(d + 44, 3, m.start_psn);
    put(d + 47, 1, ((m.response_timeout & 31u) << 3) | (m.retry_count & 7u));
    put(d + 48, 2, m.partition_key);
    put(d + 50, 1, ((m.mtu_code & 15u) << 4) | (m.rnr_retries & 7u));
    put(d + 51, 1, (m.cm_retries & 15u) << 4);
    put(d + 52, 4, 0xFFFFFFFFu);  // InfiniBand's local ids: permissive, as Ethernet has none
    std::memcpy(d + 56, m.local_gid.data(), 16);
    std::memcpy(d + 72, m.remote_gid.data(), 16);
    put(d + 93, 1, m.hop_limit);
    put(d + 95, 1, (m.ack_timeout & 31u) << 3);
}

void decode_reply(const std::byte* d, CmMessage& m) noexcept {
    m.queue_pair = get24(d + 12);
    m.start_psn = get24(d + 20);
    m.responder_resources = get8(d + 24);
    m.initiator_depth = get8(d + 25);
    m.flow_control = (get8(d + 26) & 1u) != 0;
    m.rnr_retries = get8(d + 27) >> 5;
    m.ca_guid = get(d + 28, 8);
}

void encode_reply(const CmMessage& m, std::byte* d) noexcept {
    put(d + 12, 3, m.queue_pair);
    put(d + 20, 3, m.start_psn);
    put(d + 24, 1, m.responder_resources);
    put(d + 25, 1, m.initiator_depth);
    put(d + 26, 1, m.flow_control ? 1u : 0u);
    put(d + 27, 1, (m.rnr_retries & 7u) << 5);
    put(d + 28, 8, m.ca_guid);
}

}  // namespace

std::uint32_t private_room(CmKind kind) noexcept {
    return room_of(kind).bytes;
}

std::optional<CmMessage> decode_cm(std::span<const std::byte> mad) noexcept {
    if (mad.size() != kMadBytes) return std::nullopt;
    if (get8(&mad[0]) != kBaseVersion || get8(&mad[1]) != kClass || get8(&mad[2]) != kClassVersion ||
        get8(&mad[3]) != kMethodSend) {
        return std::nullopt;
    }
    CmMessage m;
    m.kind = static_cast<CmKind>(get(&mad[16], 2));
    const Room room = room_of(m.kind);
    if (room.bytes == 0) return std::nullopt;
    m.transaction = get(&mad[8], 8);
    const std::byte* d = mad.data() + kDataAt;
    m.local_id = get32(d);
    if (m.kind != CmKind::kRequest) m.remote_id = get32(d + 4);
    switch (m.kind) {
        case CmKind::kRequest:
            decode_request(d, m);
            break;
        case CmKind::kReply:
            decode_reply(d, m);
            break;
        case CmKind::kReceipt:
            m.about = get8(d + 8) >> 6;
            m.service_timeout = get8(d + 9) >> 3;
            break;
        case CmKind::kReject:
            m.about = get8(d + 8) >> 6;
            m.reason = static_cast<RejectReason>(get(d + 10, 2));
            if (m.reason == RejectReason::kTimeout) m.ca_guid = get(d + 12, 8);
            break;
        case CmKind::kDisconnect:
            m.queue_pair = get24(d + 8);
            break;
        default:
            break;
    }
    m.private_bytes = room.bytes;
    std::memcpy(m.private_data.data(), d + room.at, room.bytes);
    return m;
}

void encode_cm(const CmMessage& m, std::span<std::byte, kMadBytes> mad) noexcept {
    std::fill(mad.begin(), mad.end(), std::byte{0});
    put(&mad[0], 4, (kBaseVersion << 24) | (kClass << 16) | (kClassVersion << 8) | kMethodSend);
    put(&mad[8], 8, m.transaction);
    put(&mad[16], 2, static_cast<std::uint16_t>(m.kind));
    std::byte* d = mad.data() + kDataAt;
    put(d, 4, m.local_id);
    if (m.kind != CmKind::kRequest) put(d + 4, 4, m.remote_id);
    switch (m.kind) {
        case CmKind::kRequest:
            encode_request(m, d);
            break;
        case CmKind::kReply:
            encode_reply(m, d);
            break;
        case CmKind::kReceipt:
            put(d + 8, 1, (m.about & 3u) << 6);
            put(d + 9, 1, (m.service_timeout & 31u) << 3);
            break;
        case CmKind::kReject:
            put(d + 8, 1, (m.about & 3u) << 6);
            put(d + 10, 2, static_cast<std::uint16_t>(m.reason));
            if (m.reason == RejectReason::kTimeout && m.ca_guid != 0) {
                put(d + 9, 1, kGuidBytes << 1);
                put(d + 12, 8, m.ca_guid);
            }
            break;
        case CmKind::kDisconnect:
            put(d + 8, 3, m.queue_pair);
            break;
        default:
            break;
    }
    const Room room = room_of(m.kind);
    std::memcpy(d + room.at, m.private_data.data(), std::min(m.private_bytes, room.bytes));
}

Packet management_packet(std::span<const std::byte, kMadBytes> mad, std::uint32_t psn) noexcept {
    Packet packet;
    packet.opcode = Opcode::kUdSendOnly;
    packet.queue_pair = packet.source_queue_pair = kManagementQueuePair;
    packet.queue_key = kManagementQueueKey;
    packet.psn = psn & 0xFFFFFFu;
    packet.payload.add(mad);
    return packet;
}

std::optional<std::span<const std::byte>> management_datagram(const Packet& packet) noexcept {
    if (packet.opcode != Opcode::kUdSendOnly || packet.queue_pair != kManagementQueuePair ||
        packet.queue_key != kManagementQueueKey || packet.payload.bytes != kMadBytes) {
        return std::nullopt;
    }
    return packet.payload.pieces[0];
}

std::optional<IpAddresses> decode_ip_addresses(std::span<const std::byte> data) noexcept {
    if (data.size() < kIpAddressBytes || get8(&data[0]) != 0) return std::nullopt;
    const std::uint8_t version = get8(&data[1]) >> 4;
    if (version != 4 && version != 6) return std::nullopt;
    IpAddresses addresses;
    addresses.v6 = version == 6;
    addresses.source_port = static_cast<std::uint16_t>(get(&data[2], 2));
    std::memcpy(addresses.source.data(), &data[4], 16);
    std::memcpy(addresses.destination.data(), &data[20], 16);
    for (Gid* gid : {&addresses.source, &addresses.destination}) {
        // On the wire an IPv4 address is in the last four of sixteen bytes.
        if (!addresses.v6) std::fill_n(gid->begin(), 10, std::uint8_t{0}), (*gid)[10] = (*gid)[11] = 0xFF;
    }
    return addresses;
}

void encode_ip_addresses(const IpAddresses& addresses, std::span<std::byte, kIpAddressBytes> out) noexcept {
    std::fill(out.begin(), out.end(), std::byte{0});
    put(&out[1], 1, (addresses.v6 ? 6u : 4u) << 4);
    put(&out[2], 2, addresses.source_port);
    const std::uint32_t skip = addresses.v6 ? 0 : 12;
    std::memcpy(&out[4 + skip], addresses.source.data() + skip, 16 - skip);
    std::memcpy(&out[20 + skip], addresses.destination.data() + skip, 16 - skip);
}

}  // namespace gnstor::rdma::roce
