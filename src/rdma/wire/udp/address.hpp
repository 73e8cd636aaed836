// address.hpp: conversions of IP addresses between RoCE's form (a GID: an IPv6 address, or IPv4 as
// ::ffff:a.b.c.d), that of sockets, and text. Pure except interface_mtu(); any thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "rdma/roce/cm_messages.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace gnstor::rdma::udp {

/// One address of either family; equal ones have equal bytes.
struct IpAddress {
    roce::Gid gid{};

    [[nodiscard]] bool v4() const noexcept;
    [[nodiscard]] std::string text() const;
    bool operator==(const IpAddress&) const = default;
};

/// "10.77.0.1", "fd00::1". kInvalidArgument: names, ports, the unspecified address, multicast, and
/// link-local IPv6, which is ambiguous without an interface.
Result<IpAddress> parse_address(const std::string& text);

/// A socket address as the system calls take it.
struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t bytes = 0;
};
[[nodiscard]] SocketAddress socket_address(const IpAddress& address, std::uint16_t port) noexcept;
/// Converts what a system call returned; the zero address for other families.
[[nodiscard]] IpAddress from_socket_address(const sockaddr_storage& storage) noexcept;

/// MTU of the interface that has `address`. kNotFound: not an address of this machine.
Result<std::uint32_t> interface_mtu(const IpAddress& address);

}  // namespace gnstor::rdma::udp
