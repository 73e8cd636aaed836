// IPv4's identification is in the ICRC: kernels like Linux's (rxe) count it up. Who sees IP headers takes
// such packets; who may not see them takes those of our own kind, and drops the others as damaged.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "rdma/roce/cm_messages.hpp"
#include "rdma/udp/rig.hpp"

namespace gnstor::rdma::udp {
namespace {

using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;
using roce::RequestKind;

/// Sends whole IP datagrams with an identification of its choice from 127.0.0.66, as a peer's kernel does.
class RawSender {
  public:
    RawSender() : fd_(::socket(AF_INET, SOCK_RAW, IPPROTO_RAW)) {}
    ~RawSender() {
        if (fd_ >= 0) close(fd_);
    }
    [[nodiscard]] bool allowed() const { return fd_ >= 0; }
    /// `sealed_for`: what the sender takes the identification to be.
    void send(const roce::Packet& packet, std::uint16_t port, std::uint16_t identification,
              std::uint16_t sealed_for) {
        std::vector<std::byte> payload(roce::encoded_bytes(packet));
        ASSERT_TRUE(roce::encode(packet, payload).ok());
        const auto size = static_cast<std::uint32_t>(payload.size());
        roce::NetworkHeaders::Ipv4 ip{.source = {127, 0, 0, 66}, .destination = {127, 0, 0, 3}};
        ip.identification = sealed_for;
        roce::seal(roce::NetworkHeaders::make(ip, {port, port}, size), payload);
        ip.identification = identification;
        const auto headers = roce::NetworkHeaders::make(ip, {port, port}, size);
        std::vector<std::byte> datagram(headers.bytes().begin(), headers.bytes().end());
        datagram.insert(datagram.end(), payload.begin(), payload.end());
        sockaddr_in to{};
        to.sin_family = AF_INET;
        inet_pton(AF_INET, "127.0.0.3", &to.sin_addr);
        ASSERT_EQ(sendto(fd_, datagram.data(), datagram.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                         sizeof to),
                  static_cast<ssize_t>(datagram.size()));
    }

  private:
    const int fd_;
};

/// A goodbye to a connection that there is none of: answered, whoever sends it.
roce::Packet goodbye(std::span<std::byte, roce::kMadBytes> mad) {
    roce::CmMessage dreq;
    dreq.kind = roce::CmKind::kDisconnect;
    dreq.local_id = 5;
    roce::encode_cm(dreq, mad);
    return roce::management_packet(mad, 0);
}

struct Seen {
    std::uint64_t good, bad;
};
Seen send_three(Driver& driver, RawSender& sender, std::uint16_t port) {
    std::array<std::byte, roce::kMadBytes> mad;
    const UdpWireCounters then = driver.counters();
    sender.send(goodbye(mad), port, 0x1234, 0x1234);  // as rxe
    sender.send(goodbye(mad), port, 0x1234, 0x1235);  // damaged
    sender.send(goodbye(mad), port, 0x4321, 0);
    const auto deadline = std::chrono::steady_clock::now() + rig::kPatience;
    UdpWireCounters now = driver.counters();
    while (now.packets_received < then.packets_received + 3 && std::chrono::steady_clock::now() < deadline)
        now = driver.counters();
    const std::uint64_t bad = now.bad_icrc - then.bad_icrc;
    return {now.packets_received - then.packets_received - bad, bad};
}

TEST(Identification, IsSeenThroughARawSocket) {
    RawSender sender;
    if (!sender.allowed()) GTEST_SKIP() << "no CAP_NET_RAW";
    Pair pair;
    ASSERT_TRUE(pair.right.driver->sees_ip_headers());
    const Seen seen = send_three(*pair.right.driver, sender, pair.port());
    EXPECT_EQ(seen.good, 1u) << "a packet with the identification that its ICRC was made for";
    EXPECT_EQ(seen.bad, 2u);
}

TEST(Identification, IsAssumedZeroWithoutThePrivilegeAndGnstorPeersStillCommunicate) {
    Pair pair;
    const auto reopen = [](rig::Node& node, const UdpWireOptions& options) {
        node.driver.reset();
        node.driver = std::move(rig::open_without_privilege(options, *node.reactor)).value();
    };
    reopen(pair.left, pair.left_options);
    reopen(pair.right, pair.right_options);
    ASSERT_FALSE(pair.right.driver->sees_ip_headers());
    RawSender sender;
    if (sender.allowed()) {
        const Seen seen = send_three(*pair.right.driver, sender, pair.port());
        EXPECT_EQ(seen.good, 1u) << "the one that was sealed for 0: its header cannot be seen";
        EXPECT_EQ(seen.bad, 2u);
    }
    FakeAcceptor acceptor(*pair.right.reactor);
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    FakeEndpoint endpoint(*pair.left.reactor);
    const auto connected = pair.connect(endpoint, 7);
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    std::vector<std::byte> bytes(300'000), back(300'000);
    rig::fill(bytes, 9);
    ASSERT_TRUE(endpoint.post(rig::request(RequestKind::kWrite, 1, bytes, 1000)).ok());
    ASSERT_TRUE(endpoint.post(rig::request(RequestKind::kRead, 2, back, 1000)).ok());
    ASSERT_TRUE(endpoint.await_completions(2));
    EXPECT_TRUE(endpoint.bad.empty());
    EXPECT_EQ(bytes, back);
    EXPECT_EQ(pair.left.driver->counters().receive_overruns, 0u);
    endpoint.close();
    pair.right.driver->unlisten(4420);
    // Where nobody has the port any more it is told as well.
    pair.right.driver.reset();
    for (const auto& one : acceptor.endpoints) one->forget_link();
    FakeEndpoint late(*pair.left.reactor);
    EXPECT_EQ(pair.connect(late, 8).error().code, Errc::kNotFound);
}

}  // namespace
}  // namespace gnstor::rdma::udp
