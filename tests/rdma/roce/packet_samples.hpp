// packet_samples.hpp: random packets of every operation that is sent, for tests. Deterministic under a seed.
#pragma once

#include <gnstor/base/hash.hpp>

#include "rdma/roce/icrc.hpp"
#include "rdma/roce/packet.hpp"

#include <vector>

namespace gnstor::rdma::roce::samples {

inline constexpr Opcode kSent[] = {
    Opcode::kSendFirst,          Opcode::kSendMiddle,         Opcode::kSendLast,
    Opcode::kSendOnly,           Opcode::kSendLastImmediate,  Opcode::kSendOnlyImmediate,
    Opcode::kWriteFirst,         Opcode::kWriteMiddle,        Opcode::kWriteLast,
    Opcode::kWriteOnly,          Opcode::kWriteLastImmediate, Opcode::kWriteOnlyImmediate,
    Opcode::kReadRequest,        Opcode::kReadResponseFirst,  Opcode::kReadResponseMiddle,
    Opcode::kReadResponseLast,   Opcode::kReadResponseOnly,   Opcode::kAcknowledge,
    Opcode::kSendLastInvalidate, Opcode::kSendOnlyInvalidate, Opcode::kUdSendOnly};

/// A packet whose payload lies in `storage`, in one to three pieces.
inline Packet make(SplitMix64& dice, std::vector<std::byte>& storage) {
    Packet packet;
    packet.opcode = kSent[dice.below(std::size(kSent))];
    const OpcodeTraits& has = traits(packet.opcode);
    packet.solicited = dice.below(2) == 0;
    packet.ack_request = dice.below(2) == 0;
    packet.queue_pair = static_cast<std::uint32_t>(dice.next()) & kQpMask;
    packet.psn = static_cast<std::uint32_t>(dice.next()) & 0xFFFFFFu;
    if (has.reth) {
        packet.address = dice.next();
        packet.rkey = static_cast<std::uint32_t>(dice.next());
        packet.length = static_cast<std::uint32_t>(dice.next());
    }
    if (has.aeth) {
        packet.syndrome = static_cast<std::uint8_t>(dice.next());
        packet.message_number = static_cast<std::uint32_t>(dice.next()) & 0xFFFFFFu;
    }
    if (has.ieth) packet.invalidate_rkey = static_cast<std::uint32_t>(dice.next());
    if (has.immediate) packet.immediate = static_cast<std::uint32_t>(dice.next());
    if (has.deth) {
        packet.queue_key = static_cast<std::uint32_t>(dice.next());
        packet.source_queue_pair = static_cast<std::uint32_t>(dice.next()) & kQpMask;
    }
    storage.clear();
    if (!has.payload) return packet;
    auto bytes = static_cast<std::uint32_t>(dice.below(dice.below(4) == 0 ? kMtuMax + 1 : 300));
    if (!has.last) bytes &= ~3u;
    storage.resize(bytes);
    for (auto& b : storage) b = static_cast<std::byte>(dice.next());
    const std::span<const std::byte> all(storage);
    const std::size_t a = dice.below(bytes + 1u), b = a + dice.below(bytes - a + 1u);
    packet.payload.add(all.first(a));
    packet.payload.add(all.subspan(a, b - a));
    packet.payload.add(all.subspan(b));
    return packet;
}

/// Network headers for a UDP payload of so many bytes; IPv6 every other time.
inline NetworkHeaders make_headers(SplitMix64& dice, std::uint32_t payload_bytes) {
    // Source ports carry entropy from this range on; below it, decoders take them for other protocols.
    const NetworkHeaders::Ports ports{static_cast<std::uint16_t>(0xC000u | dice.next()), kUdpPort};
    if (dice.below(2) == 0) {
        NetworkHeaders::Ipv6 ip;
        for (auto& b : ip.source) b = static_cast<std::uint8_t>(dice.next());
        for (auto& b : ip.destination) b = static_cast<std::uint8_t>(dice.next());
        ip.traffic_class = static_cast<std::uint8_t>(dice.next());
        ip.flow_label = static_cast<std::uint32_t>(dice.next()) & 0xFFFFFu;
        ip.hop_limit = static_cast<std::uint8_t>(1 + dice.below(255));
        return NetworkHeaders::make(ip, ports, payload_bytes);
    }
    NetworkHeaders::Ipv4 ip;
    for (auto& b : ip.source) b = static_cast<std::uint8_t>(dice.next());
    for (auto& b : ip.destination) b = static_cast<std::uint8_t>(dice.next());
    ip.identification = static_cast<std::uint16_t>(dice.next());
    ip.dont_fragment = dice.below(2) == 0;
    ip.type_of_service = static_cast<std::uint8_t>(dice.next());
    ip.time_to_live = static_cast<std::uint8_t>(1 + dice.below(255));
    return NetworkHeaders::make(ip, ports, payload_bytes);
}

}  // namespace gnstor::rdma::roce::samples
