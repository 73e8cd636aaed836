// retry_counts_test.cpp: who is connected to sends again as often as the REQ says (12.7.27, 12.7.38 of the
// InfiniBand specification), not as often as it would ask of others.
#include "rdma/udp/raw_peer.hpp"

namespace gnstor::rdma::udp {
namespace {

using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;
using rig::RawPeer;

constexpr std::uint32_t kRetryQp = 9;
constexpr auto kLook = std::chrono::milliseconds(20);

/// A peer that connects with these counts, and answers no SEND, or each by "no receive is posted".
class RetryCounts : public ::testing::Test {
  protected:
    struct Outcome {
        std::uint32_t sends = 0;
        mlx5::Syndrome why = mlx5::kSyndromeNone;
    };
    Outcome send_to(std::uint8_t retry_count, std::uint8_t rnr_retries, bool answers) {
        Outcome outcome;
        roce::CmMessage req = RawPeer::request(++number, kRetryQp);
        req.retry_count = retry_count;
        req.rnr_retries = rnr_retries;
        peer.send(req);
        const auto reply = peer.await(roce::CmKind::kReply);
        if (!reply) return outcome;
        peer.send(RawPeer::answer(*reply, roce::CmKind::kReadyToUse));
        FakeEndpoint* const endpoint = acceptor.await_link(number - 1);
        if (endpoint == nullptr) return outcome;
        std::vector<std::byte> bytes(16);
        EXPECT_TRUE(endpoint->post(rig::request(roce::RequestKind::kSend, 1, bytes)).ok());
        const auto ended = [&] { return endpoint->failed.has_value(); };
        const auto deadline = std::chrono::steady_clock::now() + rig::kPatience;
        roce::Packet packet;
        // What was sent before its end is still to be counted after it.
        for (bool over = false; std::chrono::steady_clock::now() < deadline;) {
            while (peer.receive(packet, kLook)) {
                if (packet.opcode != roce::Opcode::kSendOnly || packet.queue_pair != kRetryQp) continue;
                ++outcome.sends;
                if (answers) refuse(reply->queue_pair, packet.psn);
            }
            if (over) break;
            over = endpoint->await(ended, std::chrono::milliseconds(1));
        }
        const std::lock_guard lock(endpoint->mutex);
        if (!endpoint->bad.empty()) outcome.why = endpoint->bad.front().status;
        return outcome;
    }
    void refuse(std::uint32_t qp, std::uint32_t psn) {
        roce::Packet nak;
        nak.opcode = roce::Opcode::kAcknowledge;
        nak.queue_pair = qp;
        nak.psn = psn;
        nak.syndrome = roce::rnr_syndrome(1);  // 10 us
        peer.send(nak);
    }
    void SetUp() override { ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok()); }
    void TearDown() override { pair.right.driver->unlisten(4420); }

    Pair pair;
    FakeAcceptor acceptor{*pair.right.reactor};
    RawPeer peer{"127.0.0.66", pair.port(), pair.right_options.address, pair.port()};
    std::uint32_t number = 0;
};

TEST_F(RetryCounts, RnrNaksAreToleratedAsOftenAsThePeerRequested) {
    for (const std::uint8_t count : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{6}}) {
        const Outcome outcome = send_to(7, count, true);
        EXPECT_GE(outcome.sends, 1u + count);
        // More where this thread was late, so that a timeout was first; without a limit it were hundreds.
        EXPECT_LE(outcome.sends, 8u + 2u * count);
        EXPECT_EQ(outcome.why, mlx5::kRnrRetryExceeded);
    }
}

TEST_F(RetryCounts, TimeoutsAreToleratedAsOftenAsThePeerRequested) {
    for (const std::uint8_t count : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{3}}) {
        const Outcome outcome = send_to(count, 7, false);
        EXPECT_EQ(outcome.sends, 1u + count);
        EXPECT_EQ(outcome.why, mlx5::kTransportRetryExceeded);
    }
}

}  // namespace
}  // namespace gnstor::rdma::udp
