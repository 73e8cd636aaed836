// path_mtu_test.cpp: anybody can send "fragmentation needed" in a router's name, and the kernel believes it
// for ten minutes: packets go out all the same.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "rdma/udp/forged_icmp.hpp"
#include "rdma/udp/rig.hpp"
#include "rdma/wire/udp/socket.hpp"
#include "support/loopback.hpp"

namespace gnstor::rdma::udp {
namespace {

using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;
using rig::to_address;
using roce::RequestKind;

bool forge_fragmentation_needed(const std::string& own, const std::string& peer, std::uint16_t port,
                                std::uint16_t mtu) {
    return rig::forge(
        {.sender = own, .own = own, .peer = peer, .port = port, .code = ICMP_FRAG_NEEDED, .mtu = mtu});
}

/// Whether this kernel would send 3,000 bytes to `peer` in one packet.
bool kernel_believes_that_they_fit(const std::string& own, const std::string& peer) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    const int discover = IP_PMTUDISC_DO;
    setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
    const sockaddr_in from = to_address(own), to = to_address(peer, 9);
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from), 0);
    const std::array<std::uint8_t, 3000> bytes{};
    const ssize_t sent =
        sendto(fd, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    const bool fit = sent >= 0 || errno != EMSGSIZE;
    close(fd);
    return fit;
}

/// A kernel that believes it does so at once.
constexpr auto kDeceivedWithin = std::chrono::seconds(10);

TEST(PathMtu, ForgedByAnAttackerStopsNoPayload) {
    const std::string own = gnstor::test::loopback_address(2), peer = gnstor::test::loopback_address(3);
    Pair pair(4096, 4096, own, peer);
    if (!forge_fragmentation_needed(own, peer, pair.port(), 600)) GTEST_SKIP() << "no CAP_NET_RAW";
    FakeAcceptor acceptor(*pair.right.reactor);
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    FakeEndpoint left(*pair.left.reactor);
    ASSERT_TRUE(pair.connect(left, 7).ok());
    const auto deadline = std::chrono::steady_clock::now() + kDeceivedWithin;
    while (kernel_believes_that_they_fit(own, peer) && std::chrono::steady_clock::now() < deadline) {
    }
    const bool deceived = !kernel_believes_that_they_fit(own, peer);
    std::vector<std::byte> bytes(100'000);
    rig::fill(bytes, 3);
    ASSERT_TRUE(left.post(rig::request(RequestKind::kWrite, 1, bytes, 1000)).ok());
    ASSERT_TRUE(left.await_completions(1));
    EXPECT_TRUE(left.bad.empty()) << "payload is no longer delivered";
    left.close();
    pair.right.driver->unlisten(4420);
    if (!deceived) GTEST_SKIP() << "this kernel ignored the forged message, so the result proves nothing";
}

TEST(PathMtu, ForgedMessagesDoNotSuppressWarningsAboutUnsentPackets) {
    const std::string own = gnstor::test::loopback_address(2), peer = gnstor::test::loopback_address(3);
    constexpr std::uint16_t kForgedPort = 47'915;
    const auto socket = PacketSocket::open(*parse_address(own), kForgedPort, 1u << 20).value();
    if (!socket->sees_ip_headers()) GTEST_SKIP() << "no CAP_NET_RAW";
    ::testing::internal::CaptureStderr();
    Unreachable message;
    for (int i = 0; i < 64; ++i) {
        EXPECT_TRUE(forge_fragmentation_needed(own, peer, kForgedPort, 600));
        EXPECT_FALSE(socket->unreachable(message));
    }
    // From a loopback address there is no way to another machine.
    socket->put(64, *parse_address("192.0.2.1"));
    EXPECT_TRUE(socket->flush());
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(socket->counters().refused, 1u);
    EXPECT_NE(said.find("do not pass"), std::string::npos)
        << "no forged message was received, so the test covers nothing\n"
        << said;
    EXPECT_NE(said.find("was not sent"), std::string::npos) << said;
}

}  // namespace
}  // namespace gnstor::rdma::udp
