// cm_samples.hpp: random messages of connection management, for tests. Deterministic under a seed.
#pragma once

#include <gnstor/base/hash.hpp>

#include "rdma/roce/cm_messages.hpp"

namespace gnstor::rdma::roce::samples {

inline constexpr CmKind kCmKinds[] = {CmKind::kRequest,     CmKind::kReceipt,    CmKind::kReject,
                                      CmKind::kReply,       CmKind::kReadyToUse, CmKind::kDisconnect,
                                      CmKind::kDisconnected};

/// Every field that the kind carries is set; the others keep what a decoded message has there.
inline CmMessage make_cm(SplitMix64& dice, CmKind kind) {
    CmMessage m;
    m.kind = kind;
    m.transaction = dice.next();
    m.local_id = static_cast<std::uint32_t>(dice.next());
    if (kind != CmKind::kRequest) m.remote_id = static_cast<std::uint32_t>(dice.next());
    const bool request = kind == CmKind::kRequest, reply = kind == CmKind::kReply;
    if (request || reply || kind == CmKind::kDisconnect)
        m.queue_pair = static_cast<std::uint32_t>(dice.next()) & kQpMask;
    if (request || reply) {
        m.ca_guid = dice.next();
        m.start_psn = static_cast<std::uint32_t>(dice.next()) & 0xFFFFFFu;
        m.responder_resources = static_cast<std::uint8_t>(dice.next());
        m.initiator_depth = static_cast<std::uint8_t>(dice.next());
        m.rnr_retries = static_cast<std::uint8_t>(dice.below(8));
        m.flow_control = dice.below(2) == 0;
    }
    if (request) {
        m.service_id = service_of_port(static_cast<std::uint16_t>(dice.next()));
        for (Gid* gid : {&m.local_gid, &m.remote_gid}) {
            *gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 1, static_cast<std::uint8_t>(dice.next()),
                    3};
        }
        m.mtu_code = static_cast<std::uint8_t>(1 + dice.below(5));
        m.transport_service = static_cast<std::uint8_t>(dice.below(8) == 0 ? dice.below(4) : 0);
        m.partition_key =
            dice.below(8) == 0 ? static_cast<std::uint16_t>(dice.next()) : std::uint16_t{kDefaultPkey};
        m.retry_count = static_cast<std::uint8_t>(dice.below(8));
        m.ack_timeout = static_cast<std::uint8_t>(dice.below(32));
        m.response_timeout = static_cast<std::uint8_t>(dice.below(32));
        m.cm_retries = static_cast<std::uint8_t>(dice.below(16));
        m.hop_limit = static_cast<std::uint8_t>(dice.next());
    }
    if (kind == CmKind::kReject || kind == CmKind::kReceipt)
        m.about = static_cast<std::uint8_t>(dice.below(3));
    if (kind == CmKind::kReject) m.reason = static_cast<RejectReason>(1 + dice.below(30));
    if (m.reason == RejectReason::kTimeout) m.ca_guid = dice.next();
    if (kind == CmKind::kReceipt) m.service_timeout = static_cast<std::uint8_t>(dice.below(32));
    m.private_bytes = private_room(kind);
    for (std::uint32_t i = 0; i < m.private_bytes; ++i)
        m.private_data[i] = static_cast<std::byte>(dice.next());
    if (request) {
        IpAddresses addresses;
        addresses.source = m.local_gid;
        addresses.destination = m.remote_gid;
        addresses.source_port = static_cast<std::uint16_t>(dice.next());
        encode_ip_addresses(addresses, std::span(m.private_data).first<kIpAddressBytes>());
    }
    return m;
}

}  // namespace gnstor::rdma::roce::samples
