// raw_peer.hpp: one who speaks RoCE and its connection management from a plain UDP socket, as badly as a test
// wants it to: under an address of its own, or under another's, whose answers then go to whoever has that.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "rdma/udp/stranger.hpp"

namespace gnstor::rdma::udp::rig {

class RawPeer : public Stranger {
  public:
    /// `own_port` 0: any but the wire's own, which belongs to whoever is forged.
    RawPeer(const std::string& own, std::uint16_t own_port, const std::string& to, std::uint16_t port)
        : Stranger(own.c_str(), port, own_port, to.c_str()) {}

    using Stranger::send;
    void send(const roce::CmMessage& message) {
        std::array<std::byte, roce::kMadBytes> mad;
        roce::encode_cm(message, mad);
        Stranger::send(roce::management_packet(mad, psn_++));
    }
    /// The next message of that kind; others are passed over.
    std::optional<roce::CmMessage> await(roce::CmKind kind) {
        roce::Packet packet;
        const auto deadline = std::chrono::steady_clock::now() + kPatience;
        while (std::chrono::steady_clock::now() < deadline && receive(packet, kPatience)) {
            const auto mad = roce::management_datagram(packet);
            const auto message = mad ? roce::decode_cm(*mad) : std::nullopt;
            if (message && message->kind == kind) return message;
        }
        return std::nullopt;
    }

    /// A REQ from its queue pair `qp`, as NVMe hosts send it where `private_data` is theirs.
    [[nodiscard]] static roce::CmMessage request(std::uint32_t id, std::uint32_t qp,
                                                 std::span<const std::byte> private_data = {}) {
        roce::CmMessage req = connection_request(id);
        req.queue_pair = qp;
        std::copy(private_data.begin(), private_data.end(), req.private_data.begin() + roce::kIpAddressBytes);
        return req;
    }
    /// What its sender of `to` answers with.
    [[nodiscard]] static roce::CmMessage answer(const roce::CmMessage& to, roce::CmKind kind) {
        roce::CmMessage message;
        message.kind = kind;
        message.transaction = to.transaction;
        message.local_id = to.remote_id;
        message.remote_id = to.local_id;
        return message;
    }
    /// "Got your REP, wait": for as long as can be said.
    [[nodiscard]] static roce::CmMessage patience(const roce::CmMessage& reply) {
        roce::CmMessage message = answer(reply, roce::CmKind::kReceipt);
        message.about = 1;
        message.service_timeout = 31;
        return message;
    }

  private:
    std::uint32_t psn_ = 0;
};

}  // namespace gnstor::rdma::udp::rig
