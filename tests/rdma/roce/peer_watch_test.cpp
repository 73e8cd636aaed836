// peer_watch_test.cpp: what ends a peer and what does not, in simulated time; and which packets a requester
// has sent that are unanswered.
#include "rdma/roce/peer_watch.hpp"

#include "rdma/roce/transport_rig.hpp"

namespace gnstor::rdma::roce {
namespace {

using Verdict = PeerWatch::Verdict;
constexpr TimeNs kLater = PeerWatch::kConfirmNs;

TEST(PeerWatch, OnePortUnreachableMessageProbesThePeerAndASecondEndsItOnlyAfterTimeForAnAnswer) {
    PeerWatch watch;
    EXPECT_EQ(watch.refused(1000), Verdict::kProbe);
    EXPECT_TRUE(watch.doubted());
    EXPECT_EQ(watch.refused(1000), Verdict::kWait) << "a message of the same burst must not count";
    EXPECT_EQ(watch.refused(1000 + kLater - 1), Verdict::kWait);
    EXPECT_EQ(watch.refused(1000 + kLater), Verdict::kEnded);
}

TEST(PeerWatch, APacketOfThePeerResetsTheCountOfMessages) {
    PeerWatch watch;
    EXPECT_EQ(watch.refused(1000), Verdict::kProbe);
    watch.heard(1000 + kLater - 1);
    EXPECT_FALSE(watch.doubted());
    EXPECT_EQ(watch.refused(1000 + kLater), Verdict::kProbe);
    EXPECT_EQ(watch.refused(1000 + 2 * kLater), Verdict::kEnded);
}

TEST(PeerWatch, ASuspectedPeerIsProbedWithIncreasingIntervals) {
    PeerWatch watch;
    EXPECT_EQ(watch.refused(0), Verdict::kProbe);
    TimeNs before = 0;
    std::vector<TimeNs> pauses;
    for (int i = 0; i < 6; ++i) {
        const TimeNs due = watch.next_deadline();
        EXPECT_FALSE(watch.probe_due(due - 1, false));
        EXPECT_TRUE(watch.probe_due(due, false));
        pauses.push_back((due - before) / kLater);
        before = due;
    }
    EXPECT_EQ(pauses, (std::vector<TimeNs>{1, 2, 4, 8, 8, 8}));
}

TEST(PeerWatch, OnlyASilentPeerThatOwesAnswersIsProbed) {
    PeerWatch watch;
    EXPECT_FALSE(watch.probe_due(5 * kSecondNs, false));
    EXPECT_EQ(watch.next_deadline(), kNever);
    TimeNs now = 9 * kSecondNs;
    EXPECT_FALSE(watch.probe_due(now, true)) << "its silence counts from when it owes something";
    EXPECT_EQ(watch.next_deadline(), now + PeerWatch::kSilenceNs);
    watch.heard(now += 1000);
    EXPECT_EQ(watch.next_deadline(), now + PeerWatch::kSilenceNs);
    EXPECT_TRUE(watch.probe_due(now + PeerWatch::kSilenceNs, true));
    EXPECT_FALSE(watch.probe_due(now + 100 * PeerWatch::kSilenceNs, false)) << "it has answered";
    EXPECT_EQ(watch.next_deadline(), kNever);
}

class Probed : public samples::Rig {};

TEST_F(Probed, OnlySentAndUnacknowledgedPacketNumbersCountAsUnanswered) {
    EXPECT_FALSE(requester->probe()) << "nothing was sent";
    post(RequestKind::kWrite, 3 * samples::kMtu);
    EXPECT_FALSE(requester->unanswered(0xFFFFFE)) << "posted, not sent";
    requests(0);
    for (const std::uint32_t psn : {0xFFFFFEu, 0xFFFFFFu, 0u}) EXPECT_TRUE(requester->unanswered(psn)) << psn;
    for (const std::uint32_t psn : {0xFFFFFDu, 1u, 0x800000u})
        EXPECT_FALSE(requester->unanswered(psn)) << psn;
    requester->on_response(0, acknowledge(0xFFFFFE, ack_syndrome()));
    EXPECT_FALSE(requester->unanswered(0xFFFFFE));
    EXPECT_TRUE(requester->unanswered(0xFFFFFF));
}

TEST_F(Probed, UnacknowledgedPacketsAreSentAgainAtOnceAndTheirTimeoutIsKept) {
    post(RequestKind::kWrite, 4 * samples::kMtu);
    requests(0);
    const TimeNs deadline = requester->next_deadline();
    ASSERT_TRUE(requester->probe());
    const auto again = requests(1000);
    ASSERT_EQ(again.size(), 2u) << "not the whole window";
    EXPECT_EQ(again[0].psn, 0xFFFFFEu);
    EXPECT_EQ(requester->next_deadline(), deadline);
    EXPECT_EQ(requester->counters().timeouts, 0u);
    to_responder(1000, again);
    EXPECT_EQ(node.memory[0], std::byte{0x5A});
}

TEST_F(Probed, WithNothingUnacknowledgedTheProbeIsADuplicateThatIsNotExecuted) {
    node.posted = 2;
    post(RequestKind::kSend, 10);
    to_responder(0, requests(0));
    to_requester(100'000, answers(100'000));
    ASSERT_EQ(completions(), Statuses{mlx5::kSyndromeNone});
    EXPECT_FALSE(requester->unanswered(0xFFFFFE));
    ASSERT_TRUE(requester->probe());
    EXPECT_TRUE(requester->sending_again());
    const auto probe = requests(200'000);
    ASSERT_EQ(probe.size(), 1u);
    EXPECT_EQ(probe[0].psn, 0xFFFFFEu);
    EXPECT_TRUE(requester->unanswered(0xFFFFFE));
    EXPECT_EQ(requester->next_deadline(), kNever) << "no timeout runs for it";
    to_responder(200'000, probe);
    const auto answer = answers(200'000);
    ASSERT_EQ(answer.size(), 1u) << "a duplicate must be acknowledged at once";
    to_requester(200'000, answer);
    EXPECT_FALSE(requester->unanswered(0xFFFFFE));
    EXPECT_EQ(node.done.size(), 1u) << "a duplicate must not be executed";
    post(RequestKind::kSend, 10);
    to_responder(300'000, requests(300'000));
    EXPECT_EQ(node.done.size(), 2u) << "the connection must continue to work";
}

TEST_F(Probed, ADuplicateOfAReadsLastNumberIsAcknowledged) {
    post(RequestKind::kRead, 3 * samples::kMtu);
    to_responder(0, requests(0));
    to_requester(0, answers(0));
    ASSERT_EQ(completions(), Statuses{mlx5::kSyndromeNone});
    ASSERT_TRUE(requester->probe());
    const auto probe = requests(1000);
    ASSERT_EQ(probe.size(), 1u);
    to_responder(1000, probe);
    EXPECT_EQ(answers(1000).size(), 1u);
    EXPECT_FALSE(responder->failed());
}

TEST_F(Probed, GivingUpFailsTheOldestRequestAndFlushesTheOthers) {
    post(RequestKind::kWrite, 10);
    post(RequestKind::kWrite, 10);
    requests(0);
    requester->give_up();
    EXPECT_EQ(completions(), (Statuses{mlx5::kTransportRetryExceeded, mlx5::kFlushed}));
    EXPECT_FALSE(requester->probe());
    EXPECT_FALSE(requester->unanswered(0xFFFFFE));
}

}  // namespace
}  // namespace gnstor::rdma::roce
