// socket_table.hpp: the kernel's tables of TCP and UDP sockets, /proc/net/{tcp,tcp6,udp,udp6}
// (proc_net_tcp(5)). Pure; any thread.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::daemon {

struct SocketRow {
    std::string address;  ///< the local one, in the table's hexadecimal form
    std::uint16_t port = 0;
    std::uint8_t state = 0;
    std::uint32_t user = 0;
    std::uint64_t inode = 0;
};
inline constexpr std::uint8_t kSocketListens = 0x0A;  ///< TCP_LISTEN

/// The row's address, IPv4 mapped into IPv6; nullopt: the text is none.
[[nodiscard]] std::optional<in6_addr> address_of(const SocketRow& row);

/// Malformed lines, and the headings, are skipped.
[[nodiscard]] std::vector<SocketRow> read_socket_table(std::string_view table);

}  // namespace gnstor::daemon
