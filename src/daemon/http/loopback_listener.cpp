#include "daemon/http/loopback_listener.hpp"

#include "daemon/http/ip_address.hpp"
#include "daemon/http/socket_table.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace gnstor::daemon {
namespace {

std::string text_of(const char* file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Whether a socket that listens on `listening` takes connections to `wanted`. The unspecified address of a
/// destination is the loopback address (Linux), so any listener of the port may be meant.
bool takes(const in6_addr& listening, const in6_addr& wanted) {
    return IN6_ARE_ADDR_EQUAL(&listening, &wanted) || is_unspecified(listening) || is_unspecified(wanted);
}

}  // namespace

std::set<std::uint32_t> users_listening(std::string_view table, const in6_addr& address, std::uint16_t port) {
    std::set<std::uint32_t> users;
    for (const SocketRow& row : read_socket_table(table)) {
        if (row.state != kSocketListens || row.port != port) continue;
        const std::optional<in6_addr> listening = address_of(row);
        if (!listening || takes(*listening, address)) users.insert(row.user);
    }
    return users;
}

Result<std::string> trusted_listener(const std::string& host, std::uint16_t port) {
    // A name without an address now might have one when it is connected to: it gets no token either.
    GN_ASSIGN(const std::vector<in6_addr> here, addresses_here(host));
    if (here.empty()) return std::string();
    const std::string table = text_of("/proc/net/tcp") + text_of("/proc/net/tcp6");
    std::string served;
    for (const in6_addr& address : here) {
        const std::set<std::uint32_t> users = users_listening(table, address, port);
        for (const std::uint32_t user : users)
            if (user != 0 && user != ::geteuid())
                return error(
                    Errc::kPermission,
                    "user {} of this machine listens on port {} of {}, and would get your token over "
                    "plain HTTP; if that is gnstord, start it with --tls and use https://",
                    user, port, host);
        if (!users.empty() && served.empty()) served = address_text(address);
    }
    // Nor is the token sent where nothing listens yet: another user could begin to before the connection is
    // made. While gnstord listens, no other user can.
    if (served.empty())
        return error(Errc::kIo,
                     "nothing listens on port {} of {}, which is this machine: gnstord does not run, or "
                     "serves another address ('gnstor status' in its folder shows it)",
                     port, host);
    return served;
}

}  // namespace gnstor::daemon
