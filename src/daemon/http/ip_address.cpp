#include "daemon/http/ip_address.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace gnstor::daemon {
namespace {

/// IPv4 addresses as the IPv6 addresses into which they are mapped (RFC 4291, 2.5.5.2); `::` for other
/// families.
in6_addr as_ipv6(const sockaddr* address) {
    in6_addr out{};
    if (address->sa_family == AF_INET6) {
        sockaddr_in6 v6{};
        std::memcpy(&v6, address, sizeof(v6));
        return v6.sin6_addr;
    }
    if (address->sa_family != AF_INET) return out;
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof(v4));
    out.s6_addr[10] = out.s6_addr[11] = 0xff;
    std::memcpy(&out.s6_addr[12], &v4.sin_addr, sizeof(v4.sin_addr));
    return out;
}

}  // namespace

bool is_ip_address(const std::string& text) {
    in6_addr bytes{};
    return ::inet_pton(AF_INET, text.c_str(), &bytes) == 1 ||
           ::inet_pton(AF_INET6, text.c_str(), &bytes) == 1;
}

std::string host_port(const std::string& host, int port) {
    return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                               : fmt::format("[{}]:{}", host, port);
}

FoundAddresses addresses_of(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) found = nullptr;
    return {found, &::freeaddrinfo};
}

bool is_loopback_address(const sockaddr* address) {
    constexpr std::uint8_t kNet = 127;  // 127.0.0.0/8: RFC 1122, 3.2.1.3
    const in6_addr v6 = as_ipv6(address);
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == kNet);
}

bool is_loopback(const std::string& host) {
    const FoundAddresses all = addresses_of(host, 0);
    for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next)
        if (!is_loopback_address(one->ai_addr)) return false;
    return all != nullptr;
}

bool is_unspecified(const in6_addr& address) {
    in6_addr tail = address;  // of a mapped address: the IPv4 address alone
    if (IN6_IS_ADDR_V4MAPPED(&address)) tail.s6_addr[10] = tail.s6_addr[11] = 0;
    return IN6_IS_ADDR_UNSPECIFIED(&tail) != 0;
}

std::string address_text(const in6_addr& address) {
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&address) != 0;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* const bytes = mapped ? &address.s6_addr[12] : &address.s6_addr[0];
    return ::inet_ntop(mapped ? AF_INET : AF_INET6, bytes, text.data(), text.size());
}

Result<std::vector<in6_addr>> addresses_here(const std::string& host) {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0)
        return error(Errc::kIo, "the addresses of this machine's network interfaces cannot be read: {}",
                     std::strerror(errno));
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(list, &::freeifaddrs);
    const FoundAddresses all = addresses_of(host, 0);
    if (all == nullptr)
        return error(Errc::kIo,
                     "the name '{}' has no address; check its spelling, and the resolver of this machine "
                     "('getent ahosts {}')",
                     host, host);
    std::vector<in6_addr> here;
    for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
        const in6_addr address = as_ipv6(one->ai_addr);
        bool ours = is_loopback_address(one->ai_addr) || is_unspecified(address);
        for (const ifaddrs* own = interfaces.get(); own != nullptr && !ours; own = own->ifa_next) {
            if (own->ifa_addr == nullptr) continue;
            const in6_addr mine = as_ipv6(own->ifa_addr);
            ours = !is_unspecified(mine) && IN6_ARE_ADDR_EQUAL(&mine, &address);
        }
        if (ours) here.push_back(address);
    }
    return here;
}

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace gnstor::daemon
