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
