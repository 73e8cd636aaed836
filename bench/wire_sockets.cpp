// wire_sockets.cpp: what plain sockets of this kernel do between the same two addresses: the ceiling of
// anything that goes through them. Sender and receiver on a thread each; every wait has a deadline.
#include "wire.hpp"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace gnstor::bench::wire_bench {
namespace {

constexpr int kReceiveBuffer = 8 << 20;
constexpr std::uint32_t kBatch = 32;

class Socket {
  public:
    explicit Socket(int fd = -1) : fd_(fd) {}
    ~Socket() {
        if (fd_ >= 0) ::close(fd_);
    }
    Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    [[nodiscard]] int fd() const { return fd_; }

  private:
    int fd_;
};

struct Address {
    sockaddr_storage storage{};
    socklen_t bytes = 0;
};

Result<Address> parse(const std::string& text) {
    Address a;
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&a.storage);
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&a.storage);
    if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        a.bytes = sizeof *v4;
    } else if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        a.bytes = sizeof *v6;
    } else {
        return error(Errc::kInvalidArgument, "'{}' is no IP address", text);
    }
    return a;
}

/// A socket bound to any port of `at`; `at` gets the port.
Result<Socket> bound(int type, Address& at) {
    Socket s(::socket(at.storage.ss_family, type | SOCK_CLOEXEC, 0));
    auto* const generic = reinterpret_cast<sockaddr*>(&at.storage);
    if (s.fd() < 0 || ::bind(s.fd(), generic, at.bytes) != 0 ||
        ::getsockname(s.fd(), generic, &at.bytes) != 0)
        return error(Errc::kIo, "cannot bind a socket: {}", std::strerror(errno));
    timeval patience{.tv_sec = 0, .tv_usec = 50'000};
    ::setsockopt(s.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(s.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    ::setsockopt(s.fd(), SOL_SOCKET, SO_RCVBUF, &kReceiveBuffer, sizeof kReceiveBuffer);
    return s;
}

/// The same message kBatch times, for sendmmsg and recvmmsg.
struct Batch {
    explicit Batch(std::uint32_t bytes) : memory(std::size_t{kBatch} * bytes) {
        for (std::uint32_t i = 0; i < kBatch; ++i) {
            pieces[i] = {memory.data() + std::size_t{i} * bytes, bytes};
            messages[i].msg_hdr.msg_iov = &pieces[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
    }
    std::vector<std::byte> memory;
    std::array<iovec, kBatch> pieces{};
    std::array<mmsghdr, kBatch> messages{};
};

using Clock = std::chrono::steady_clock;

Clock::time_point end_of(const Work& work) {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(work.seconds));
}

Repeat repeat_from(Clock::time_point began, std::uint64_t bytes, std::uint32_t each, double cpu_before) {
    Repeat r;
    r.seconds = std::chrono::duration<double>(Clock::now() - began).count();
    r.bytes = bytes;
    r.operations = bytes / each;
    r.engine_cpu_seconds = process_cpu_seconds() - cpu_before;
    return r;
}

}  // namespace

double process_cpu_seconds() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

Result<Repeat> run_udp_sockets(const Work& work, const std::string& from, const std::string& to,
                               std::uint32_t datagram_bytes) {
    GN_ASSIGN(Address source, parse(from));
    GN_ASSIGN(Address target, parse(to));
    GN_ASSIGN(const Socket sender, bound(SOCK_DGRAM, source));
    GN_ASSIGN(const Socket receiver, bound(SOCK_DGRAM, target));
    if (::connect(sender.fd(), reinterpret_cast<const sockaddr*>(&target.storage), target.bytes) != 0)
        return error(Errc::kIo, "cannot connect a UDP socket to {}: {}", to, std::strerror(errno));
    const double cpu = process_cpu_seconds();
    const auto began = Clock::now(), end = end_of(work);
    std::atomic<std::uint64_t> arrived{0};
    std::thread reading([&] {
        Batch batch(datagram_bytes);
        while (Clock::now() < end) {
            const int n = ::recvmmsg(receiver.fd(), batch.messages.data(), kBatch, MSG_WAITFORONE, nullptr);
            for (int i = 0; i < n; ++i) arrived += batch.messages[static_cast<std::size_t>(i)].msg_len;
        }
    });
    Batch batch(datagram_bytes);
    std::uint64_t sent = 0;
    while (Clock::now() < end) {
        const int n = ::sendmmsg(sender.fd(), batch.messages.data(), kBatch, 0);
        if (n > 0) sent += static_cast<std::uint64_t>(n) * datagram_bytes;
    }
    reading.join();
    Repeat r = repeat_from(began, arrived, work.bytes, cpu);
    r.more["lost_share"] =
        sent == 0 ? 0 : 1 - static_cast<double>(arrived.load()) / static_cast<double>(sent);
    return r;
}

Result<Repeat> run_tcp_socket(const Work& work, const std::string& from, const std::string& to) {
    GN_ASSIGN(Address source, parse(from));
    GN_ASSIGN(Address target, parse(to));
    GN_ASSIGN(const Socket sender, bound(SOCK_STREAM, source));
    GN_ASSIGN(const Socket listener, bound(SOCK_STREAM, target));
    if (::listen(listener.fd(), 1) != 0 ||
        ::connect(sender.fd(), reinterpret_cast<const sockaddr*>(&target.storage), target.bytes) != 0)
        return error(Errc::kIo, "cannot connect a TCP socket to {}: {}", to, std::strerror(errno));
    const Socket receiver(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (receiver.fd() < 0) return error(Errc::kIo, "cannot accept on {}: {}", to, std::strerror(errno));
    timeval patience{.tv_sec = 0, .tv_usec = 50'000};
    ::setsockopt(receiver.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const double cpu = process_cpu_seconds();
    const auto began = Clock::now(), end = end_of(work);
    std::uint64_t arrived = 0;
    std::thread reading([&] {
        std::vector<std::byte> room(work.bytes);
        while (Clock::now() < end) {
            const ssize_t n = ::recv(receiver.fd(), room.data(), room.size(), MSG_WAITALL);
            if (n > 0) arrived += static_cast<std::uint64_t>(n);
        }
    });
    const std::vector<std::byte> message(work.bytes);
    while (Clock::now() < end) (void)!::send(sender.fd(), message.data(), message.size(), MSG_NOSIGNAL);
    reading.join();
    return repeat_from(began, arrived, work.bytes, cpu);
}

}  // namespace gnstor::bench::wire_bench
