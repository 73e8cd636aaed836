// Connections made, refused, timed out, ended, and what their callers are told.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>
#include <gnstor/nvme/fabrics.hpp>

#include <atomic>
#include <cstring>
#include <thread>

#include "rdma/roce/cm_messages.hpp"
#include "rdma/roce/packet.hpp"
#include "rdma/udp/rig.hpp"
#include "support/count.hpp"

namespace gnstor::rdma::udp {
namespace {

using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;
using roce::RequestKind;

std::vector<std::byte> bytes_of(std::string_view text) {
    std::vector<std::byte> bytes(text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    return bytes;
}

std::uint64_t wall_ms() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
}

TEST(Open, RefusesInvalidAddressesAndMtusAndNamesAPortInUse) {
    const auto reactor = std::move(Reactor::start("gn-test")).value();
    const auto code = [&](const std::string& address, std::uint32_t mtu = 0) {
        const auto opened = Driver::open({.address = address, .port = 19'999, .mtu = mtu}, *reactor);
        return opened.ok() ? Errc::kInternal : opened.error().code;
    };
    for (const char* wrong : {"", "localhost", "127.0.0.2:80", "0.0.0.0", "224.0.0.1", "255.255.255.255",
                              "::", "ff02::1", "fe80::1", "::ffff:127.0.0.2", "1.2.3"})
        EXPECT_EQ(code(wrong), Errc::kInvalidArgument) << wrong;
    EXPECT_EQ(code("127.0.0.2", 512), Errc::kInvalidArgument);
    EXPECT_EQ(code("192.0.2.77"), Errc::kNotFound);
    Pair pair;
    const auto again = Driver::open(pair.left_options, *reactor);
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().code, Errc::kBusy);
    EXPECT_NE(again.error().message.find("rdma_rxe"), std::string::npos) << again.error().message;
}

TEST(Connect, PrivateDataGoesBothWaysAndBothSidesKnowTheOther) {
    Pair pair;
    FakeAcceptor acceptor(*pair.right.reactor);
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    EXPECT_EQ(pair.right.driver->listen(4420, acceptor).error().code, Errc::kExists);
    FakeEndpoint endpoint(*pair.left.reactor);
    const auto said = bytes_of("a word for the listener");
    const auto heard = pair.connect(endpoint, 7, {}, said);
    ASSERT_TRUE(heard.ok()) << heard.error().message;
    EXPECT_EQ(std::vector(heard->begin(), heard->begin() + 2), bytes_of("ok"));
    ASSERT_NE(acceptor.await_link(0), nullptr);
    EXPECT_EQ(acceptor.peers.at(0), "127.0.0.2");
    ASSERT_EQ(acceptor.private_data.at(0).size(), 56u) << "what a REQ has room for behind the addresses";
    EXPECT_EQ(std::memcmp(acceptor.private_data[0].data(), said.data(), said.size()), 0);
    EXPECT_EQ(pair.connect(endpoint, 7).error().code, Errc::kState) << "the queue pair is connected";
    EXPECT_EQ(pair.left.driver->links(), 1u);
    pair.right.driver->unlisten(4420);
    EXPECT_EQ(pair.right.driver->links(), 1u) << "a connection outlives its listener";
    endpoint.close();
    FakeEndpoint* const accepted = acceptor.endpoints[0].get();
    ASSERT_TRUE(accepted->await([&] { return accepted->failed.has_value(); }));
    EXPECT_EQ(*accepted->failed, mlx5::kFlushed);
}

TEST(Connect, InvalidParametersAreRefusedBeforeAPacketIsSent) {
    Pair pair;
    FakeEndpoint endpoint(*pair.left.reactor);
    const std::vector<std::byte> much(57);
    for (const QpNumber qp : {0u, 1u, 0xFFFFFFu, 0x1000000u})
        EXPECT_EQ(pair.connect(endpoint, qp).error().code, Errc::kInvalidArgument) << qp;
    EXPECT_EQ(pair.connect(endpoint, 7, {}, much).error().code, Errc::kInvalidArgument);
    Link* link = nullptr;
    for (const char* peer : {"", "::1", "host", "0.0.0.0"})
        EXPECT_EQ(pair.left.driver->connect(7, endpoint, peer, 4420, {}, {}, 1000, link).error().code,
                  Errc::kInvalidArgument)
            << peer;
    EXPECT_EQ(pair.left.driver->counters().packets_sent, 0u);
}

TEST(Connect, ARejectStatesItsReasonAndItsNvmeStatus) {
    Pair pair;
    FakeAcceptor acceptor(*pair.right.reactor);
    FakeEndpoint endpoint(*pair.left.reactor);
    const auto nobody = pair.connect(endpoint, 7);
    ASSERT_FALSE(nobody.ok());
    EXPECT_EQ(nobody.error().code, Errc::kNotFound);
    EXPECT_NE(nobody.error().message.find("no listener is on that port"), std::string::npos)
        << nobody.error().message;
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    ArrivalReply reply;
    acceptor.decide = [&](const Arrival&) { return reply; };
    const nvme::RdmaConnectReject record{0,
                                         static_cast<std::uint16_t>(nvme::RdmaRejectStatus::kInvalidQueueId)};
    reply.reject_reason = 28;
    reply.private_data.resize(sizeof record);
    std::memcpy(reply.private_data.data(), &record, sizeof record);
    const auto refused = pair.connect(endpoint, 7);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kPermission);
    EXPECT_NE(refused.error().message.find(nvme::rdma_reject_name(nvme::RdmaRejectStatus::kInvalidQueueId)),
              std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find("reason 28"), std::string::npos) << refused.error().message;
    reply.private_data = bytes_of("come back on Monday");
    const auto text = pair.connect(endpoint, 7);
    EXPECT_NE(text.error().message.find("come back on Monday"), std::string::npos) << text.error().message;
    reply.reject_reason = 3;
    EXPECT_EQ(pair.connect(endpoint, 7).error().code, Errc::kBusy);
    EXPECT_EQ(acceptor.arrivals, 3u) << "each request was asked about once";
    acceptor.decide = nullptr;
    EXPECT_TRUE(pair.connect(endpoint, 7).ok()) << "a refused queue pair can be connected";
    pair.right.driver->unlisten(4420);
}

TEST(Connect, ConnectingToAPortWithoutAListenerFailsAtOnce) {
    Pair pair;
    FakeEndpoint endpoint(*pair.left.reactor);
    pair.right.driver.reset();
    const std::uint64_t began = wall_ms();
    const auto nobody = pair.connect(endpoint, 7);
    ASSERT_FALSE(nobody.ok());
    EXPECT_EQ(nobody.error().code, Errc::kNotFound) << nobody.error().message;
    EXPECT_LT(wall_ms() - began, 10'000u);
    EXPECT_EQ(pair.left.driver->links(), 0u);
}

TEST(Connect, ConnectingToASilentPeerEndsAtTheDeadlineOrAfterTheLastRetry) {
    Pair pair;
    // Has the port open, and never answers.
    const int silent = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(pair.port());
    inet_pton(AF_INET, "127.0.0.9", &at.sin_addr);
    ASSERT_EQ(bind(silent, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    FakeEndpoint endpoint(*pair.left.reactor);
    Link* link = nullptr;
    const std::uint64_t began = wall_ms();
    const auto early = pair.left.driver->connect(7, endpoint, "127.0.0.9", 4420, {}, {}, 100, link);
    EXPECT_EQ(early.error().code, Errc::kTimedOut);
    EXPECT_GE(wall_ms() - began, 100u);
    const auto late = pair.left.driver->connect(7, endpoint, "127.0.0.9", 4420, {}, {}, 60'000, link);
    EXPECT_EQ(late.error().code, Errc::kTimedOut);
    EXPECT_NE(late.error().message.find("firewall"), std::string::npos) << late.error().message;
    EXPECT_LT(wall_ms() - began, 30'000u) << "the connection manager's retries are bounded";
    EXPECT_EQ(link, nullptr);
    EXPECT_EQ(pair.left.driver->links(), 0u);
    close(silent);
}

TEST(Connect, TheSmallerMtuOfBothIsUsed) {
    for (const auto& [ours, theirs] :
         {std::pair{4096u, 1024u}, std::pair{1024u, 4096u}, std::pair{2048u, 2048u}}) {
        SCOPED_TRACE(fmt::format("{} to {}", ours, theirs));
        Pair pair(ours, theirs);
        FakeAcceptor acceptor(*pair.right.reactor);
        ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
        FakeEndpoint endpoint(*pair.left.reactor);
        const auto connected = pair.connect(endpoint, 7);
        ASSERT_TRUE(connected.ok()) << connected.error().message;
        EXPECT_EQ(acceptor.arrivals, 1u);
        std::vector<std::byte> bytes(20'000);
        rig::fill(bytes, 77);
        const UdpWireCounters before = pair.left.driver->counters();
        ASSERT_TRUE(endpoint.post(rig::request(RequestKind::kWrite, 1, bytes, 5)).ok());
        ASSERT_TRUE(endpoint.await_completions(1));
        EXPECT_TRUE(endpoint.bad.empty());
        const std::uint32_t least = 20'000 / std::min(ours, theirs);
        EXPECT_GE(pair.left.driver->counters().packets_sent - before.packets_sent, least);
        endpoint.close();
        pair.right.driver->unlisten(4420);
    }
}

TEST(Connect, OverIpv6) {
    // ::1 is all that loopback has: both ends on it need ports of their own, which RoCE does not have. So one
    // end connects to itself.
    const auto reactor = std::move(Reactor::start("gn-test")).value();
    const auto opened = Driver::open({.address = "::1", .port = 29'471}, *reactor);
    if (!opened.ok() && opened.error().code == Errc::kNotFound) GTEST_SKIP() << "no IPv6 on loopback";
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Driver& driver = **opened;
    EXPECT_EQ(driver.address(), "::1");
    FakeAcceptor acceptor(*reactor);
    ASSERT_TRUE(driver.listen(4420, acceptor).ok());
    FakeEndpoint endpoint(*reactor);
    const auto connected = driver.connect(7, endpoint, "::1", 4420, {}, {}, 30'000, endpoint.link);
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    FakeEndpoint* const other = acceptor.await_link(0);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(acceptor.peers.at(0), "::1");
    std::vector<std::byte> bytes(100'000), back(100'000);
    rig::fill(bytes, 5);
    ASSERT_TRUE(endpoint.post(rig::request(RequestKind::kWrite, 1, bytes, 64)).ok());
    ASSERT_TRUE(endpoint.post(rig::request(RequestKind::kRead, 2, back, 64)).ok());
    ASSERT_TRUE(endpoint.await_completions(2));
    EXPECT_EQ(bytes, back);
    EXPECT_EQ(driver.counters().bad_icrc, 0u);
    endpoint.close();
    driver.unlisten(4420);
}

TEST(Connect, AThousandConnectionsOpenedAndClosedByBothSidesLeaveNoResources) {
    Pair pair;
    FakeAcceptor acceptor(*pair.right.reactor);
    acceptor.memory_bytes = 64;
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    constexpr std::uint32_t kConnections = 1000, kAtOnce = 50;
    std::uint64_t made = 0;
    for (std::uint32_t round = 0; round < kConnections / kAtOnce; ++round) {
        std::vector<std::unique_ptr<FakeEndpoint>> endpoints;
        for (std::uint32_t i = 0; i < kAtOnce; ++i) {
            endpoints.push_back(std::make_unique<FakeEndpoint>(*pair.left.reactor, 64));
            const auto connected = pair.connect(*endpoints.back(), 100 + i);
            ASSERT_TRUE(connected.ok()) << connected.error().message;
            FakeEndpoint* const other = acceptor.await_link(made++);
            ASSERT_NE(other, nullptr);
        }
        for (std::uint32_t i = 0; i < kAtOnce; ++i) {
            FakeEndpoint* const other = acceptor.up[made - kAtOnce + i].second;
            FakeEndpoint* const closes = i % 2 == 0 ? endpoints[i].get() : other;
            FakeEndpoint* const hears = i % 2 == 0 ? other : endpoints[i].get();
            closes->close();
            ASSERT_TRUE(hears->await([&] { return hears->failed.has_value(); }));
            EXPECT_EQ(*hears->failed, mlx5::kFlushed);
        }
        for (const auto& endpoint : endpoints) EXPECT_FALSE(endpoint->called_after_end);
    }
    pair.right.driver->unlisten(4420);
    // The DREPs of the last ones are on their way.
    const std::uint64_t deadline = wall_ms() + 100'000;
    while (pair.left.driver->links() + pair.right.driver->links() > 0 && wall_ms() < deadline)
        std::this_thread::yield();
    EXPECT_EQ(pair.left.driver->links() + pair.right.driver->links(), 0u);
    test::count("udp_connections", made);
}

/// Loses every "ready to use" that goes out.
class WithoutReady final : public Tap {
  public:
    bool on_packet(bool sent, const roce::NetworkHeaders&, std::span<const std::byte> udp_payload) override {
        roce::Packet packet;
        if (!sent || roce::decode(udp_payload, packet) != roce::DecodeVerdict::kGood) return true;
        const auto mad = packet.queue_pair == roce::kManagementQueuePair ? roce::management_datagram(packet)
                                                                         : std::nullopt;
        const auto message = mad ? roce::decode_cm(*mad) : std::nullopt;
        if (!message || message->kind != roce::CmKind::kReadyToUse) return true;
        ++lost;
        return false;
    }
    std::atomic<std::uint64_t> lost{0};
};

/// Hears whether "disconnected" has come.
class Farewell final : public Tap {
  public:
    bool on_packet(bool sent, const roce::NetworkHeaders&, std::span<const std::byte> udp_payload) override {
        roce::Packet packet;
        if (sent) return true;
        if (deaf) return false;
        if (roce::decode(udp_payload, packet) != roce::DecodeVerdict::kGood) return true;
        const auto mad = packet.queue_pair == roce::kManagementQueuePair ? roce::management_datagram(packet)
                                                                         : std::nullopt;
        const auto message = mad ? roce::decode_cm(*mad) : std::nullopt;
        if (message && message->kind == roce::CmKind::kDisconnected) heard = true;
        return true;
    }
    std::atomic<bool> heard{false}, deaf{false};
};

TEST(Connect, AClosingDriverWaitsForAnswersOfPeersButNotOfPeersThatEnded) {
    constexpr std::uint64_t kOneAnswerMs = 500;  // CmOptions::response_timeout_ns
    for (const bool gone : {false, true}) {
        Farewell tap;
        Pair pair;
        FakeAcceptor acceptor(*pair.right.reactor);
        ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
        FakeEndpoint endpoint(*pair.left.reactor);
        ASSERT_TRUE(pair.connect(endpoint, 7).ok());
        FakeEndpoint* const other = acceptor.await_link(0);
        ASSERT_NE(other, nullptr);
        pair.left.driver->set_tap(&tap);
        tap.deaf = gone;
        endpoint.close();
        const std::uint64_t began = wall_ms();
        pair.left.driver.reset();
        const std::uint64_t took = wall_ms() - began;
        EXPECT_TRUE(tap.heard || took + 1 >= kOneAnswerMs) << "after " << took << " ms";
        EXPECT_TRUE(!gone || !tap.heard);
        EXPECT_LT(took, 60'000u);
        // It was told in either case.
        EXPECT_TRUE(other->await([&] { return other->failed.has_value(); }));
        pair.right.driver->unlisten(4420);
    }
}

/// One endpoint for whoever comes first.
class OneAcceptor final : public Acceptor {
  public:
    explicit OneAcceptor(FakeEndpoint& endpoint) : endpoint_(endpoint) {}
    ArrivalReply on_arrival(const Arrival&) override {
        ArrivalReply reply;
        reply.accept = true;
        reply.qp = 0x100;
        reply.endpoint = &endpoint_;
        return reply;
    }
    void on_link(QpNumber, Link& link) override { endpoint_.link = &link; }

  private:
    FakeEndpoint& endpoint_;
};

TEST(Connect, IfTheReadyToUseIsLostTheFirstMessageCanStillBeAnswered) {
    Pair pair;
    FakeEndpoint endpoint(*pair.left.reactor), accepted(*pair.right.reactor);
    WithoutReady tap;
    pair.left.driver->set_tap(&tap);
    accepted.post_receives(1, 64);
    std::atomic<bool> answerable{false};
    accepted.on_message = [&](std::span<const std::byte>) { answerable = accepted.link != nullptr; };
    OneAcceptor acceptor(accepted);
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    ASSERT_TRUE(pair.connect(endpoint, 7).ok());
    std::vector<std::byte> message(64);
    ASSERT_TRUE(endpoint.post(rig::request(RequestKind::kSend, 1, message)).ok());
    ASSERT_TRUE(accepted.await([&] { return accepted.messages == 1; }));
    EXPECT_TRUE(answerable) << "a message came before its link";
    EXPECT_GE(tap.lost, 1u);
    pair.left.driver->set_tap(nullptr);
    endpoint.close();
    ASSERT_TRUE(accepted.await([&] { return accepted.failed.has_value(); }));
}

TEST(Listen, UnlistenDuringRequestsLeavesNoCallIntoTheAcceptor) {
    Pair pair;
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> made{0}, refused{0};
    std::thread client([&] {
        while (!stop) {
            FakeEndpoint endpoint(*pair.left.reactor, 64);
            const auto connected = pair.connect(endpoint, 9);
            if (connected.ok()) {
                ++made;
                endpoint.close();
            } else {
                // Where the acceptance had gone out and its answer had not come yet: the port closed, so the
                // acceptor gave up waiting for it (InfiniBand 12.9.8).
                const bool gave_up = connected.error().message.find(
                                         "timed out waiting for a message, reason 4") != std::string::npos;
                EXPECT_TRUE(connected.error().code == Errc::kNotFound || gave_up)
                    << connected.error().message;
                ++refused;
            }
        }
    });
    std::vector<std::unique_ptr<FakeAcceptor>> acceptors;
    for (std::uint64_t round = 0; round < 60; ++round) {
        acceptors.push_back(std::make_unique<FakeAcceptor>(*pair.right.reactor, 0x100 + round * 0x1000));
        FakeAcceptor& acceptor = *acceptors.back();
        ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
        {
            std::unique_lock lock(acceptor.mutex);
            ASSERT_TRUE(
                acceptor.changed.wait_for(lock, rig::kPatience, [&] { return acceptor.arrivals > 0; }));
        }
        pair.right.driver->unlisten(4420);
        std::uint64_t arrivals = 0, up = 0;
        const auto count = [&] {
            const std::lock_guard lock(acceptor.mutex);
            arrivals = acceptor.arrivals;
            up = acceptor.up.size();
        };
        count();
        const std::uint64_t arrivals_then = arrivals, up_then = up;
        const std::uint64_t refused_then = refused;
        while (refused == refused_then) std::this_thread::yield();
        count();
        EXPECT_EQ(arrivals, arrivals_then);
        EXPECT_EQ(up, up_then);
        // What was accepted and did not come up has failed; what came up fails when the client closes it.
        for (const auto& endpoint : acceptor.endpoints)
            EXPECT_TRUE(endpoint->await([&] { return endpoint->failed.has_value(); }));
    }
    stop = true;
    client.join();
    test::count("udp_unlistens_with_requests", made + refused);
}

}  // namespace
}  // namespace gnstor::rdma::udp
