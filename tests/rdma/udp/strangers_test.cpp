// strangers_test.cpp: datagrams for other addresses of this machine are none of a packet socket's, not even
// those that passed while it was being opened, and not what it could not hold of them.
#include "rdma/wire/udp/socket.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "support/count.hpp"
#include "support/loopback.hpp"

namespace gnstor::rdma::udp {
namespace {

constexpr std::uint16_t kPort = 47914;
constexpr int kSockets = 300;
constexpr int kAgainMs = 100, kTriesMax = 1000;

/// Sends to an address where nobody listens, as fast as it can.
class Flood {
  public:
    explicit Flood(const IpAddress& to)
        : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)), thread_([this, to] { run(to); }) {}
    ~Flood() {
        stop_ = true;
        thread_.join();
        ::close(fd_);
    }
    [[nodiscard]] std::uint64_t sent() const { return sent_; }

  private:
    void run(const IpAddress& to) {
        const SocketAddress target = socket_address(to, kPort);
        const std::array<std::byte, 16'000> bytes{};
        while (!stop_)
            if (::sendto(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT,
                         reinterpret_cast<const sockaddr*>(&target.storage), target.bytes) > 0)
                ++sent_;
    }

    const int fd_;
    std::atomic<bool> stop_{false};
    std::atomic<std::uint64_t> sent_{0};
    std::thread thread_;
};

/// One packet to itself: again where it was lost, as beside a flood it may be.
bool send_until_readable(PacketSocket& socket, const IpAddress& itself) {
    pollfd readable{.fd = socket.fd(), .events = POLLIN, .revents = 0};
    for (int tries = 0; tries < kTriesMax; ++tries) {
        if (!socket.room().empty()) socket.put(64, itself);
        (void)socket.flush();
        if (::poll(&readable, 1, kAgainMs) == 1) return true;
    }
    return false;
}

TEST(PacketSocket, ReceivesNoPacketsOfOtherSocketsWhileItIsOpened) {
    const auto ours = parse_address(gnstor::test::loopback_address(2));
    const auto theirs = parse_address(gnstor::test::loopback_address(3));
    ASSERT_TRUE(ours.ok() && theirs.ok());
    const Flood flood(*theirs);
    for (int i = 0; i < kSockets; ++i) {
        auto opened = PacketSocket::open(*ours, kPort, 1u << 20);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        PacketSocket& socket = **opened;
        if (!socket.sees_ip_headers())
            GTEST_SKIP() << "no CAP_NET_RAW: a UDP socket receives no packets of other sockets, so there is "
                            "nothing to test";
        ASSERT_EQ(socket.receive(), 0u) << "socket " << i;
        // What it dropped is told with a packet that it takes.
        ASSERT_TRUE(send_until_readable(socket, *ours)) << "socket " << i;
        ASSERT_GE(socket.receive(), 1u);
        ASSERT_EQ(socket.counters().overruns, 0u) << "socket " << i;
    }
    EXPECT_GT(flood.sent(), 0u);
    gnstor::test::count("rdma_sockets_beside_strangers", kSockets);
}

}  // namespace
}  // namespace gnstor::rdma::udp
