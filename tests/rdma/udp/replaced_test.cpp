// replaced_test.cpp: requests from a queue pair that has a connection: of a peer that has lost it, and of
// somebody who only says so.
#include "rdma/udp/raw_peer.hpp"

namespace gnstor::rdma::udp {
namespace {

using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;
using rig::RawPeer;
using roce::RequestKind;

constexpr QpNumber kQp = 7;

/// Left queue pair 7 connected with the right.
class Replaced : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
        ASSERT_TRUE(pair.connect(left, kQp).ok());
        right = acceptor.await_link(0);
        ASSERT_NE(right, nullptr);
    }
    void TearDown() override {
        left.close();
        pair.right.driver->unlisten(4420);
    }
    static void expect_works(FakeEndpoint& from, FakeEndpoint& to) {
        std::vector<std::byte> bytes(10'000), back(10'000);
        rig::fill(bytes, 5);
        ASSERT_TRUE(from.post(rig::request(RequestKind::kWrite, 1, bytes, 100'000)).ok());
        ASSERT_TRUE(from.post(rig::request(RequestKind::kRead, 2, back, 100'000)).ok());
        ASSERT_TRUE(from.await_completions(2));
        EXPECT_TRUE(from.bad.empty());
        EXPECT_EQ(bytes, back);
        EXPECT_FALSE(to.failed.has_value());
    }
    Pair pair;
    FakeAcceptor acceptor{*pair.right.reactor};
    FakeEndpoint left{*pair.left.reactor};
    FakeEndpoint* right = nullptr;
};

TEST_F(Replaced, AConnectRequestForgedInAPeersNameLeavesItsConnectionAlive) {
    RawPeer forger(pair.left_options.address, 0, pair.right_options.address, pair.port());
    constexpr std::uint32_t kRequests = 8;
    for (std::uint32_t i = 0; i < kRequests; ++i) forger.send(RawPeer::request(1000 + i, kQp));
    ASSERT_TRUE(acceptor.await_endpoints(1 + kRequests));
    // The answers go to the peer itself, which knows nothing of it and says so.
    for (std::uint32_t i = 1; i <= kRequests; ++i) {
        FakeEndpoint& forged = *acceptor.endpoints[i];
        EXPECT_TRUE(forged.await([&] { return forged.failed.has_value(); }));
    }
    expect_works(left, *right);
}

TEST_F(Replaced, ARestartedPeerIsServedOnTheSameQueuePairAndItsOldLinkEnds) {
    pair.left.driver.reset();  // without a word, as by a kill
    left.forget_link();
    EXPECT_FALSE(right->failed.has_value());
    pair.left.driver = Driver::open(pair.left_options, *pair.left.reactor).value();
    FakeEndpoint anew(*pair.left.reactor);
    const auto connected = pair.connect(anew, kQp);
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    EXPECT_TRUE(right->await([&] { return right->failed.has_value(); }))
        << "connections that the restarted peer lost must end";
    FakeEndpoint* const newer = acceptor.await_link(1);
    ASSERT_NE(newer, nullptr);
    expect_works(anew, *newer);
    anew.close();
}

}  // namespace
}  // namespace gnstor::rdma::udp
