// path_mtu_test.cpp: anybody can send "fragmentation needed" in a router's name, and the kernel believes it
// for ten minutes: packets go out all the same.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "rdma/udp/rig.hpp"
#include "rdma/udp/socket.hpp"
#include "support/loopback.hpp"

namespace gnstor::rdma::udp {
namespace {

using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;
using roce::RequestKind;

sockaddr_in to_address(const std::string& text, std::uint16_t port = 0) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, text.c_str(), &address.sin_addr);
    return address;
}

std::uint16_t checksum(std::span<const std::uint8_t> bytes) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < bytes.size(); i += 2) sum += bytes[i] * 256u + bytes[i + 1];
    while (sum > 0xFFFF) sum = (sum >> 16) + (sum & 0xFFFF);
    return static_cast<std::uint16_t>(~sum);
}

void put16(std::uint8_t* at, std::uint32_t value) {
    at[0] = static_cast<std::uint8_t>(value >> 8);
    at[1] = static_cast<std::uint8_t>(value);
}

/// RFC 792 and 1191: a packet from `own` to `peer`, UDP port `port` of both, fits `mtu` bytes and no more.
bool forge_fragmentation_needed(const std::string& own, const std::string& peer, std::uint16_t port,
                                std::uint16_t mtu) {
    const int fd = ::socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    if (fd < 0) return false;
    std::array<std::uint8_t, 8 + 20 + 8> message{};
    message[0] = ICMP_DEST_UNREACH;
    message[1] = ICMP_FRAG_NEEDED;
    put16(&message[6], mtu);
    std::uint8_t* const ip = &message[8];
    ip[0] = 0x45;
    put16(ip + 2, 4000);
    put16(ip + 6, 0x4000);
    ip[8] = 64;
    ip[9] = IPPROTO_UDP;
    const sockaddr_in from = to_address(own), to = to_address(peer);
    std::memcpy(ip + 12, &from.sin_addr, 4);
    std::memcpy(ip + 16, &to.sin_addr, 4);
    put16(ip + 10, checksum(std::span(ip, 20)));
    put16(ip + 20, port);
    put16(ip + 22, port);
    put16(ip + 24, 3980);
    put16(&message[2], checksum(message));
    EXPECT_EQ(
        sendto(fd, message.data(), message.size(), 0, reinterpret_cast<const sockaddr*>(&from), sizeof from),
        static_cast<ssize_t>(message.size()));
    close(fd);
    return true;
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

TEST(PathMtu, ThatSomebodyForgesStopsNoPayload) {
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
    EXPECT_TRUE(left.bad.empty()) << "payload does not get through any more";
    left.close();
    pair.right.driver->unlisten(4420);
    if (!deceived) GTEST_SKIP() << "this kernel was not deceived: what was written proves nothing";
}

TEST(PathMtu, ClaimsAboutItDoNotSilenceWarningsAboutPacketsThatWereNotSent) {
    const std::string own = gnstor::test::loopback_address(2), peer = gnstor::test::loopback_address(3);
    constexpr std::uint16_t kPort = 47'915;
    const auto socket = PacketSocket::open(*parse_address(own), kPort, 1u << 20).value();
    if (!socket->sees_ip_headers()) GTEST_SKIP() << "no CAP_NET_RAW";
    ::testing::internal::CaptureStderr();
    IpAddress who;
    for (int i = 0; i < 64; ++i) {
        EXPECT_TRUE(forge_fragmentation_needed(own, peer, kPort, 600));
        EXPECT_FALSE(socket->unreachable(who));
    }
    // From a loopback address there is no way to another machine.
    socket->put(64, *parse_address("192.0.2.1"));
    EXPECT_TRUE(socket->flush());
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(socket->counters().refused, 1u);
    EXPECT_NE(said.find("do not pass"), std::string::npos) << "no claim came: nothing is tested\n" << said;
    EXPECT_NE(said.find("was not sent"), std::string::npos) << said;
}

}  // namespace
}  // namespace gnstor::rdma::udp
