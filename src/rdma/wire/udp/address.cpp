// address.cpp: address conversions, and the MTU of this machine's interfaces.
#include "rdma/wire/udp/address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace gnstor::rdma::udp {
namespace {

constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

}  // namespace

bool IpAddress::v4() const noexcept {
    return std::equal(kMapped.begin(), kMapped.end(), gid.begin());
}

std::string IpAddress::text() const {
    char buffer[INET6_ADDRSTRLEN] = "";
    if (v4()) {
        inet_ntop(AF_INET, gid.data() + kMapped.size(), buffer, sizeof buffer);
    } else {
        inet_ntop(AF_INET6, gid.data(), buffer, sizeof buffer);
    }
    return buffer;
}

Result<IpAddress> parse_address(const std::string& text) {
    IpAddress address;
    const auto refuse = [&](const char* why) {
        return error(Errc::kInvalidArgument, "'{}' cannot be an address of the udp wire: {}", text, why);
    };
    if (inet_pton(AF_INET, text.c_str(), address.gid.data() + kMapped.size()) == 1) {
        std::copy(kMapped.begin(), kMapped.end(), address.gid.begin());
        const std::uint8_t first = address.gid[kMapped.size()];
        if (first == 0 || first >= 224)
            return refuse("give the address of one machine, not a wildcard or multicast address");
        return address;
    }
    if (inet_pton(AF_INET6, text.c_str(), address.gid.data()) != 1)
        return refuse("give an IPv4 or IPv6 address without name or port, such as 10.77.0.1 or fd00::1");
    if (address.v4()) return refuse("write a mapped IPv4 address as a.b.c.d");
    const bool unspecified =
        std::all_of(address.gid.begin(), address.gid.end(), [](auto b) { return b == 0; });
    if (unspecified || address.gid[0] == 0xFF)
        return refuse("give the address of one machine, not a wildcard or multicast address");
    if (address.gid[0] == 0xFE && (address.gid[1] & 0xC0) == 0x80)
        return refuse(
            "a link-local address is ambiguous without its interface; give a global or private address");
    return address;
}

SocketAddress socket_address(const IpAddress& address, std::uint16_t port) noexcept {
    SocketAddress out;
    if (address.v4()) {
        sockaddr_in in{};
        in.sin_family = AF_INET;
        in.sin_port = htons(port);
        std::memcpy(&in.sin_addr, address.gid.data() + kMapped.size(), sizeof in.sin_addr);
        std::memcpy(&out.storage, &in, sizeof in);
        out.bytes = sizeof in;
    } else {
        sockaddr_in6 in{};
        in.sin6_family = AF_INET6;
        in.sin6_port = htons(port);
        std::memcpy(&in.sin6_addr, address.gid.data(), sizeof in.sin6_addr);
        std::memcpy(&out.storage, &in, sizeof in);
        out.bytes = sizeof in;
    }
    return out;
}

IpAddress from_socket_address(const sockaddr_storage& storage) noexcept {
    IpAddress address;
    if (storage.ss_family == AF_INET) {
        sockaddr_in in;
        std::memcpy(&in, &storage, sizeof in);
        std::copy(kMapped.begin(), kMapped.end(), address.gid.begin());
        std::memcpy(address.gid.data() + kMapped.size(), &in.sin_addr, sizeof in.sin_addr);
    } else if (storage.ss_family == AF_INET6) {
        sockaddr_in6 in;
        std::memcpy(&in, &storage, sizeof in);
        std::memcpy(address.gid.data(), &in.sin6_addr, sizeof in.sin6_addr);
    }
    return address;
}

Result<std::uint32_t> interface_mtu(const IpAddress& address) {
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0)
        return error(Errc::kIo, "cannot list this machine's addresses: {}", std::strerror(errno));
    std::string name;
    for (const ifaddrs* one = list; one != nullptr && name.empty(); one = one->ifa_next) {
        if (one->ifa_addr == nullptr) continue;
        const bool v4 = one->ifa_addr->sa_family == AF_INET;
        if (!v4 && one->ifa_addr->sa_family != AF_INET6) continue;
        sockaddr_storage storage{};
        std::memcpy(&storage, one->ifa_addr, v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
        const IpAddress has = from_socket_address(storage);
        // All of 127.0.0.0/8 belongs to the loopback interface.
        const bool loop =
            v4 && address.v4() && (one->ifa_flags & IFF_LOOPBACK) != 0 && address.gid[12] == 127;
        if (has == address || loop) name = one->ifa_name;
    }
    freeifaddrs(list);
    if (name.empty()) {
        return error(Errc::kNotFound, "no interface of this machine has the address {}; see 'ip address'",
                     address.text());
    }
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq request{};
    std::memcpy(request.ifr_name, name.data(), std::min(name.size(), sizeof request.ifr_name - 1));
    const bool got = fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0;
    const int why = errno;
    if (fd >= 0) ::close(fd);
    if (!got) return error(Errc::kIo, "cannot ask for the MTU of {}: {}", name, std::strerror(why));
    return static_cast<std::uint32_t>(request.ifr_mtu);
}

}  // namespace gnstor::rdma::udp
