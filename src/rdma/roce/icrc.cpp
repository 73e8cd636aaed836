// icrc.cpp: builds network headers, masks them, and computes the CRC.
#include "rdma/roce/icrc.hpp"

#include <gnstor/base/endian.hpp>

#include "rdma/roce/crc32.hpp"
#include "rdma/roce/headers.hpp"
#include "rdma/roce/mutation.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::rdma::roce {
namespace {

constexpr std::uint32_t kIpv4Bytes = 20, kIpv6Bytes = 40, kUdpBytes = 8;
constexpr std::uint8_t kUdpProtocol = 17;
constexpr std::byte kOnes{0xFF};

void put16(std::byte* at, std::uint16_t value) noexcept {
    const std::uint16_t wire = be16(value);
    std::memcpy(at, &wire, 2);
}
std::uint16_t get16(const std::byte* at) noexcept {
    std::uint16_t wire = 0;
    std::memcpy(&wire, at, 2);
    return be16(wire);
}
void put_udp(std::byte* at, NetworkHeaders::Ports ports, std::uint32_t payload_bytes) noexcept {
    put16(at, ports.source);
    put16(at + 2, ports.destination);
    put16(at + 4, static_cast<std::uint16_t>(kUdpBytes + payload_bytes));
}

}  // namespace

NetworkHeaders NetworkHeaders::make(const Ipv4& ip, Ports ports, std::uint32_t payload_bytes) noexcept {
    NetworkHeaders headers;
    std::byte* at = headers.bytes_.data();
    headers.ip_bytes_ = kIpv4Bytes;
    at[0] = std::byte{0x45};
    at[1] = std::byte{ip.type_of_service};
    put16(at + 2, static_cast<std::uint16_t>(kIpv4Bytes + kUdpBytes + payload_bytes));
    put16(at + 4, ip.identification);
    put16(at + 6, ip.dont_fragment ? 0x4000 : 0);
    at[8] = std::byte{ip.time_to_live};
    at[9] = std::byte{kUdpProtocol};
    std::memcpy(at + 12, ip.source.data(), 4);
    std::memcpy(at + 16, ip.destination.data(), 4);
    put_udp(at + kIpv4Bytes, ports, payload_bytes);
    return headers;
}

NetworkHeaders NetworkHeaders::make(const Ipv6& ip, Ports ports, std::uint32_t payload_bytes) noexcept {
    NetworkHeaders headers;
    std::byte* at = headers.bytes_.data();
    headers.ip_bytes_ = kIpv6Bytes;
    const std::uint32_t first =
        be32((6u << 28) | (std::uint32_t{ip.traffic_class} << 20) | (ip.flow_label & 0xFFFFFu));
    std::memcpy(at, &first, 4);
    put16(at + 4, static_cast<std::uint16_t>(kUdpBytes + payload_bytes));
    at[6] = std::byte{kUdpProtocol};
    at[7] = std::byte{ip.hop_limit};
    std::memcpy(at + 8, ip.source.data(), 16);
    std::memcpy(at + 24, ip.destination.data(), 16);
    put_udp(at + kIpv6Bytes, ports, payload_bytes);
    return headers;
}

Result<NetworkHeaders> NetworkHeaders::parse(std::span<const std::byte> datagram, std::uint32_t& payload_at,
                                             std::uint32_t& payload_bytes) {
    const auto refuse = [&](const char* why) {
        return error(Errc::kCorrupt, "a datagram of {} bytes is not a RoCEv2 packet: {}", datagram.size(),
                     why);
    };
    if (datagram.size() < kIpv4Bytes + kUdpBytes) return refuse("too short for its headers");
    const std::byte* at = datagram.data();
    NetworkHeaders headers;
    std::uint32_t total = 0;
    if (std::to_integer<unsigned>(at[0]) >> 4 == 4) {
        headers.ip_bytes_ = kIpv4Bytes;
        if (at[0] != std::byte{0x45}) return refuse("its IPv4 header has options");
        if (at[9] != std::byte{kUdpProtocol}) return refuse("it is not UDP");
        if ((get16(at + 6) & 0x3FFFu) != 0) return refuse("it is a fragment");
        total = get16(at + 2);
    } else if (std::to_integer<unsigned>(at[0]) >> 4 == 6 && datagram.size() >= kIpv6Bytes + kUdpBytes) {
        headers.ip_bytes_ = kIpv6Bytes;
        if (at[6] != std::byte{kUdpProtocol}) return refuse("it is not UDP, or has extension headers");
        total = kIpv6Bytes + get16(at + 4);
    } else {
        return refuse("it is neither IPv4 nor IPv6");
    }
    const std::uint32_t udp_bytes = get16(at + headers.ip_bytes_ + 4);
    if (total > datagram.size() || udp_bytes < kUdpBytes || headers.ip_bytes_ + udp_bytes != total) {
        return refuse("its IP and UDP lengths contradict each other");
    }
    std::memcpy(headers.bytes_.data(), at, headers.ip_bytes_ + kUdpBytes);
    payload_at = headers.ip_bytes_ + kUdpBytes;
    payload_bytes = udp_bytes - kUdpBytes;
    return headers;
}

std::uint32_t icrc(const NetworkHeaders& headers, std::span<const std::byte> transport) noexcept {
    // Ones for the local route header, the masked network headers, the masked BTH; then the rest
    // unchanged.
    std::array<std::byte, 8 + kIpv6Bytes + kUdpBytes + sizeof(Bth)> prefix{};
    const std::uint32_t ip_bytes = headers.ip_bytes();
    std::byte* at = std::fill_n(prefix.data(), 8, kOnes);
    std::memcpy(at, headers.bytes().data(), headers.bytes().size());
    if (ip_bytes == kIpv4Bytes) {
        at[1] = at[8] = at[10] = at[11] = kOnes;
    } else {
        at[0] |= std::byte{0x0F};
        at[1] = at[2] = at[3] = at[7] = kOnes;
    }
    at += ip_bytes;
    at[6] = at[7] = kOnes;
    at += kUdpBytes;
    std::memcpy(at, transport.data(), sizeof(Bth));
    at[4] = kOnes;
    at += sizeof(Bth);
    const std::uint32_t crc = crc32({prefix.data(), static_cast<std::size_t>(at - prefix.data())});
    return crc32(transport.subspan(sizeof(Bth)), crc);
}

bool icrc_is_good(const NetworkHeaders& headers, std::span<const std::byte> udp_payload) noexcept {
    if (udp_payload.size() < sizeof(Bth) + kIcrcBytes) return false;
    if (planted(Mutation::kSkipIcrc)) return true;
    // Little endian on the wire, like every supported machine (gnstor/base/endian.hpp).
    std::uint32_t sent = 0;
    std::memcpy(&sent, udp_payload.data() + udp_payload.size() - kIcrcBytes, kIcrcBytes);
    return icrc(headers, udp_payload.first(udp_payload.size() - kIcrcBytes)) == sent;
}

void seal(const NetworkHeaders& headers, std::span<std::byte> udp_payload) noexcept {
    const std::uint32_t crc = icrc(headers, udp_payload.first(udp_payload.size() - kIcrcBytes));
    std::memcpy(udp_payload.data() + udp_payload.size() - kIcrcBytes, &crc, kIcrcBytes);
}

}  // namespace gnstor::rdma::roce
