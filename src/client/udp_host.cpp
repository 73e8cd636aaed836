#include "client/udp_host.hpp"

#include <gnstor/base/hash.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace gnstor::client {
namespace {

constexpr int kLoopbackTries = 64;

struct Address {
    sockaddr_storage bytes{};
    socklen_t length = 0;
};

Result<Address> parse(const std::string& text) {
    Address out;
    auto& v4 = reinterpret_cast<sockaddr_in&>(out.bytes);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(out.bytes);
    if (::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = htons(rdma::kRocePort);
        out.length = sizeof v4;
    } else if (::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(rdma::kRocePort);
        out.length = sizeof v6;
    } else {
        return error(Errc::kInvalidArgument,
                     "'{}' is not an IP address; the udp wire needs IP addresses, not host names", text);
    }
    return out;
}

std::string text_of(const sockaddr_storage& address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* bytes =
        address.ss_family == AF_INET
            ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
            : &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    (void)::inet_ntop(address.ss_family, bytes, text.data(), text.size());
    return text.data();
}

bool on_loopback(const std::string& address) {
    return address.rfind("127.", 0) == 0;
}

}  // namespace

Result<std::string> local_address_for(const std::string& peer) {
    GN_ASSIGN(const Address to, parse(peer));
    const int fd = ::socket(to.bytes.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error(Errc::kIo, "no socket can be opened to find the route to {}: {}", peer,
                     std::strerror(errno));
    // Sends nothing: connect() makes the kernel look up the route, and getsockname() returns its source
    // address.
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const bool known = ::connect(fd, reinterpret_cast<const sockaddr*>(&to.bytes), to.length) == 0 &&
                       ::getsockname(fd, reinterpret_cast<sockaddr*>(&from), &size) == 0;
    const int failed = errno;
    ::close(fd);
    if (!known)
        return error(Errc::kNotFound, "there is no route to {} ({}); see 'ip route get {}'", peer,
                     std::strerror(failed), peer);
    return text_of(from);
}

Result<void> UdpHost::bind(const std::string& address) {
    rdma::UdpWireOptions options;
    options.address = address;
    GN_ASSIGN(wire_, rdma::UdpWire::open(options, *reactor_));
    return {};
}

Result<void> UdpHost::bind_on_loopback() {
    // A random address above the low ones, which people give to nodes; seeded differently in every process.
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    SplitMix64 random(static_cast<std::uint64_t>(::getpid()) * 1'000'003u +
                      static_cast<std::uint64_t>(now.tv_nsec));
    Result<void> bound;
    for (int i = 0; i < kLoopbackTries; ++i) {
        bound = bind(
            fmt::format("127.{}.{}.{}", 64 + random.below(128), random.below(256), 1 + random.below(254)));
        if (bound.ok() || bound.error().code != Errc::kBusy) return bound;
    }
    return bound;
}

Result<std::unique_ptr<UdpHost>> UdpHost::open(const std::string& address, const std::string& peer) {
    std::unique_ptr<UdpHost> host(new UdpHost());
    GN_ASSIGN(host->reactor_, Reactor::start("gn-udp"));
    if (!address.empty()) {
        GN_TRY(host->bind(address));
    } else {
        GN_ASSIGN(const std::string here, local_address_for(peer));
        const bool same_machine = on_loopback(here) || (here == peer && here.find(':') == std::string::npos);
        GN_TRY(same_machine ? host->bind_on_loopback() : host->bind(here));
    }
    GN_ASSIGN(host->nic_, rdma::open_udp_nic(*host->wire_, rdma::NicOptions{}));
    return host;
}

UdpHost::~UdpHost() = default;

}  // namespace gnstor::client
