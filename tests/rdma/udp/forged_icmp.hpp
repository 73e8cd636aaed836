// forged_icmp.hpp: "destination unreachable" in another machine's name, as anybody with CAP_NET_RAW can send
// it. RFC 792, 1191.
#pragma once

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace gnstor::rdma::udp::rig {

inline sockaddr_in to_address(const std::string& text, std::uint16_t port = 0) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, text.c_str(), &address.sin_addr);
    return address;
}

inline std::uint16_t checksum(std::span<const std::uint8_t> bytes) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < bytes.size(); i += 2) sum += bytes[i] * 256u + bytes[i + 1];
    while (sum > 0xFFFF) sum = (sum >> 16) + (sum & 0xFFFF);
    return static_cast<std::uint16_t>(~sum);
}

inline void put16(std::uint8_t* at, std::uint32_t value) {
    at[0] = static_cast<std::uint8_t>(value >> 8);
    at[1] = static_cast<std::uint8_t>(value);
}

struct ForgedIcmp {
    std::string sender;      ///< of the message
    std::string own, peer;   ///< a packet from `own`, who gets the message, to `peer` did not arrive
    std::uint16_t port = 0;  ///< UDP port of both
    std::uint8_t code = ICMP_PORT_UNREACH;
    std::uint16_t mtu = 0;  ///< ICMP_FRAG_NEEDED: what fits
};

/// False: this process may not (no CAP_NET_RAW). `quoted`: the first bytes of that packet's UDP payload, an
/// even number.
inline bool forge(const ForgedIcmp& what, std::span<const std::byte> quoted = {}) {
    const int fd = ::socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    if (fd < 0) return false;
    std::vector<std::uint8_t> message(8 + 20 + 8 + quoted.size());
    message[0] = ICMP_DEST_UNREACH;
    message[1] = what.code;
    put16(&message[6], what.mtu);
    std::uint8_t* const ip = &message[8];
    ip[0] = 0x45;
    put16(ip + 2, 4000);
    put16(ip + 6, 0x4000);
    ip[8] = 64;
    ip[9] = IPPROTO_UDP;
    const sockaddr_in sender = to_address(what.sender), from = to_address(what.own),
                      to = to_address(what.peer);
    std::memcpy(ip + 12, &from.sin_addr, 4);
    std::memcpy(ip + 16, &to.sin_addr, 4);
    put16(ip + 10, checksum(std::span(ip, 20)));
    put16(ip + 20, what.port);
    put16(ip + 22, what.port);
    put16(ip + 24, 3980);
    if (!quoted.empty()) std::memcpy(ip + 28, quoted.data(), quoted.size());
    put16(&message[2], checksum(message));
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&sender), sizeof sender), 0);
    EXPECT_EQ(
        sendto(fd, message.data(), message.size(), 0, reinterpret_cast<const sockaddr*>(&from), sizeof from),
        static_cast<ssize_t>(message.size()));
    close(fd);
    return true;
}

}  // namespace gnstor::rdma::udp::rig
