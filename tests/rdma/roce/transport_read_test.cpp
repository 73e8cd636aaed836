// transport_read_test.cpp: long READs, one packet at a time.
#include "transport_rig.hpp"

using namespace gnstor;
using namespace gnstor::rdma::roce;
using namespace gnstor::rdma::roce::samples;

namespace {

using RoceTransport = Rig;

// Its answers come as fast as the peer can send, so what is asked for is what our own side has room for.
TEST_F(RoceTransport, ALongReadIsRequestedInPiecesThatFitTheWindow) {
    RequesterOptions options = out(0xFFFFFE);
    options.window_packets = 8;
    options.reads_max = 3;
    requester = std::make_unique<Requester>(options);
    for (std::size_t i = 0; i < node.memory.size(); ++i)
        node.memory[i] = static_cast<std::byte>(i * 7 + i / 251);
    post(RequestKind::kRead, 20 * kMtu + 5, kBase + 3);
    std::uint32_t asked = 0, lost = 0;
    for (TimeNs now = 0; completions().empty(); now += 1'000'000) {
        ASSERT_LT(now, 100'000'000u) << "the READ does not end";
        requester->on_time(now);
        const auto sent = requests(now);
        std::uint32_t bytes = 0;
        for (const Packet& packet : sent) {
            EXPECT_EQ(packet.opcode, Opcode::kReadRequest);
            EXPECT_LE(packet.length, 4 * kMtu);
            bytes += packet.length;
        }
        EXPECT_LE(bytes, 8 * kMtu);
        asked += static_cast<std::uint32_t>(sent.size());
        to_responder(now, sent);
        for (Packet packet; responder->next_packet(now, packet);) {
            // One response of each piece is lost once: the rest of the piece is asked for again.
            if (++lost == 3 || lost == 14) continue;
            requester->on_response(now, packet);
        }
    }
    EXPECT_EQ(std::memcmp(buffers[0].data(), node.memory.data() + 3, buffers[0].size()), 0);
    EXPECT_GE(asked, 6u + 2u) << "six pieces, and two repetitions";
    EXPECT_GE(requester->counters().retransmitted, 2u);
    EXPECT_TRUE(requester->idle());
}

// The peer has its own count of messages, in which each piece of a READ is one.
TEST_F(RoceTransport, CreditsAreCountedFromMessagesThatThePeerHasReceived) {
    RequesterOptions options = out(0xFFFFFE);
    options.window_packets = 8;
    requester = std::make_unique<Requester>(options);
    post(RequestKind::kRead, 20 * kMtu + 5);
    constexpr std::uint32_t kPieces = 6;
    std::uint32_t pieces = 0;
    while (!requester->idle()) {
        const auto sent = requests(0);
        ASSERT_FALSE(sent.empty());
        pieces += static_cast<std::uint32_t>(sent.size());
        to_responder(0, sent);
        to_requester(0, answers(0));
    }
    ASSERT_EQ(pieces, kPieces);
    for (int i = 0; i < 6; ++i) post(RequestKind::kSend, 10);
    Packet packet;
    ASSERT_TRUE(requester->next_packet(0, packet));
    to_requester(0, {acknowledge(packet.psn, ack_syndrome(2), kPieces + 1)});
    EXPECT_EQ(requests(0).size(), 2u) << "credits for two";
    to_requester(0, {acknowledge(packet.psn + 2, ack_syndrome(1), kPieces + 3)});
    EXPECT_EQ(requests(0).size(), 1u) << "for one, more messages done than requests posted";
    to_requester(0, {acknowledge(packet.psn + 3, ack_syndrome(), kPieces + 4)});
    EXPECT_EQ(requests(0).size(), 2u);
}

// A responder does not acknowledge a READ but by its responses: credits come with the number before it.
TEST_F(RoceTransport, CreditsAreStatedAlsoAfterAReadWasAnswered) {
    node.posted = node.taken + 4;
    post(RequestKind::kSend, 10);
    const auto first = requests(0);
    ASSERT_EQ(first.size(), 1u);
    to_responder(0, first);
    to_requester(0, {acknowledge(first[0].psn, ack_syndrome(0), 1)});
    post(RequestKind::kRead, 100);
    to_responder(0, requests(0));
    to_requester(0, answers(0));
    ASSERT_TRUE(requester->idle());
    for (int i = 0; i < 3; ++i) post(RequestKind::kSend, 10);
    EXPECT_EQ(requests(0).size(), 1u) << "without credits one goes out to ask";
    to_requester(0, {acknowledge(first[0].psn, ack_syndrome(3), 2)});
    EXPECT_EQ(requests(0).size(), 2u) << "the receives that were posted meanwhile";
}

// The kernel's rxe takes an acknowledgement with the number of a READ's last response for that response, and
// completes the READ without its data.
TEST_F(RoceTransport, ADuplicateIsNotAcknowledgedWithTheNumberOfALaterRead) {
    for (const std::uint32_t bytes : {512u, 3 * kMtu}) {
        start(0xFFFFFE);
        node.posted = node.taken + 1;
        post(RequestKind::kSend, 10);
        post(RequestKind::kRead, bytes);
        const auto sent = requests(0);
        ASSERT_EQ(sent.size(), 2u);
        to_responder(0, sent);
        ASSERT_EQ(answers(0).size(), packets_of(bytes, kMtu)) << "the responses, all of which are lost";
        to_responder(1'000'000, {sent[0]});
        const auto answer = answers(1'000'000);
        ASSERT_EQ(answer.size(), 1u);
        EXPECT_EQ(answer[0].opcode, Opcode::kAcknowledge);
        EXPECT_EQ(answer[0].psn, sent[0].psn);
        to_requester(1'000'000, answer);
        EXPECT_EQ(completions(), Statuses{rdma::mlx5::kSyndromeNone}) << "the SEND";
        requester->on_time(requester->next_deadline());
        to_responder(2'000'000'000, requests(2'000'000'000));
        to_requester(2'000'000'000, answers(2'000'000'000));
        EXPECT_EQ(completions(), Statuses{rdma::mlx5::kSyndromeNone}) << "the READ";
    }
}

// A message after the READ is acknowledged all the same: the READ's requester sees that responses were lost.
TEST_F(RoceTransport, AMessageAfterAReadIsAcknowledged) {
    node.posted = 1;
    post(RequestKind::kRead, 2 * kMtu);
    post(RequestKind::kSend, 10);
    const auto sent = requests(0);
    to_responder(0, sent);
    ASSERT_EQ(answers(0).size(), 2u);
    const auto answer = answers(responder->next_deadline());
    ASSERT_EQ(answer.size(), 1u);
    EXPECT_EQ(answer[0].psn, sent[1].psn);
    to_requester(0, answer);
    EXPECT_TRUE(completions().empty());
    const auto again = requests(0);
    ASSERT_EQ(again.size(), 2u);
    EXPECT_EQ(again[0].opcode, Opcode::kReadRequest);
}

// Who did not answer in time may not have got to what it has in its buffer: it is not sent all of it again.
TEST_F(RoceTransport, AfterATimeoutTwoPacketsAreSentAndTwiceAsManyAfterEachAnswer) {
    post(RequestKind::kWrite, 16 * kMtu);
    ASSERT_EQ(requests(0).size(), 16u);
    TimeNs now = requester->next_deadline();
    requester->on_time(now);
    const auto again = requests(now);
    ASSERT_EQ(again.size(), 2u);
    EXPECT_TRUE(again[1].ack_request) << "the packet must request an acknowledgement";
    std::vector<std::size_t> rounds;
    for (auto sent = again; !sent.empty(); sent = requests(now)) {
        rounds.push_back(sent.size());
        to_responder(now, sent);
        now += 1'000'000;
        to_requester(now, answers(now));
    }
    EXPECT_EQ(rounds, (std::vector<std::size_t>{2, 4, 8, 2}));
    EXPECT_EQ(completions(), Statuses{rdma::mlx5::kSyndromeNone});
    post(RequestKind::kWrite, 16 * kMtu);
    EXPECT_EQ(requests(now).size(), 16u) << "the full window must be restored in the end";
}

}  // namespace
