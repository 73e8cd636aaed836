// ip_address.hpp: names of hosts, IP addresses, and which of them are this machine's. Any thread; the
// functions that take a name ask the system's resolver, which may block.
#pragma once

#include <gnstor/base/result.hpp>

#include <netdb.h>
#include <netinet/in.h>

#include <memory>
#include <string>
#include <vector>

namespace gnstor::daemon {

/// Whether the text is an IPv4 or IPv6 address (without brackets). Pure.
[[nodiscard]] bool is_ip_address(const std::string& text);

/// HOST:PORT, with brackets around an IPv6 address. Pure.
[[nodiscard]] std::string host_port(const std::string& host, int port);

using FoundAddresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// The stream-socket addresses of a name or an IP address; null: it has none.
[[nodiscard]] FoundAddresses addresses_of(const std::string& host, int port);

/// Whether it is in 127.0.0.0/8 or is ::1, or is such an IPv4 address mapped into IPv6. Pure.
[[nodiscard]] bool is_loopback_address(const sockaddr* address);

/// Whether `host` (a name or an IP address) has addresses, and all are loopback addresses.
[[nodiscard]] bool is_loopback(const std::string& host);

/// The addresses of `host` that lead to this machine: loopback addresses, the unspecified one, and those of the
/// machine's network interfaces; IPv4 addresses mapped into IPv6. kIo: the resolver has no address for it now,
/// or the machine does not say which addresses it has.
[[nodiscard]] Result<std::vector<in6_addr>> addresses_here(const std::string& host);
/// As text; an IPv4 address mapped into IPv6 as IPv4. Pure.
[[nodiscard]] std::string address_text(const in6_addr& address);
/// Whether it is 0.0.0.0 or ::, also mapped. Pure.
[[nodiscard]] bool is_unspecified(const in6_addr& address);

/// The machine's host name; empty: it has none.
[[nodiscard]] std::string host_name();

}  // namespace gnstor::daemon
