// wire_sockets.cpp: opening sockets, and TCP; see wire_sockets.hpp.
#include "wire_sockets.hpp"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

namespace gnstor::bench::wire_bench {

namespace {
constexpr int kReceiveBuffer = 8 << 20;  // what the udp wire asks for
}

Socket::~Socket() {
    if (fd_ >= 0) ::close(fd_);
}

Result<SocketPlace> parse_place(const std::string& text) {
    SocketPlace a;
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&a.storage);
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&a.storage);
    if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        a.bytes = sizeof *v4;
    } else if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        a.bytes = sizeof *v6;
    } else {
        return error(Errc::kInvalidArgument, "'{}' is not an IP address", text);
    }
    return a;
}

void bound_waits(int fd) {
    const timeval patience{.tv_sec = 0, .tv_usec = 50'000};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

Result<Socket> bound_socket(int type, SocketPlace& at) {
    Socket s(::socket(at.storage.ss_family, type | SOCK_CLOEXEC, 0));
    auto* const generic = reinterpret_cast<sockaddr*>(&at.storage);
    if (s.fd() < 0 || ::bind(s.fd(), generic, at.bytes) != 0 ||
        ::getsockname(s.fd(), generic, &at.bytes) != 0)
        return error(Errc::kIo, "cannot bind a socket: {}", std::strerror(errno));
    bound_waits(s.fd());
    // Beyond the system's limit only with a privilege, as the udp wire does it.
    if (::setsockopt(s.fd(), SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBuffer, sizeof kReceiveBuffer) != 0)
        ::setsockopt(s.fd(), SOL_SOCKET, SO_RCVBUF, &kReceiveBuffer, sizeof kReceiveBuffer);
    return s;
}

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

double process_cpu_seconds() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

Result<Repeat> run_tcp_socket(const Work& work, const std::string& from, const std::string& to) {
    GN_ASSIGN(SocketPlace source, parse_place(from));
    GN_ASSIGN(SocketPlace target, parse_place(to));
    GN_ASSIGN(const Socket sender, bound_socket(SOCK_STREAM, source));
    GN_ASSIGN(const Socket listener, bound_socket(SOCK_STREAM, target));
    if (::listen(listener.fd(), 1) != 0 || ::connect(sender.fd(), target.generic(), target.bytes) != 0)
        return error(Errc::kIo, "cannot connect a TCP socket to {}: {}", to, std::strerror(errno));
    const Socket receiver(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (receiver.fd() < 0)
        return error(Errc::kIo, "cannot accept a TCP connection on {}: {}", to, std::strerror(errno));
    bound_waits(receiver.fd());
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
