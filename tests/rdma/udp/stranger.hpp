// stranger.hpp: who sends packets by hand, to the right of a rig's pair if nobody else is named, from a plain
// UDP socket on an address of its own. One thread at a time.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "rdma/roce/cm_messages.hpp"
#include "rdma/udp/rig.hpp"

namespace gnstor::rdma::udp::rig {

/// A plain socket on an address of its own, which seals packets as a good citizen does, if asked to.
class Stranger {
  public:
    /// `own_port`: `port` for one that is answered, which wires do at the port that all have; 0: any.
    Stranger(const char* address, std::uint16_t port, std::uint16_t own_port = 0,
             const char* to = "127.0.0.3")
        : port_(port) {
        fd_ = ::socket(AF_INET, SOCK_DGRAM, 0);
        const int discover = IP_PMTUDISC_DO;
        setsockopt(fd_, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
        own_.sin_family = to_.sin_family = AF_INET;
        inet_pton(AF_INET, address, &own_.sin_addr);
        own_.sin_port = htons(own_port);
        EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&own_), sizeof own_), 0);
        socklen_t bytes = sizeof own_;
        getsockname(fd_, reinterpret_cast<sockaddr*>(&own_), &bytes);
        inet_pton(AF_INET, to, &to_.sin_addr);
        to_.sin_port = htons(port);
    }
    ~Stranger() { close(fd_); }
    void send(std::span<const std::byte> bytes) {
        EXPECT_EQ(
            sendto(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to_), sizeof to_),
            static_cast<ssize_t>(bytes.size()));
        ++sent;
    }
    void send(const roce::Packet& packet, std::uint32_t spoil = 0) { send(sealed(packet, spoil)); }
    /// `spoil`: bits of the ICRC that are wrong.
    std::vector<std::byte> sealed(const roce::Packet& packet, std::uint32_t spoil = 0) {
        std::vector<std::byte> bytes(roce::encoded_bytes(packet));
        EXPECT_TRUE(roce::encode(packet, bytes).ok());
        roce::NetworkHeaders::Ipv4 ip;
        std::memcpy(ip.source.data(), &own_.sin_addr, 4);
        std::memcpy(ip.destination.data(), &to_.sin_addr, 4);
        const auto size = static_cast<std::uint32_t>(bytes.size());
        roce::seal(roce::NetworkHeaders::make(ip, {ntohs(own_.sin_port), port_}, size), bytes);
        std::uint32_t crc = 0;
        std::memcpy(&crc, bytes.data() + size - 4, 4);
        crc ^= spoil;
        std::memcpy(bytes.data() + size - 4, &crc, 4);
        return bytes;
    }
    /// The next packet that came for it, by its form alone; false: none within so long.
    bool receive(roce::Packet& packet, std::chrono::milliseconds most) {
        for (pollfd one{fd_, POLLIN, 0}; ::poll(&one, 1, static_cast<int>(most.count())) == 1;) {
            const ssize_t got = recv(fd_, came_.data(), came_.size(), 0);
            if (got < 0) continue;  // an ICMP message
            if (roce::decode(std::span(came_).first(static_cast<std::size_t>(got)), packet) ==
                roce::DecodeVerdict::kGood)
                return true;
        }
        return false;
    }
    std::uint64_t sent = 0;

  private:
    int fd_;
    const std::uint16_t port_;
    sockaddr_in own_{}, to_{};
    std::array<std::byte, 8192> came_;
};

/// 64 bytes or so where a rig's endpoint has memory.
inline roce::Packet write_packet(std::uint32_t qp, std::uint32_t psn, std::span<const std::byte> payload) {
    roce::Packet packet;
    packet.opcode = roce::Opcode::kWriteOnly;
    packet.ack_request = true;
    packet.queue_pair = qp;
    packet.psn = psn;
    packet.address = 16;
    packet.rkey = kKey;
    packet.length = static_cast<std::uint32_t>(payload.size());
    packet.payload.add(payload);
    return packet;
}

/// A REQ for port 4420; equal numbers are one connection.
inline roce::CmMessage connection_request(std::uint32_t number) {
    roce::CmMessage req;
    req.kind = roce::CmKind::kRequest;
    req.transaction = number;
    req.local_id = number;
    req.queue_pair = 2 + number;
    req.mtu_code = 3;
    req.service_id = roce::service_of_port(4420);
    req.responder_resources = req.initiator_depth = 4;
    req.private_bytes = 92;
    roce::encode_ip_addresses({}, std::span(req.private_data).first<roce::kIpAddressBytes>());
    return req;
}

}  // namespace gnstor::rdma::udp::rig
