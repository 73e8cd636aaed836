// wire_sockets.hpp: what plain sockets of this kernel move between the two addresses of the udp wire, in the
// same run: what anything that goes through them can be held against. Sender and receiver on a thread each,
// nothing checked, nothing paced, nothing sent again; every wait has a deadline. Host.
#pragma once

#include "wire.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <sys/socket.h>

namespace gnstor::bench::wire_bench {

/// Longest payload of one UDP datagram over IPv4.
inline constexpr std::uint32_t kDatagramMax = 65'507;
/// Payload of a RoCE packet at the largest MTU, and of one at the largest that plain Ethernet takes.
inline constexpr std::uint32_t kLargePacket = 4096, kSmallPacket = 1024;

/// How messages go through a pair of UDP sockets.
struct UdpWay {
    std::uint32_t datagram = kLargePacket;  ///< bytes of payload
    /// Segmentation offload both ways: a send holds many datagrams of that size, which the kernel cuts
    /// (UDP_SEGMENT), and a receive takes what it kept or put together (UDP_GRO). On loopback nothing is ever
    /// cut: it is a copy in, a copy out and one trip through the stack for the whole send.
    bool offload = false;
};

/// kUnsupported: this kernel has no such offload.
Result<void> udp_offload_works();
/// Operations are pieces of `work.bytes` of what arrived; the share that was lost on the way beside them.
Result<Repeat> run_udp_sockets(const Work& work, const std::string& from, const std::string& to, UdpWay way);
/// The same bytes through a TCP connection.
Result<Repeat> run_tcp_socket(const Work& work, const std::string& from, const std::string& to);

// What both kinds of socket are opened and counted by.

class Socket {
  public:
    explicit Socket(int fd = -1) : fd_(fd) {}
    ~Socket();
    Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    [[nodiscard]] int fd() const { return fd_; }

  private:
    int fd_;
};

struct SocketPlace {
    sockaddr_storage storage{};
    socklen_t bytes = 0;
    [[nodiscard]] const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Result<SocketPlace> parse_place(const std::string& text);
/// A socket bound to any port of `at`, which gets the port; its calls wait 50 ms at most.
Result<Socket> bound_socket(int type, SocketPlace& at);
void bound_waits(int fd);

using Clock = std::chrono::steady_clock;
Clock::time_point end_of(const Work& work);
Repeat repeat_from(Clock::time_point began, std::uint64_t bytes, std::uint32_t each, double cpu_before);

}  // namespace gnstor::bench::wire_bench
