// ended_test.cpp: a peer whose process has ended. Its kernel says so for each packet, and connections end
// long before their timeouts have run out; what others say in its name ends none.
#include "rdma/roce/connection_manager.hpp"
#include "rdma/roce/peer_watch.hpp"
#include "rdma/udp/forged_icmp.hpp"
#include "rdma/udp/rig.hpp"
#include "support/loopback.hpp"

namespace gnstor::rdma::udp {
namespace {

using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;
using roce::RequestKind;

constexpr std::uint32_t kTries = 8;    ///< of a packet, until timeouts end its connection
constexpr std::uint32_t kQuoted = 12;  ///< bytes: a base transport header

/// Counts requests that go out, keeps the beginning of the last, and drops what comes if asked to.
class Watcher final : public Tap {
  public:
    bool on_packet(bool sent, const roce::NetworkHeaders&, std::span<const std::byte> payload) override {
        roce::Packet packet;
        if (roce::decode(payload, packet) != roce::DecodeVerdict::kGood ||
            packet.queue_pair == roce::kManagementQueuePair)
            return true;
        if (!sent) return !deaf;
        if (!roce::traits(packet.opcode).request) return true;
        const std::lock_guard lock(mutex);
        std::copy_n(payload.begin(), kQuoted, last.begin());
        ++requests;
        changed.notify_all();
        return true;
    }
    /// The beginning of the `number`-th request or a later one, once it has gone out.
    std::array<std::byte, kQuoted> await(std::uint32_t number) {
        std::unique_lock lock(mutex);
        EXPECT_TRUE(changed.wait_for(lock, rig::kPatience, [&] { return requests >= number; }));
        return last;
    }
    std::uint32_t count() {
        const std::lock_guard lock(mutex);
        return requests;
    }
    std::atomic<bool> deaf{false};

  private:
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::array<std::byte, kQuoted> last{};
    std::uint32_t requests = 0;
};

/// Two wires, and two connections of the left one with the right one.
class Ended : public ::testing::Test {
  protected:
    void SetUp() override {
        acceptor.receives = 4;
        acceptor.receive_bytes = 64;
        ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
        ASSERT_TRUE(pair.connect(left, 7).ok());
        ASSERT_TRUE(pair.connect(other, 8).ok());
        ASSERT_NE(acceptor.await_link(1), nullptr);
        pair.left.driver->set_tap(&watcher);
    }
    void TearDown() override {
        pair.left.driver->set_tap(nullptr);
        if (pair.right.driver != nullptr) pair.right.driver->unlisten(4420);
    }
    /// As if its process were killed: no peer is told.
    void end_right() {
        for (auto& endpoint : acceptor.endpoints) endpoint->forget_link();
        pair.right.driver.reset();
    }
    static bool failed(FakeEndpoint& endpoint) {
        return endpoint.await([&] { return endpoint.failed.has_value(); });
    }
    /// False: this process may not. Otherwise the left wire has looked at the message.
    bool forge(const std::string& sender, std::span<const std::byte> quoted) {
        const std::uint64_t before = pair.left.driver->counters().unreachable;
        if (!rig::forge({.sender = sender, .own = own, .peer = peer, .port = pair.port()}, quoted))
            return false;
        const auto deadline = std::chrono::steady_clock::now() + rig::kPatience;
        while (pair.left.driver->counters().unreachable == before)
            if (std::chrono::steady_clock::now() > deadline) return false;
        return true;
    }
    std::uint64_t peers_ended() { return pair.left.driver->counters().peers_ended; }

    const std::string own = gnstor::test::loopback_address(2), peer = gnstor::test::loopback_address(3);
    Pair pair{0, 0, own, peer};
    FakeAcceptor acceptor{*pair.right.reactor};
    FakeEndpoint left{*pair.left.reactor}, other{*pair.left.reactor};
    Watcher watcher;
    std::vector<std::byte> bytes = std::vector<std::byte>(16);
};

TEST_F(Ended, AllItsConnectionsFailBeforeTheTimeoutsOfAnyHaveRunOut) {
    end_right();
    ASSERT_TRUE(left.post(rig::request(RequestKind::kWrite, 1, bytes)).ok());
    ASSERT_TRUE(failed(left));
    EXPECT_EQ(left.failed, mlx5::kTransportRetryExceeded);
    ASSERT_EQ(left.bad.size(), 1u);
    EXPECT_EQ(left.bad[0].status, mlx5::kTransportRetryExceeded);
    EXPECT_LT(watcher.count(), kTries);
    EXPECT_TRUE(failed(other)) << "an idle connection to the same peer must fail too";
    EXPECT_EQ(peers_ended(), 1u);
}

TEST_F(Ended, AConnectionFailsWhosePeerAcceptedAMessageAndOwesAnAnswer) {
    ASSERT_TRUE(left.post(rig::request(RequestKind::kSend, 1, bytes)).ok());
    ASSERT_TRUE(left.await_completions(1));
    ASSERT_TRUE(left.bad.empty());
    end_right();
    EXPECT_TRUE(failed(left)) << "the message is acknowledged: no timeout runs";
    EXPECT_EQ(left.failed, mlx5::kTransportRetryExceeded);
}

TEST_F(Ended, APeerThatOwesAnAnswerForLongIsProbedAndStaysConnected) {
    ASSERT_TRUE(left.post(rig::request(RequestKind::kSend, 1, bytes)).ok());
    ASSERT_TRUE(left.await_completions(1));
    watcher.await(6);  // probes
    ASSERT_TRUE(left.post(rig::request(RequestKind::kWrite, 2, bytes)).ok());
    ASSERT_TRUE(left.await_completions(2));
    EXPECT_TRUE(left.bad.empty());
    EXPECT_FALSE(left.failed.has_value());
    EXPECT_EQ(acceptor.endpoints[0]->messages, 1u) << "a probe must not be executed as a message";
}

TEST_F(Ended, AnIcmpErrorForAnAnsweredPacketEndsNoConnection) {
    ASSERT_TRUE(left.post(rig::request(RequestKind::kWrite, 1, bytes)).ok());
    ASSERT_TRUE(left.await_completions(1));
    const auto quoted = watcher.await(1);
    const std::uint32_t sent = watcher.count();
    const auto until =
        std::chrono::steady_clock::now() + 3 * std::chrono::nanoseconds(roce::PeerWatch::kConfirmNs);
    do {
        if (!forge(peer, quoted)) GTEST_SKIP() << "no CAP_NET_RAW";
    } while (std::chrono::steady_clock::now() <= until);
    EXPECT_EQ(peers_ended(), 0u);
    EXPECT_EQ(watcher.count(), sent) << "nothing may be sent again";
}

TEST_F(Ended, IcmpErrorsFromOthersOrForOtherPacketsEndNoConnection) {
    watcher.deaf = true;
    ASSERT_TRUE(left.post(rig::request(RequestKind::kWrite, 1, bytes)).ok());
    const auto quoted = watcher.await(1);
    auto other_queue_pair = quoted, other_number = quoted;
    other_queue_pair[7] ^= std::byte{0x80};
    other_number[9] ^= std::byte{0x40};
    const auto until =
        std::chrono::steady_clock::now() + 3 * std::chrono::nanoseconds(roce::PeerWatch::kConfirmNs);
    do {
        if (!forge(own, quoted)) GTEST_SKIP() << "no CAP_NET_RAW";
        EXPECT_TRUE(forge(peer, other_queue_pair));
        EXPECT_TRUE(forge(peer, other_number));
        EXPECT_TRUE(forge(peer, std::span(quoted).first(kQuoted - 2)));
    } while (std::chrono::steady_clock::now() <= until);
    EXPECT_EQ(peers_ended(), 0u);
    watcher.deaf = false;
    ASSERT_TRUE(left.await_completions(1));
    EXPECT_TRUE(left.bad.empty());
}

TEST_F(Ended, APeerThatAnswersInBetweenStaysConnected) {
    for (std::uint32_t i = 1; i <= 3; ++i) {
        watcher.deaf = true;
        const std::uint32_t before = watcher.count();
        ASSERT_TRUE(left.post(rig::request(RequestKind::kWrite, i, bytes)).ok());
        const auto quoted = watcher.await(before + 1);
        if (!forge(peer, quoted)) GTEST_SKIP() << "no CAP_NET_RAW";
        watcher.await(before + 2);  // what is asked at once
        watcher.deaf = false;
        ASSERT_TRUE(left.await_completions(i));
        EXPECT_TRUE(left.bad.empty());
        const auto until =
            std::chrono::steady_clock::now() + std::chrono::nanoseconds(roce::PeerWatch::kConfirmNs);
        while (std::chrono::steady_clock::now() <= until) {
        }
    }
    EXPECT_EQ(peers_ended(), 0u);
}

TEST_F(Ended, ARestartedPeerAtTheSameAddressCanBeConnected) {
    end_right();
    ASSERT_TRUE(left.post(rig::request(RequestKind::kWrite, 1, bytes)).ok());
    ASSERT_TRUE(failed(left));
    pair.right.driver = Driver::open(pair.right_options, *pair.right.reactor).value();
    FakeAcceptor again{*pair.right.reactor, 0x200};
    ASSERT_TRUE(pair.right.driver->listen(4420, again).ok());
    FakeEndpoint anew{*pair.left.reactor};
    ASSERT_TRUE(pair.connect(anew, 9).ok());
    ASSERT_TRUE(anew.post(rig::request(RequestKind::kWrite, 1, bytes)).ok());
    ASSERT_TRUE(anew.await_completions(1));
    EXPECT_TRUE(anew.bad.empty());
    EXPECT_EQ(peers_ended(), 1u);
    anew.close();
    pair.right.driver->unlisten(4420);
}

}  // namespace
}  // namespace gnstor::rdma::udp
