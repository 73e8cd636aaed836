// dhchap_messages_test.cpp: the bytes of each message, and that decoding refuses all others.
#include "nvmf/auth/dhchap_messages.hpp"
#include "nvmf/auth/auth_command.hpp"

#include <gnstor/base/hash.hpp>
#include <gnstor/nvme/fabrics.hpp>

#include "support/count.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

namespace gnstor::nvmf::auth::dhchap_messages_test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_from(std::initializer_list<unsigned> values, std::size_t size) {
    Bytes bytes(size);
    std::size_t at = 0;
    for (const unsigned v : values) bytes[at++] = std::byte(v);
    return bytes;
}
Bytes filled(std::size_t count, unsigned first) {
    Bytes bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = std::byte((first + i) & 0xFF);
    return bytes;
}
/// AUTH_Negotiate as Linux sends it: three hashes, the NULL group and five others.
Bytes negotiate_of_linux() {
    Bytes bytes = bytes_from({0, 0, 0, 0, 0x34, 0x12, 0, 1, 1, 0, 3, 6, 1, 2, 3}, 72);
    for (unsigned i = 0; i < 6; ++i) bytes[42 + i] = std::byte(i);
    return bytes;
}
Challenge sample_challenge() {
    return {.transaction = 0x1234,
            .hash = HashId::kSha384,
            .group = GroupId::kFfdhe2048,
            .sequence = 0xA1B2C3D4,
            .challenge = filled(48, 1),
            .public_value = filled(256, 9)};
}
Reply sample_reply() {
    return {.transaction = 0x1234,
            .response = filled(48, 1),
            .sequence = 7,
            .challenge = filled(48, 3),
            .public_value = filled(256, 9)};
}

TEST(DhchapMessages, TheNegotiateOfLinuxIsUnderstoodAndOursHasItsLayout) {
    const auto decoded = decode_negotiate(negotiate_of_linux());
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded.message->transaction, 0x1234);
    EXPECT_EQ(decoded.message->hashes, (std::vector{HashId::kSha256, HashId::kSha384, HashId::kSha512}));
    EXPECT_EQ(decoded.message->groups.size(), 6u);
    EXPECT_EQ(decoded.message->groups[0], GroupId::kNull);
    EXPECT_EQ(decoded.message->groups[5], GroupId::kFfdhe8192);
    EXPECT_EQ(encode(*decoded.message), negotiate_of_linux());
}

TEST(DhchapMessages, UnknownHashesGroupsAndProtocolsAreSkipped) {
    Bytes bytes = negotiate_of_linux();
    bytes[12] = std::byte{200};
    bytes[42] = std::byte{77};
    auto decoded = decode_negotiate(bytes);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded.message->hashes, (std::vector{HashId::kSha384, HashId::kSha512}));
    EXPECT_EQ(decoded.message->groups[0], GroupId::kFfdhe2048);
    // Another protocol in front of it.
    bytes = negotiate_of_linux();
    bytes[7] = std::byte{2};
    bytes.insert(bytes.begin() + 8, 64, std::byte{0xEE});
    EXPECT_TRUE(decode_negotiate(bytes));
    bytes[7] = std::byte{1};
    bytes.resize(72);
    EXPECT_EQ(decode_negotiate(bytes).failure, AuthFailure::kProtocolNotUsable);
}

TEST(DhchapMessages, AMalformedNegotiateIsRefusedWithItsReason) {
    const auto failure = [](std::size_t at, unsigned value) {
        Bytes bytes = negotiate_of_linux();
        bytes[at] = std::byte(value);
        const auto decoded = decode_negotiate(bytes);
        EXPECT_FALSE(decoded) << at;
        return decoded.failure;
    };
    for (const std::size_t reserved : {2u, 3u, 9u})
        EXPECT_EQ(failure(reserved, 1), AuthFailure::kIncorrectPayload);
    EXPECT_EQ(failure(6, 1), AuthFailure::kConcatenationMismatch);
    for (const unsigned descriptors : {0u, 2u, 255u})
        EXPECT_EQ(failure(7, descriptors), AuthFailure::kIncorrectPayload);
    EXPECT_EQ(failure(8, 2), AuthFailure::kProtocolNotUsable);
    for (const unsigned length : {31u, 255u, 4u, 2u})
        EXPECT_EQ(failure(10, length), AuthFailure::kIncorrectPayload);
    for (const unsigned length : {31u, 255u, 5u, 7u})
        EXPECT_EQ(failure(11, length), AuthFailure::kIncorrectPayload);
    EXPECT_EQ(failure(12, 0), AuthFailure::kIncorrectPayload);  // reserved hash
    EXPECT_EQ(failure(13, 1), AuthFailure::kIncorrectPayload);  // twice the same
    EXPECT_EQ(failure(71, 1), AuthFailure::kIncorrectPayload);
    Bytes twice = negotiate_of_linux();
    twice.insert(twice.end(), twice.begin() + 8, twice.begin() + 72);
    twice[7] = std::byte{2};
    EXPECT_EQ(decode_negotiate(twice).failure, AuthFailure::kIncorrectPayload);
}

TEST(DhchapMessages, ChallengeHasTheLayoutOfTheSpecification) {
    const Bytes bytes = encode(sample_challenge());
    ASSERT_EQ(bytes.size(), 16u + 48 + 256);
    const Bytes head = bytes_from({1, 1, 0, 0, 0x34, 0x12, 48, 0, 2, 1, 0, 1, 0xD4, 0xC3, 0xB2, 0xA1}, 16);
    EXPECT_TRUE(std::equal(head.begin(), head.end(), bytes.begin()));
    const auto decoded = decode_challenge(bytes);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded.message->challenge, sample_challenge().challenge);
    EXPECT_EQ(decoded.message->public_value, sample_challenge().public_value);
    EXPECT_EQ(decoded.message->sequence, 0xA1B2C3D4u);
    // Behind the message lies the rest of the host's buffer.
    Bytes buffer = bytes;
    buffer.resize(4096, std::byte{0xA5});
    EXPECT_TRUE(decode_challenge(buffer));
}

TEST(DhchapMessages, AChallengeWithAWrongFieldIsRefusedWithItsReason) {
    const auto failure = [](std::size_t at, unsigned value) {
        Bytes bytes = encode(sample_challenge());
        bytes[at] = std::byte(value);
        const auto decoded = decode_challenge(bytes);
        EXPECT_FALSE(decoded) << at;
        return decoded.failure;
    };
    for (const std::size_t at : {0u, 1u, 2u, 3u, 7u})
        EXPECT_EQ(failure(at, 9), AuthFailure::kIncorrectPayload);
    EXPECT_EQ(failure(6, 47), AuthFailure::kIncorrectPayload);
    EXPECT_EQ(failure(8, 0), AuthFailure::kHashNotUsable);
    EXPECT_EQ(failure(8, 4), AuthFailure::kHashNotUsable);
    EXPECT_EQ(failure(9, 6), AuthFailure::kGroupNotUsable);
    EXPECT_EQ(failure(9, 0), AuthFailure::kIncorrectPayload);   // the NULL group has no public value
    EXPECT_EQ(failure(10, 1), AuthFailure::kIncorrectPayload);  // 257 bytes
    Challenge without = sample_challenge();
    without.sequence = 0;
    EXPECT_FALSE(decode_challenge(encode(without)));
}

TEST(DhchapMessages, ReplyHasTheLayoutOfTheSpecification) {
    const Bytes bytes = encode(sample_reply());
    ASSERT_EQ(bytes.size(), 16u + 48 + 48 + 256);
    const Bytes head = bytes_from({1, 2, 0, 0, 0x34, 0x12, 48, 0, 1, 0, 0, 1, 7, 0, 0, 0}, 16);
    EXPECT_TRUE(std::equal(head.begin(), head.end(), bytes.begin()));
    const auto decoded = decode_reply(bytes, HashId::kSha384, GroupId::kFfdhe2048);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded.message->response, sample_reply().response);
    EXPECT_EQ(decoded.message->challenge, sample_reply().challenge);
    EXPECT_EQ(decoded.message->public_value, sample_reply().public_value);
    // Without a challenge, Linux sends zeros in its place.
    Reply alone = sample_reply();
    alone.challenge.clear();
    alone.sequence = 0;
    const Bytes short_of_one = encode(alone);
    EXPECT_EQ(short_of_one.size(), bytes.size());
    EXPECT_EQ(short_of_one[8], std::byte{0});
    ASSERT_TRUE(decode_reply(short_of_one, HashId::kSha384, GroupId::kFfdhe2048));
    EXPECT_TRUE(decode_reply(short_of_one, HashId::kSha384, GroupId::kFfdhe2048).message->challenge.empty());
    // But Linux draws S2 nevertheless.
    alone.sequence = 7;
    const auto of_linux = decode_reply(encode(alone), HashId::kSha384, GroupId::kFfdhe2048);
    ASSERT_TRUE(of_linux);
    EXPECT_TRUE(of_linux.message->challenge.empty());
    EXPECT_EQ(of_linux.message->sequence, 0u);
}

TEST(DhchapMessages, AReplyWithAWrongFieldIsRefused) {
    const auto good = [](const Bytes& bytes) {
        return static_cast<bool>(decode_reply(bytes, HashId::kSha384, GroupId::kFfdhe2048));
    };
    const auto with = [](std::size_t at, unsigned value) {
        Bytes bytes = encode(sample_reply());
        bytes[at] = std::byte(value);
        return bytes;
    };
    for (const std::size_t at : {0u, 1u, 2u, 3u, 6u, 7u, 8u, 9u, 10u, 11u})
        EXPECT_FALSE(good(with(at, 5))) << at;
    EXPECT_FALSE(good(with(12, 0)));  // a challenge with S2 = 0: secure channel concatenation
    EXPECT_FALSE(good(with(8, 0)));   // C2 although there is no challenge
    Reply alone = sample_reply();
    alone.challenge.clear();
    alone.sequence = 0;
    Bytes bytes = encode(alone);
    bytes[16 + 48 + 5] = std::byte{1};
    EXPECT_FALSE(good(bytes));
    bytes = encode(sample_reply());
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(good(bytes));
    EXPECT_FALSE(decode_reply(encode(sample_reply()), HashId::kSha256, GroupId::kFfdhe2048));
    EXPECT_FALSE(decode_reply(encode(sample_reply()), HashId::kSha384, GroupId::kNull));
}

TEST(DhchapMessages, SuccessAndFailureHaveTheLayoutOfTheSpecification) {
    const Success1 proof{.transaction = 0x1234, .response = filled(32, 5)};
    Bytes bytes = encode(proof, HashId::kSha256);
    ASSERT_EQ(bytes.size(), 48u);
    const Bytes head = bytes_from({1, 3, 0, 0, 0x34, 0x12, 32, 0, 1}, 16);
    EXPECT_TRUE(std::equal(head.begin(), head.end(), bytes.begin()));
    EXPECT_EQ(decode_success1(bytes, HashId::kSha256).message->response, proof.response);
    EXPECT_FALSE(decode_success1(bytes, HashId::kSha384));
    // As from Linux without a proof: the length of the hash, no response, a buffer with stale bytes behind
    // it.
    bytes = encode(Success1{.transaction = 0x1234, .response = {}}, HashId::kSha256);
    EXPECT_EQ(bytes, bytes_from({1, 3, 0, 0, 0x34, 0x12, 32}, 16));
    bytes.resize(4096, std::byte{0x5A});
    ASSERT_TRUE(decode_success1(bytes, HashId::kSha256));
    EXPECT_TRUE(decode_success1(bytes, HashId::kSha256).message->response.empty());
    for (std::size_t at = 7; at < 16; ++at) {
        Bytes bad = encode(proof, HashId::kSha256);
        bad[at] = std::byte{2};
        EXPECT_FALSE(decode_success1(bad, HashId::kSha256)) << at;
    }
    EXPECT_EQ(encode(Success2{0x1234}), bytes_from({1, 4, 0, 0, 0x34, 0x12}, 16));
    EXPECT_EQ(decode_success2(encode(Success2{0x1234})).message->transaction, 0x1234);
    const Failure failure{0x1234, AuthFailure::kGroupNotUsable};
    EXPECT_EQ(encode(failure, MessageKind::kFailure1), bytes_from({0, 0xF1, 0, 0, 0x34, 0x12, 1, 5}, 8));
    EXPECT_EQ(encode(failure, MessageKind::kFailure2), bytes_from({0, 0xF0, 0, 0, 0x34, 0x12, 1, 5}, 8));
    EXPECT_EQ(decode_failure(encode(failure, MessageKind::kFailure2)).message->explanation,
              AuthFailure::kGroupNotUsable);
    EXPECT_EQ(decode_failure(bytes_from({0, 0xF1, 0, 0, 0, 0, 1, 99}, 8)).message->explanation,
              AuthFailure::kAuthenticationFailed);
    EXPECT_EQ(kind_of(encode(failure, MessageKind::kFailure1)), MessageKind::kFailure1);
    EXPECT_FALSE(kind_of(bytes_from({1, 0xF1}, 8)));
    EXPECT_FALSE(kind_of(filled(5, 0)));
}

TEST(DhchapMessages, AnyBytesAreDecodedOrRefused) {
    std::uint64_t decoded = 0;
    for (std::uint64_t seed = 0; seed < 20000; ++seed) {
        // A copy of the exact size, so that the sanitizer sees a read past the end.
        Bytes bytes(mix64(seed) % 400);
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(mix64(seed * 1000 + i) & 0xFF);
        if (bytes.size() > 16) std::memcpy(bytes.data(), encode(sample_challenge()).data(), seed % 17);
        decoded += kind_of(bytes).has_value();
        (void)decode_negotiate(bytes);
        (void)decode_challenge(bytes);
        (void)decode_reply(bytes, HashId::kSha256, GroupId::kNull);
        (void)decode_success1(bytes, HashId::kSha512);
        (void)decode_success2(bytes);
        (void)decode_failure(bytes);
    }
    EXPECT_GT(decoded, 1000u);
    test::count("nvmf_auth_random_messages", 20000);
}

TEST(AuthCommand, TheTargetParsesWhatTheHostBuildsAndLinuxSends) {
    for (const AuthDirection direction : {AuthDirection::kSend, AuthDirection::kReceive}) {
        const nvme::Command command = auth_command(direction, 72);
        unsigned char raw[64];
        std::memcpy(raw, &command, sizeof raw);
        EXPECT_EQ(raw[0], 0x7F);
        EXPECT_EQ(raw[4], direction == AuthDirection::kSend ? 5 : 6);
        EXPECT_EQ(raw[41], 1);
        EXPECT_EQ(raw[42], 1);
        EXPECT_EQ(raw[43], 0xE9);
        EXPECT_EQ(raw[44], 72);
        const auto verdict = parse_auth_command(command);
        EXPECT_EQ(verdict.status, nvme::Status::kSuccess);
        EXPECT_EQ(verdict.direction, direction);
        EXPECT_EQ(verdict.bytes, 72u);
    }
}

TEST(AuthCommand, OtherProtocolsLengthsAndCommandsAreRefused) {
    const auto status = [](AuthDirection direction, std::size_t at, unsigned value,
                           std::uint32_t bytes = 72) {
        auto raw = std::bit_cast<std::array<unsigned char, 64>>(auth_command(direction, bytes));
        raw[at] = static_cast<unsigned char>(value);
        return parse_auth_command(std::bit_cast<nvme::Command>(raw)).status;
    };
    EXPECT_EQ(status(AuthDirection::kSend, 43, 0xEA), nvme::Status::kInvalidField);
    EXPECT_EQ(status(AuthDirection::kSend, 42, 0), nvme::Status::kInvalidField);
    EXPECT_EQ(status(AuthDirection::kReceive, 41, 2), nvme::Status::kInvalidField);
    EXPECT_EQ(status(AuthDirection::kSend, 44, 0), nvme::Status::kInvalidField);
    EXPECT_EQ(status(AuthDirection::kReceive, 44, 0), nvme::Status::kInvalidField);
    EXPECT_EQ(status(AuthDirection::kSend, 47, 1), nvme::Status::kInvalidField);  // 16 MiB
    EXPECT_EQ(status(AuthDirection::kSend, 4, 1), nvme::Status::kInvalidOpcode);  // Connect
    EXPECT_EQ(status(AuthDirection::kSend, 0, 2), nvme::Status::kInvalidOpcode);
    // A larger buffer than any message takes is fine.
    EXPECT_EQ(parse_auth_command(auth_command(AuthDirection::kReceive, 1u << 20)).bytes,
              kAuthMessageBytesMax);
}

}  // namespace
}  // namespace gnstor::nvmf::auth::dhchap_messages_test
