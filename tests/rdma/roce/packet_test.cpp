// packet_test.cpp: headers survive the way to bytes and back; what is not a packet is refused, whatever it
// is.
#include "rdma/roce/packet.hpp"
#include "rdma/roce/psn.hpp"

#include "packet_samples.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdio>

using namespace gnstor;
using namespace gnstor::rdma::roce;

namespace {

std::vector<std::byte> joined(const Payload& payload) {
    std::vector<std::byte> all;
    for (std::uint32_t i = 0; i < payload.count; ++i) {
        all.insert(all.end(), payload.pieces[i].begin(), payload.pieces[i].end());
    }
    return all;
}

std::vector<std::byte> encoded(const Packet& packet) {
    std::vector<std::byte> bytes(encoded_bytes(packet));
    const auto result = encode(packet, bytes);
    EXPECT_TRUE(result.ok());
    return bytes;
}

/// At both ends of the window, and anywhere within it.
TEST(Psn, IsExtendedToTheNearestSequenceNumberAroundTheReference) {
    SplitMix64 dice(1);
    constexpr std::int64_t kHalf = std::int64_t{1} << 23;
    for (int i = 0; i < 10'000; ++i) {
        const Sequence reference = kSequenceBase + dice.below(std::uint64_t{1} << 40);
        const std::int64_t offsets[] = {-kHalf, kHalf - 1,
                                        static_cast<std::int64_t>(dice.below(2 * kHalf)) - kHalf};
        for (const std::int64_t offset : offsets) {
            const Sequence wanted = reference + static_cast<std::uint64_t>(offset);
            ASSERT_EQ(extend(psn_of(wanted), reference), wanted) << "reference " << reference;
        }
    }
}

RC_GTEST_PROP(RocePacket, SurvivesTheWayToBytesAndBack, (std::uint64_t seed)) {
    SplitMix64 dice(seed);
    std::vector<std::byte> storage;
    const Packet sent = samples::make(dice, storage);
    const auto bytes = encoded(sent);
    RC_ASSERT(bytes.size() % 4 == 0);
    Packet got;
    RC_ASSERT(decode(bytes, got) == DecodeVerdict::kGood);
    RC_ASSERT(got.opcode == sent.opcode && got.solicited == sent.solicited &&
              got.ack_request == sent.ack_request);
    RC_ASSERT(got.queue_pair == sent.queue_pair && got.psn == sent.psn);
    RC_ASSERT(got.address == sent.address && got.rkey == sent.rkey && got.length == sent.length);
    RC_ASSERT(got.syndrome == sent.syndrome && got.message_number == sent.message_number);
    RC_ASSERT(got.invalidate_rkey == sent.invalidate_rkey && got.immediate == sent.immediate);
    RC_ASSERT(got.queue_key == sent.queue_key && got.source_queue_pair == sent.source_queue_pair);
    RC_ASSERT(joined(got.payload) == storage);
}

RC_GTEST_PROP(RocePacket, CutAnywhereIsRefusedOrHasAShorterPayload, (std::uint64_t seed)) {
    SplitMix64 dice(seed);
    std::vector<std::byte> storage;
    const Packet sent = samples::make(dice, storage);
    auto bytes = encoded(sent);
    bytes.resize(dice.below(bytes.size()));
    // A copy of the exact size, so that a sanitizer sees a read past the end.
    const std::vector<std::byte> cut(bytes);
    Packet got;
    if (decode(cut, got) == DecodeVerdict::kGood) RC_ASSERT(got.payload.bytes < storage.size());
}

TEST(RocePacket, HeadersHaveTheSizesOfTheSpecification) {
    EXPECT_EQ(traits(Opcode::kSendOnly).header_bytes, 12u);
    EXPECT_EQ(traits(Opcode::kWriteFirst).header_bytes, 28u);
    EXPECT_EQ(traits(Opcode::kReadRequest).header_bytes, 28u);
    EXPECT_EQ(traits(Opcode::kWriteOnlyImmediate).header_bytes, kHeaderBytesMax);
    EXPECT_EQ(traits(Opcode::kAcknowledge).header_bytes, 16u);
    EXPECT_EQ(traits(Opcode::kReadResponseMiddle).header_bytes, 12u);
    EXPECT_EQ(traits(Opcode::kSendOnlyInvalidate).header_bytes, 16u);
    EXPECT_EQ(traits(Opcode::kUdSendOnly).header_bytes, 20u);
    EXPECT_EQ(traits(Opcode::kAtomicAcknowledge).header_bytes, 24u);
    EXPECT_EQ(traits(Opcode::kCompareSwap).header_bytes, 40u);
}

TEST(RocePacket, EachRefusalHasItsReason) {
    const std::byte data[6]{};
    Packet send;
    send.opcode = Opcode::kSendOnly;
    send.payload.add(data);
    auto bytes = encoded(send);
    Packet got;
    const auto verdict_with = [&](std::size_t at, std::uint8_t value) {
        auto changed = bytes;
        changed[at] = static_cast<std::byte>(value);
        return decode(changed, got);
    };
    EXPECT_EQ(decode(bytes, got), DecodeVerdict::kGood);
    EXPECT_EQ(verdict_with(0, 0x15), DecodeVerdict::kOpcode);
    EXPECT_EQ(verdict_with(0, 0x81), DecodeVerdict::kOpcode) << "congestion notifications are dropped";
    EXPECT_EQ(verdict_with(1, 0x41), DecodeVerdict::kVersion);
    EXPECT_EQ(verdict_with(2, 0x12), DecodeVerdict::kPartition);
    EXPECT_EQ(verdict_with(2, 0x7F), DecodeVerdict::kGood) << "a limited member of the default partition";
    EXPECT_EQ(verdict_with(0, 0x00), DecodeVerdict::kPad) << "a first packet is not padded";
    EXPECT_EQ(verdict_with(0, 0x11), DecodeVerdict::kPayload) << "an acknowledgement carries nothing";
    EXPECT_EQ(verdict_with(0, 0x13), DecodeVerdict::kShort);
    EXPECT_EQ(decode(std::span(bytes).first(15), got), DecodeVerdict::kShort);
    EXPECT_EQ(decode(std::span(bytes).first(bytes.size() - 1), got), DecodeVerdict::kPad);
    EXPECT_EQ(decode(std::vector<std::byte>(5000), got), DecodeVerdict::kTooLong);
}

TEST(RocePacket, InvalidPacketsAreNotEncoded) {
    std::vector<std::byte> data(kMtuMax + 4), room(8192);
    Packet packet;
    packet.opcode = Opcode::kSendOnly;
    packet.payload.add(data);
    EXPECT_FALSE(encode(packet, room).ok()) << "beyond the largest MTU";
    packet.payload = {};
    packet.payload.add(std::span(data).first(5));
    EXPECT_FALSE(encode(packet, std::span(room).first(23)).ok()) << "no room";
    EXPECT_TRUE(encode(packet, std::span(room).first(24)).ok());
    packet.opcode = Opcode::kSendFirst;
    EXPECT_FALSE(encode(packet, room).ok()) << "a first packet is not padded";
    packet.opcode = Opcode::kReadRequest;
    EXPECT_FALSE(encode(packet, room).ok()) << "a read request has no payload";
    packet.opcode = static_cast<Opcode>(0x15);
    EXPECT_FALSE(encode(packet, room).ok());
}

TEST(RocePacket, BytesAreScatteredIntoSegmentsFromAnyOffsetAndNotBeyondThem) {
    // Pieces of 3, 0 and 5 bytes, each with a guard behind it.
    for (std::uint32_t at = 0; at <= 9; ++at) {
        for (std::uint32_t bytes = 0; bytes <= 9; ++bytes) {
            std::array<std::byte, 4> first{};
            std::array<std::byte, 6> third{};
            const std::array<std::span<std::byte>, 3> pieces{
                std::span(first).first(3), std::span<std::byte>{}, std::span(third).first(5)};
            std::array<std::byte, 9> from{};
            for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i + 1);
            scatter(std::span(from).first(bytes), pieces, at);
            for (std::uint32_t i = 0; i < 8; ++i) {
                const std::byte found = i < 3 ? first[i] : third[i - 3];
                const bool written = i >= at && i < at + bytes;
                EXPECT_EQ(found, written ? from[i - at] : std::byte{0}) << bytes << " bytes from " << at;
            }
            EXPECT_EQ(first[3], std::byte{0});
            EXPECT_EQ(third[5], std::byte{0});
        }
    }
}

TEST(RocePacket, TimersAndCreditsAreThoseOfTheTables) {
    EXPECT_EQ(rnr_timer_ns(0), 655'360'000u);
    EXPECT_EQ(rnr_timer_ns(1), 10'000u);
    EXPECT_EQ(rnr_timer_ns(12), 640'000u);
    EXPECT_EQ(rnr_timer_ns(31), 491'520'000u);
    for (std::uint8_t code = 2; code < 32; ++code) EXPECT_GE(rnr_timer_ns(code), rnr_timer_ns(code - 1));
    const std::uint32_t credits[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    for (std::uint8_t code = 0; code < std::size(credits); ++code) EXPECT_EQ(credits_of(code), credits[code]);
    EXPECT_EQ(credits_of(30), 32768u);
    EXPECT_EQ(ack_kind(nak_syndrome(NakCode::kRemoteAccess)), AckKind::kNak);
    EXPECT_EQ(ack_kind(rnr_syndrome(14)), AckKind::kRnrNak);
    EXPECT_EQ(ack_kind(ack_syndrome()), AckKind::kAck);
    EXPECT_EQ(nak_syndrome(NakCode::kRemoteOperational), 0x63);
}

}  // namespace
