// loopback_listener.hpp: who listens on a TCP port of this machine, from the kernel's tables.
//
// Over plain HTTP a client sends its token to the process that listens. On its own machine every user may
// listen on a port that gnstord has left, so the client asks the kernel first whose socket it is. Linux; any
// thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <netinet/in.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace gnstor::daemon {

/// Users whose sockets take connections to this address (IPv4 mapped into IPv6) and port, from the text of
/// /proc/net/tcp and tcp6 (proc_net_tcp(5)). Malformed lines are skipped. Pure.
[[nodiscard]] std::set<std::uint32_t> users_listening(std::string_view table, const in6_addr& address,
                                                      std::uint16_t port);

/// The address to connect to, if `host` leads to this machine: one on which this user or root listens at that
/// port. Empty: `host` is another machine. kPermission: another user listens there. kIo: nothing does, or it is
/// not known who.
[[nodiscard]] Result<std::string> trusted_listener(const std::string& host, std::uint16_t port);

}  // namespace gnstor::daemon
