// transport_test.cpp: single rules of a reliable connection, one packet at a time, at moments that the test
// chooses.
#include "transport_rig.hpp"

#include <algorithm>

using namespace gnstor;
using namespace gnstor::rdma::roce;
using namespace gnstor::rdma::roce::samples;
namespace mlx5 = gnstor::rdma::mlx5;

namespace {

using RoceTransport = Rig;

TEST_F(RoceTransport, OneAcknowledgementCoversManyMessagesAcrossTheWrap) {
    node.posted = 3;
    for (int i = 0; i < 3; ++i) post(RequestKind::kSend, 2000);
    const auto sent = requests(0);
    ASSERT_EQ(sent.size(), 6u);
    EXPECT_EQ(sent[0].opcode, Opcode::kSendFirst);
    EXPECT_EQ(sent[1].opcode, Opcode::kSendLast);
    EXPECT_EQ(sent[1].psn, 0xFFFFFFu);
    EXPECT_EQ(sent[2].psn, 0u);
    to_responder(100, sent);
    EXPECT_TRUE(answers(100).empty()) << "an acknowledgement must be delayed to cover several messages";
    ASSERT_NE(responder->next_deadline(), kNever);
    const auto answer = answers(responder->next_deadline());
    ASSERT_EQ(answer.size(), 1u);
    EXPECT_EQ(answer[0].psn, 3u);
    EXPECT_EQ(answer[0].message_number, 3u);
    to_requester(200, answer);
    EXPECT_EQ(completions(), Statuses(3, mlx5::kSyndromeNone));
    EXPECT_EQ(requester->next_deadline(), kNever) << "nothing to wait for";
}

TEST_F(RoceTransport, AGapCausesOneNakAndIsRetransmittedFromThere) {
    node.posted = 1;
    post(RequestKind::kSend, 4 * kMtu);
    const auto sent = requests(0);
    to_responder(0, {sent[0], sent[2], sent[3]});
    const auto answer = answers(0);
    ASSERT_EQ(answer.size(), 1u);
    EXPECT_EQ(answer[0].syndrome, nak_syndrome(NakCode::kSequenceError));
    EXPECT_EQ(answer[0].psn, sent[1].psn);
    to_requester(0, {answer[0], answer[0], answer[0]});
    const auto again = requests(0);
    ASSERT_EQ(again.size(), 3u) << "three NAKs cause one retransmission";
    EXPECT_EQ(again[0].psn, sent[1].psn);
    to_responder(0, again);
    ASSERT_EQ(node.done.size(), 1u);
    EXPECT_EQ(node.done[0].bytes, 4 * kMtu);
}

TEST_F(RoceTransport, SilenceCausesBackOffAndThenAnError) {
    post(RequestKind::kWrite, 10);
    post(RequestKind::kWrite, 10);
    EXPECT_EQ(requests(0).size(), 2u);
    TimeNs now = 0, gap = 0;
    for (std::uint32_t i = 0; i < 7; ++i) {
        const TimeNs deadline = requester->next_deadline();
        ASSERT_NE(deadline, kNever);
        EXPECT_GE(deadline - now, gap) << "each wait is as long as the one before, or longer";
        gap = deadline - now;
        now = deadline;
        requester->on_time(now);
        EXPECT_EQ(requests(now).size(), 2u);
    }
    requester->on_time(requester->next_deadline());
    EXPECT_TRUE(requester->failed());
    EXPECT_EQ(completions(), (Statuses{mlx5::kTransportRetryExceeded, mlx5::kFlushed}));
    post(RequestKind::kWrite, 10);
    EXPECT_EQ(completions(), Statuses{mlx5::kFlushed}) << "requests posted later must be flushed";
    EXPECT_EQ(requester->next_deadline(), kNever);
}

TEST_F(RoceTransport, AMissingReceiveIsWaitedForButNotForever) {
    for (const std::uint32_t retries : {0u, 3u, 6u, kRnrByTime}) {
        send_where_no_receive_is(retries);
        TimeNs now = 0;
        std::uint32_t naks = 0;
        while (!requester->failed()) {
            to_responder(now, requests(now));
            const auto answer = answers(now);
            ASSERT_EQ(answer.size(), 1u);
            ASSERT_EQ(ack_kind(answer[0].syndrome), AckKind::kRnrNak);
            to_requester(now, answer);
            ASSERT_LE(++naks, 10'000u);
            if (requester->failed()) break;
            ASSERT_TRUE(requests(now).empty()) << "before the time that the NAK gave is over";
            ASSERT_EQ(requester->next_deadline(), now + rnr_timer_ns(12));
            now = requester->next_deadline();
            requester->on_time(now);
        }
        EXPECT_EQ(completions(), Statuses{mlx5::kRnrRetryExceeded});
        if (retries != kRnrByTime) {
            EXPECT_EQ(naks, retries + 1);
        } else {
            EXPECT_GE(now, kRnrPatienceNs) << "the timeout must end the connection, not the number of tries";
            EXPECT_LE(now, kRnrPatienceNs + rnr_timer_ns(12));
        }
    }
}

TEST_F(RoceTransport, SilenceOfFourSecondsIsOutlivedWithTheTimeoutOfOurWires) {
    const auto silent_ms = [&](std::uint32_t code) {
        RequesterOptions options = out(0xFFFFFE);
        options.ack_timeout_ns = 4096ull << code;
        requester = std::make_unique<Requester>(options);
        post(RequestKind::kWrite, 10);
        TimeNs now = 0;
        for (; !requester->failed(); requester->on_time(now)) {
            (void)requests(now);
            now = requester->next_deadline();
        }
        return now / 1'000'000;
    };
    EXPECT_EQ(silent_ms(12), 4278u);
    EXPECT_EQ(silent_ms(14), 8627u) << "what Linux peers are asked for; not doubled beyond 2.2 s";
}

TEST_F(RoceTransport, APeerThatAlwaysNamesTheShortestRnrPauseIsSentFewPackets) {
    send_where_no_receive_is(kRnrByTime);
    TimeNs now = 0;
    std::uint32_t naks = 0;
    while (!requester->failed()) {
        to_responder(now, requests(now));
        auto answer = answers(now);
        ASSERT_EQ(answer.size(), 1u);
        answer[0].syndrome = rnr_syndrome(1);
        to_requester(now, answer);
        if (++naks <= 7) {
            ASSERT_EQ(requester->next_deadline(), now + rnr_timer_ns(1)) << "the first few as it says";
        }
        ASSERT_LE(naks, 10'010u);
        if (requester->failed()) break;
        now = requester->next_deadline();
        requester->on_time(now);
    }
    EXPECT_GE(now, kRnrPatienceNs) << "for as long as others have";
}

TEST_F(RoceTransport, ProgressRestartsTheTimeoutOfAMissingReceive) {
    TimeNs now = 0;
    const auto wait_for_most_of_it = [&] {
        const TimeNs until = now + kRnrPatienceNs * 3 / 4;
        while (now < until) {
            to_responder(now, requests(now));
            to_requester(now, answers(now));
            ASSERT_FALSE(requester->failed());
            now = requester->next_deadline();
            requester->on_time(now);
        }
        ++node.posted;
        to_responder(now, requests(now));
        now += 1'000'000;
        to_requester(now, answers(now));
        ASSERT_TRUE(requester->idle());
    };
    for (int i = 0; i < 3; ++i) {
        post(RequestKind::kSend, 10);
        wait_for_most_of_it();
        EXPECT_EQ(completions(), Statuses{mlx5::kSyndromeNone});
    }
}

TEST_F(RoceTransport, AReceivePostedInTimeGetsTheMessage) {
    post(RequestKind::kSendInvalidate, 10);
    to_responder(0, requests(0));
    to_requester(0, answers(0));
    node.posted = 1;
    requester->on_time(requester->next_deadline());
    to_responder(1'000'000, requests(1'000'000));
    ASSERT_EQ(node.done.size(), 1u);
    EXPECT_TRUE(node.done[0].invalidated);
    EXPECT_EQ(node.done[0].invalidated_rkey, kKey);
}

TEST_F(RoceTransport, ADuplicateIsAcknowledgedAndNotExecuted) {
    post(RequestKind::kWrite, 8);
    const auto sent = requests(0);
    to_responder(0, sent);
    EXPECT_EQ(node.memory[0], std::byte{0x5A});
    node.memory[0] = std::byte{1};
    EXPECT_EQ(answers(1'000'000).size(), 1u);
    to_responder(2'000'000, sent);
    EXPECT_EQ(node.memory[0], std::byte{1});
    EXPECT_EQ(answers(2'000'000).size(), 1u);
}

TEST_F(RoceTransport, ALostResponseIsRequestedAgainFromTheLostPacket) {
    for (std::size_t i = 0; i < node.memory.size(); ++i) node.memory[i] = static_cast<std::byte>(i * 7);
    post(RequestKind::kRead, 4 * kMtu - 24);
    to_responder(0, requests(0));
    auto responses = answers(0);
    ASSERT_EQ(responses.size(), 4u);
    EXPECT_EQ(responses[0].opcode, Opcode::kReadResponseFirst);
    EXPECT_EQ(responses[3].opcode, Opcode::kReadResponseLast);
    to_requester(0, {responses[0], responses[2], responses[3]});
    const auto again = requests(0);
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].address, kBase + kMtu);
    EXPECT_EQ(again[0].length, 3 * kMtu - 24);
    to_responder(0, again);
    responses = answers(0);
    ASSERT_EQ(responses.size(), 3u);
    EXPECT_EQ(responses[0].opcode, Opcode::kReadResponseFirst);
    to_requester(0, responses);
    EXPECT_EQ(completions(), Statuses{mlx5::kSyndromeNone});
    EXPECT_TRUE(std::equal(buffers[0].begin(), buffers[0].end(), node.memory.begin()));
}

TEST_F(RoceTransport, AnAcknowledgementBeyondAReadDoesNotFinishIt) {
    node.posted = 1;
    post(RequestKind::kRead, 100);
    post(RequestKind::kSend, 10);
    const auto sent = requests(0);
    ASSERT_EQ(sent.size(), 2u);
    to_requester(0, {acknowledge(sent[1].psn, ack_syndrome())});
    EXPECT_TRUE(completions().empty());
    EXPECT_EQ(requests(0).size(), 2u) << "the READ is asked for again";
}

TEST_F(RoceTransport, AReadAcknowledgesWhatWasSentBeforeIt) {
    post(RequestKind::kWrite, 10);
    post(RequestKind::kRead, 10);
    to_responder(0, requests(0));
    const auto answer = answers(0);
    ASSERT_EQ(answer.size(), 1u) << "no acknowledgement beside the response";
    to_requester(0, answer);
    EXPECT_EQ(completions(), Statuses(2, mlx5::kSyndromeNone));
}

TEST_F(RoceTransport, NoMoreReadsAreUnderWayThanAgreed) {
    for (int i = 0; i < 4; ++i) post(RequestKind::kRead, 10);
    auto sent = requests(0);
    EXPECT_EQ(sent.size(), 2u);
    to_responder(0, sent);
    to_requester(0, answers(0));
    EXPECT_EQ(requests(0).size(), 2u);
    // A peer that asks for more at once than was agreed on is refused.
    start(0);
    for (std::uint32_t psn = 0; psn < 3; ++psn) {
        sent[0].psn = psn;
        responder->on_request(0, sent[0]);
    }
    EXPECT_TRUE(responder->failed());
    const auto answer = answers(0);
    EXPECT_EQ(answer.back().syndrome, nak_syndrome(NakCode::kInvalidRequest));
}

TEST_F(RoceTransport, AWrongKeyEndsTheConnectionAndARepeatedRequestGetsTheReasonAgain) {
    post(RequestKind::kWrite, 10);
    post(RequestKind::kWrite, 10, kBase, kKey + 1);
    post(RequestKind::kWrite, 10);
    const auto sent = requests(0);
    to_responder(0, sent);
    EXPECT_TRUE(responder->failed());
    EXPECT_EQ(answers(0).size(), 1u) << "one NAK, though a third request came after it";
    responder->on_request(1, sent[1]);
    const auto answer = answers(1);
    ASSERT_EQ(answer.size(), 1u) << "the first one was lost";
    EXPECT_EQ(answer[0].syndrome, nak_syndrome(NakCode::kRemoteAccess));
    to_requester(1, answer);
    EXPECT_EQ(completions(), (Statuses{mlx5::kSyndromeNone, mlx5::kRemoteAccessError, mlx5::kFlushed}));
}

TEST_F(RoceTransport, InvalidatingAKeyEndsAReadInProgress) {
    post(RequestKind::kRead, 3 * kMtu);
    to_responder(0, requests(0));
    Packet packet;
    ASSERT_TRUE(responder->next_packet(0, packet));
    requester->on_response(0, packet);
    node.revoked = true;
    const auto answer = answers(0);
    ASSERT_EQ(answer.size(), 1u);
    EXPECT_EQ(answer[0].syndrome, nak_syndrome(NakCode::kRemoteAccess));
    to_requester(0, answer);
    EXPECT_EQ(completions(), Statuses{mlx5::kRemoteAccessError});
}

TEST_F(RoceTransport, WithoutCreditsOnlyOneSendGoesOut) {
    for (int i = 0; i < 6; ++i) post(RequestKind::kSend, 10);
    // The first is acknowledged with credits for two more messages: those that are out already count.
    Packet packet;
    ASSERT_TRUE(requester->next_packet(0, packet));
    to_requester(0, {acknowledge(packet.psn, ack_syndrome(2), 1)});
    EXPECT_EQ(requests(0).size(), 2u);
    to_requester(0, {acknowledge(0, ack_syndrome(0), 3)});
    EXPECT_EQ(requests(0).size(), 1u) << "without credits one goes out to ask";
    to_requester(0, {acknowledge(1, ack_syndrome(), 4)});
    EXPECT_EQ(requests(0).size(), 2u);
}

TEST_F(RoceTransport, PacketsOutOfOrderWithinAMessageAreRefused) {
    const auto refusal = [&](std::initializer_list<std::pair<Opcode, std::uint32_t>> packets,
                             std::uint32_t length = 0) {
        start(0);
        node.posted = node.taken + 4;
        const std::vector<std::byte> data(kMtu + 8);
        Packet packet;
        std::uint32_t psn = 0;
        for (const auto& [opcode, bytes] : packets) {
            packet = Packet{};
            packet.opcode = opcode;
            packet.psn = psn++;
            packet.address = kBase;
            packet.rkey = kKey;
            packet.length = length;
            packet.payload.add(std::span(data).first(bytes));
            responder->on_request(0, packet);
        }
        const auto answer = answers(1'000'000);
        return responder->failed() && !answer.empty() ? answer.back().syndrome : 0;
    };
    constexpr std::uint8_t invalid = nak_syndrome(NakCode::kInvalidRequest);
    EXPECT_EQ(refusal({{Opcode::kSendMiddle, kMtu}}), invalid);
    EXPECT_EQ(refusal({{Opcode::kSendFirst, kMtu}, {Opcode::kSendFirst, kMtu}}), invalid);
    EXPECT_EQ(refusal({{Opcode::kSendFirst, kMtu}, {Opcode::kWriteLast, 8}}), invalid);
    EXPECT_EQ(refusal({{Opcode::kSendFirst, kMtu}, {Opcode::kReadRequest, 0}}), invalid);
    EXPECT_EQ(refusal({{Opcode::kSendFirst, 8}}), invalid) << "a first packet is full";
    EXPECT_EQ(refusal({{Opcode::kSendOnly, kMtu + 4}}), invalid) << "beyond the MTU";
    EXPECT_EQ(refusal({{Opcode::kSendFirst, kMtu}, {Opcode::kSendLast, 0}}), invalid);
    EXPECT_EQ(refusal({{Opcode::kWriteOnly, 8}}, 9), invalid) << "fewer bytes than announced";
    EXPECT_EQ(refusal({{Opcode::kWriteFirst, kMtu}}, kMtu), invalid) << "more packets than announced";
    EXPECT_EQ(refusal({{Opcode::kWriteFirst, kMtu}, {Opcode::kWriteLast, 8}}, kMtu + 4), invalid);
    EXPECT_EQ(refusal({{Opcode::kWriteFirst, kMtu}}, 0x80000001u), invalid);
    EXPECT_EQ(refusal({{Opcode::kReadRequest, 0}}, 0x80000001u), invalid);
    EXPECT_EQ(refusal({{Opcode::kSendOnlyImmediate, 8}}), invalid);
    EXPECT_EQ(refusal({{Opcode::kFetchAdd, 0}}), invalid);
    EXPECT_EQ(refusal({{Opcode::kWriteFirst, kMtu}}, 70000), nak_syndrome(NakCode::kRemoteAccess));
    EXPECT_EQ(refusal({{Opcode::kSendOnly, 8}, {Opcode::kWriteOnly, 0}, {Opcode::kReadRequest, 0}}), 0);
}

TEST_F(RoceTransport, AMessageLargerThanItsReceiveIsRefusedAndFailsTheReceive) {
    node.posted = 1;
    post(RequestKind::kSend, 5 * kMtu);
    to_responder(0, requests(0));
    EXPECT_TRUE(responder->failed());
    ASSERT_EQ(node.done.size(), 1u);
    EXPECT_EQ(node.done[0].status, mlx5::kLocalLengthError);
    to_requester(0, answers(0));
    EXPECT_EQ(completions(), Statuses{mlx5::kRemoteInvalidRequest});
}

TEST_F(RoceTransport, AcknowledgementsOfUnsentPacketsChangeNothing) {
    post(RequestKind::kWrite, 10);
    const auto sent = requests(0);
    const std::uint32_t psn = sent[0].psn;
    to_requester(
        0, {acknowledge(psn + 1, ack_syndrome()), acknowledge(psn - 1, nak_syndrome(NakCode::kRemoteAccess)),
            acknowledge(psn + 5, nak_syndrome(NakCode::kRemoteOperational)),
            acknowledge((psn + 0x800000) & 0xFFFFFF, ack_syndrome())});
    Packet response;
    response.opcode = Opcode::kReadResponseOnly;
    response.psn = psn;
    requester->on_response(0, response);
    EXPECT_FALSE(requester->failed());
    EXPECT_TRUE(completions().empty());
    EXPECT_EQ(requester->counters().ghosts, 3u);
}

TEST_F(RoceTransport, AResponseOfAnotherLengthEndsTheConnection) {
    post(RequestKind::kRead, 100);
    const auto sent = requests(0);
    const std::vector<std::byte> data(96);
    Packet response;
    response.opcode = Opcode::kReadResponseOnly;
    response.psn = sent[0].psn;
    response.payload.add(data);
    requester->on_response(0, response);
    EXPECT_EQ(completions(), Statuses{mlx5::kBadResponse});
}

TEST_F(RoceTransport, AnErrorOfTheRequesterOrResponderEndsTheOther) {
    Connection connection(out(0), in(0), node);
    node.posted = 1;
    std::vector<std::byte> data(kMtu);
    Request request;
    request.pieces[0] = data;
    request.count = 1;
    ASSERT_TRUE(connection.post(request).ok());
    Packet packet;
    packet.opcode = Opcode::kSendFirst;
    packet.payload.add(data);
    connection.on_packet(0, packet);
    packet.psn = 1;
    packet.opcode = Opcode::kWriteLast;
    connection.on_packet(0, packet);
    EXPECT_TRUE(connection.failed());
    EXPECT_EQ(connection.failure(), mlx5::kLocalQpOperationError);
    Completion completion;
    ASSERT_TRUE(connection.next_completion(completion));
    EXPECT_EQ(completion.status, mlx5::kFlushed);
    ASSERT_EQ(node.done.size(), 1u) << "the receive that was being filled";
    ASSERT_TRUE(connection.next_packet(0, packet));
    EXPECT_EQ(packet.syndrome, nak_syndrome(NakCode::kInvalidRequest));
    EXPECT_FALSE(connection.next_packet(0, packet));
    EXPECT_EQ(connection.next_deadline(), kNever);
}

}  // namespace
