// off_path_psn_test.cpp: how many of the 2^24 PSNs let a forged packet do something, for one who knows the
// queue pair number: every one of them is tried. docs/wire.md gives the probabilities that follow.
#include "support/count.hpp"
#include "transport_rig.hpp"

using namespace gnstor;
using namespace gnstor::rdma::roce;
namespace mlx5 = gnstor::rdma::mlx5;
using samples::kBase;
using samples::kKey;
using samples::kMtu;

namespace {

constexpr std::uint32_t kPsns = kPsnMask + 1;
constexpr std::uint32_t kStart = 0xABCDEF;

using Off = samples::Rig;

struct OffPathPsn : Off {
    void SetUp() override { start(kStart); }
    /// Sends `packet` with every PSN but `right`; returns how many.
    template <class Send>
    std::uint64_t with_every_psn_but(std::uint32_t right, Packet packet, Send send) {
        for (std::uint32_t psn = 0; psn < kPsns; ++psn) {
            if (psn == right) continue;
            packet.psn = psn;
            send(packet);
        }
        test::count("roce_off_path_packets", kPsns - 1);
        return kPsns - 1;
    }
    [[nodiscard]] Packet forged(Opcode opcode, std::uint32_t bytes) {
        Packet packet;
        packet.opcode = opcode;
        packet.address = kBase;
        packet.rkey = kKey;
        packet.length = bytes;
        if (opcode != Opcode::kReadRequest) packet.payload.add({garbage.data(), bytes});
        return packet;
    }
    const std::vector<std::byte> garbage = std::vector<std::byte>(kMtu, std::byte{0xEE});
};

TEST_F(OffPathPsn, OneOfAllPsnsLetsAForgedRequestBeExecutedAndTheOthersChangeNothing) {
    for (const Opcode opcode : {Opcode::kWriteOnly, Opcode::kSendOnly, Opcode::kReadRequest}) {
        node = {};
        node.posted = 1;
        start(kStart);
        const auto before = node.memory;
        const Packet packet = forged(opcode, 64);
        std::uint64_t read_responses = 0;
        with_every_psn_but(kStart, packet, [&](const Packet& one) {
            responder->on_request(0, one);
            for (Packet answer; responder->next_packet(0, answer);)
                read_responses += answer.opcode == Opcode::kAcknowledge ? 0 : 1;
        });
        EXPECT_EQ(responder->counters().executed, 0u);
        EXPECT_EQ(read_responses, 0u);
        EXPECT_EQ(node.taken, 0u);
        EXPECT_FALSE(responder->failed());
        EXPECT_TRUE(node.memory == before);
        EXPECT_LE(responder->counters().naks, 1u) << "one for the gap that a number ahead pretends";
        Packet right = packet;
        right.psn = kStart;
        responder->on_request(0, right);
        EXPECT_EQ(responder->counters().executed, 1u) << "which shows that the others could have been";
    }
}

TEST_F(OffPathPsn, OnlyPsnsInFlightLetAForgedAcknowledgeOrNakEndOrAcknowledgeAnything) {
    constexpr std::uint32_t kInFlight = 6;
    const auto send_all = [&] {
        start(kStart);
        buffers.clear();
        for (std::uint32_t i = 0; i < kInFlight; ++i) post(RequestKind::kWrite, 32);
        ASSERT_EQ(requests(0).size(), kInFlight);
    };
    for (const std::uint8_t syndrome : {nak_syndrome(NakCode::kRemoteAccess), ack_syndrome()}) {
        send_all();
        for (std::uint32_t psn = 0; psn < kPsns; ++psn)
            if (((psn - kStart) & kPsnMask) >= kInFlight)
                requester->on_response(0, acknowledge(psn, syndrome));
        test::count("roce_off_path_packets", kPsns - kInFlight);
        EXPECT_FALSE(requester->failed());
        EXPECT_EQ(requester->on_their_way(), kInFlight);
        EXPECT_TRUE(completions().empty());
        for (std::uint32_t i = 0; i < kInFlight; ++i) {
            send_all();
            requester->on_response(0, acknowledge((kStart + i) & kPsnMask, syndrome));
            EXPECT_TRUE(requester->failed() || requester->on_their_way() < kInFlight);
        }
    }
}

TEST_F(OffPathPsn, AnIdleConnectionIsEndedByNoForgedAnswer) {
    post(RequestKind::kWrite, 32);
    to_responder(0, requests(0));
    to_requester(0, answers(30'000));
    ASSERT_EQ(completions(), Statuses{mlx5::kSyndromeNone});
    for (const Opcode opcode : {Opcode::kAcknowledge, Opcode::kReadResponseOnly}) {
        Packet packet = forged(opcode, 32);
        packet.syndrome = nak_syndrome(NakCode::kRemoteOperational);
        with_every_psn_but(kPsns, packet, [&](const Packet& one) { requester->on_response(0, one); });
        EXPECT_FALSE(requester->failed());
    }
    post(RequestKind::kWrite, 32);
    to_responder(0, requests(0));
    to_requester(0, answers(60'000));
    EXPECT_EQ(completions(), Statuses{mlx5::kSyndromeNone});
}

TEST_F(OffPathPsn, AForgedOldAcknowledgeWithoutCreditsDoesNotThrottleAConnection) {
    node.posted = 8;
    for (int i = 0; i < 2; ++i) {
        post(RequestKind::kSend, 32);
        to_responder(0, requests(0));
        to_requester(0, answers(30'000));
    }
    ASSERT_EQ(completions().size(), 2u);
    constexpr std::uint8_t kNoCredits = 0;
    // All but the newest number, whose repetition may state credits (9.7.7.2).
    with_every_psn_but((kStart + 1) & kPsnMask, acknowledge(0, ack_syndrome(kNoCredits), 0),
                       [&](const Packet& one) { requester->on_response(0, one); });
    for (int i = 0; i < 4; ++i) post(RequestKind::kSend, 32);
    EXPECT_EQ(requests(0).size(), 4u) << "at once, not one by one";
}

}  // namespace
