// udp_half_open_test.cpp: queue pairs whose peers were accepted and leave it at that: they can go at any
// time.
#include "rdma/nic_fixture.hpp"
#include "rdma/udp/raw_peer.hpp"

namespace gnstor::rdma::test {
namespace {

using udp::rig::RawPeer;

class UdpHalfOpen : public ::testing::Test {
  protected:
    /// A peer asks, and has the answer that its connection is accepted with `qp`.
    roce::CmMessage accept_with(QpNumber qp) {
        acceptor.answer = [qp](const ConnectRequest&) {
            ConnectReply reply;
            reply.accept = true;
            reply.qp = qp;
            reply.messages = 4;
            reply.message_bytes = 64;
            return reply;
        };
        must(nic->listen(kService, acceptor));
        peer.send(RawPeer::request(5, 9));
        const auto reply = peer.await(roce::CmKind::kReply);
        EXPECT_TRUE(reply);
        return reply.value_or(roce::CmMessage{});
    }
    void TearDown() override { nic->unlisten(kService); }

    std::unique_ptr<Reactor> reactor = must(Reactor::start("node"));
    std::unique_ptr<UdpWire> wire =
        must(UdpWire::open({.address = gnstor::test::loopback_address(3), .port = kTestRocePort}, *reactor));
    std::unique_ptr<SoftNic> nic = must(open_udp_nic(*wire, {.strict = true, .quiesce_timeout_ms = 2'000}));
    RawPeer peer{gnstor::test::loopback_address(66), kTestRocePort, gnstor::test::loopback_address(3),
                 kTestRocePort};
    Acceptor acceptor;
};

TEST_F(UdpHalfOpen, AnAcceptedQueuePairIsDestroyedWithoutWaitingForItsPeer) {
    KeepingSink sink;
    const QpNumber qp = must(nic->create_offload_queue_pair(sink));
    const roce::CmMessage reply = accept_with(qp);
    peer.send(RawPeer::patience(reply));
    const auto gone = nic->destroy_queue_pair(qp, 0);
    EXPECT_TRUE(gone.ok()) << gone.error().message;
    const auto told = peer.await(roce::CmKind::kReject);
    ASSERT_TRUE(told) << "the peer is told";
    EXPECT_EQ(told->reason, roce::RejectReason::kTimeout);
    EXPECT_EQ(told->about, 1u);
    EXPECT_EQ(told->ca_guid, reply.ca_guid) << "by which Linux finds its connection";
    EXPECT_EQ(sink.errors, 1u);
    if (!gone.ok()) must(nic->destroy_queue_pair(qp, 60'000));
}

TEST_F(UdpHalfOpen, AQueuePairWhosePeerWithdrawsItsRequestCanBeUsedAgain) {
    ReceiveCq cq(*nic, 6);
    End end(*nic, cq);
    peer.send(RawPeer::answer(accept_with(end.qpn), roce::CmKind::kReject));
    EXPECT_TRUE(eventually([&] { return nic->state(end.qpn) == QpState::kError; }));
    const auto reset = nic->reset_queue_pair(end.qpn);
    EXPECT_TRUE(reset.ok()) << reset.error().message;
    EXPECT_EQ(nic->state(end.qpn), QpState::kReset);
}

}  // namespace
}  // namespace gnstor::rdma::test
