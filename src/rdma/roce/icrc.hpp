// icrc.hpp: the invariant CRC of a RoCEv2 packet.
//
// IBA volume 1, 7.8.1 (ICRC), with Annex A17.3.3 for RoCEv2: CRC-32 over eight bytes of ones (in place of
// InfiniBand's local route header), the IP header, the UDP header, and everything from the BTH to the end
// of the pad. Fields that a router may change are set to ones: IPv4 type of service, time to live and
// header checksum; IPv6 traffic class, flow label and hop limit; the UDP checksum; the byte of the BTH
// that holds FECN and BECN. The result is sent least significant byte first. IPv4's identification and
// fragment fields are covered, so a sender must know what its kernel writes there: 0 and "don't fragment"
// for an unconnected socket with path MTU discovery on. Pure; any thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gnstor::rdma::roce {

/// The IP and UDP headers of a packet, as bytes, without options or extensions (Annex A17 allows none).
class NetworkHeaders {
  public:
    struct Ipv4 {
        std::array<std::uint8_t, 4> source{};
        std::array<std::uint8_t, 4> destination{};
        std::uint16_t identification = 0;
        bool dont_fragment = true;
        std::uint8_t type_of_service = 0;
        std::uint8_t time_to_live = 64;
    };
    struct Ipv6 {
        std::array<std::uint8_t, 16> source{};
        std::array<std::uint8_t, 16> destination{};
        std::uint8_t traffic_class = 0;
        std::uint32_t flow_label = 0;
        std::uint8_t hop_limit = 64;
    };
    struct Ports {
        std::uint16_t source;
        std::uint16_t destination;
    };

    /// For a UDP payload of `payload_bytes` (transport headers, payload, pad and ICRC). Checksums are
    /// zero: the ICRC does not cover them.
    static NetworkHeaders make(const Ipv4& ip, Ports ports, std::uint32_t payload_bytes) noexcept;
    static NetworkHeaders make(const Ipv6& ip, Ports ports, std::uint32_t payload_bytes) noexcept;

    /// Headers of a datagram that begins with its IP header (raw socket, capture). kCorrupt: it is not
    /// UDP, is a fragment, has options, or its lengths are inconsistent. `payload_at` and `payload_bytes`
    /// return the position of the UDP payload.
    static Result<NetworkHeaders> parse(std::span<const std::byte> datagram, std::uint32_t& payload_at,
                                        std::uint32_t& payload_bytes);

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
        return {bytes_.data(), ip_bytes_ + 8u};
    }
    [[nodiscard]] std::uint32_t ip_bytes() const noexcept { return ip_bytes_; }

  private:
    std::array<std::byte, 48> bytes_{};
    std::uint32_t ip_bytes_ = 0;
};

/// The ICRC over `transport`: BTH to pad, without the ICRC itself; at least 12 bytes.
[[nodiscard]] std::uint32_t icrc(const NetworkHeaders& headers,
                                 std::span<const std::byte> transport) noexcept;

/// Whether the last four bytes of a UDP payload are its ICRC.
[[nodiscard]] bool icrc_is_good(const NetworkHeaders& headers,
                                std::span<const std::byte> udp_payload) noexcept;

/// Writes the ICRC into the last four bytes of a UDP payload that encode() made.
void seal(const NetworkHeaders& headers, std::span<std::byte> udp_payload) noexcept;

}  // namespace gnstor::rdma::roce
