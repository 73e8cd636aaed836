// icrc_test.cpp: the invariant CRC against known packets, and what it covers and what it does not.
#include "rdma/roce/icrc.hpp"

#include "packet_samples.hpp"
#include "rdma/roce/crc32.hpp"

#include <gnstor/base/hash.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

using namespace gnstor;
using namespace gnstor::rdma::roce;

namespace {

std::vector<std::byte> from_hex(std::string_view text) {
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes.push_back(static_cast<std::byte>(std::stoul(std::string(text.substr(i, 2)), nullptr, 16)));
    }
    return bytes;
}

// Whole datagrams as scapy 2.5 (contrib/roce) builds them.
constexpr std::string_view kSend =
    "45000044000040004011260d0a4d00010a4d0002c00012b700301451"
    "04e0ffff0000424280fffffe474e53746f723a2061206c616e652773206361707375000050b54e1a";
constexpr std::string_view kAck =
    "45030030123440003f1114ea0a4d00020a4d000112b712b7001ce6c81140ffff00000011000000101f0000073fc46eb6";

bool good(std::span<const std::byte> datagram) {
    std::uint32_t at = 0, bytes = 0;
    const auto headers = NetworkHeaders::parse(datagram, at, bytes);
    return headers.ok() && icrc_is_good(*headers, datagram.subspan(at, bytes));
}

TEST(RoceIcrc, Crc32HasItsCheckValueAtEveryLengthAndSplit) {
    const char digits[] = "123456789";
    EXPECT_EQ(crc32(std::as_bytes(std::span(digits, 9))), 0xCBF43926u);
    EXPECT_EQ(crc32({}), 0u);
    std::vector<std::byte> bytes(67);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 1);
    const std::uint32_t whole = crc32(bytes);
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
        const std::span<const std::byte> all(bytes);
        EXPECT_EQ(crc32(all.subspan(cut), crc32(all.first(cut))), whole);
    }
}

TEST(RoceIcrc, BothWaysToComputeCrc32AgreeAtEveryLengthAndAlignment) {
    std::vector<std::byte> bytes(4200);
    SplitMix64 random(3);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
    std::uint32_t compared = 0;
    for (std::size_t length = 0; length <= 4128; length += length < 300 ? 1 : 61)
        for (std::size_t at = 0; at < 16; ++at, ++compared) {
            const auto part = std::span<const std::byte>(bytes).subspan(at, length);
            const auto seed = static_cast<std::uint32_t>(random.next());
            ASSERT_EQ(crc32(part, seed), crc32_by_tables(part, seed)) << length << " bytes at " << at;
        }
    std::printf("GN_COUNT roce_crc32_compared=%u\n", compared);
}

TEST(RoceIcrc, KnownPacketsAreGood) {
    EXPECT_TRUE(good(from_hex(kSend)));
    EXPECT_TRUE(good(from_hex(kAck)));
}

TEST(RoceIcrc, OurHeadersAreThoseOfAKnownPacket) {
    NetworkHeaders::Ipv4 ip;
    ip.source = {10, 77, 0, 1};
    ip.destination = {10, 77, 0, 2};
    constexpr std::string_view text = "GNStor: a lane's capsule";
    Packet packet;
    packet.opcode = Opcode::kSendOnly;
    packet.solicited = packet.ack_request = true;
    packet.queue_pair = 0x4242;
    packet.psn = 0xFFFFFE;
    packet.payload.add(std::as_bytes(std::span(text.data(), 22)));
    std::vector<std::byte> bytes(encoded_bytes(packet));
    ASSERT_TRUE(encode(packet, bytes).ok());
    seal(NetworkHeaders::make(ip, {49152, kUdpPort}, static_cast<std::uint32_t>(bytes.size())), bytes);
    const auto known = from_hex(kSend);
    ASSERT_EQ(known.size(), 28 + bytes.size());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), known.begin() + 28));
}

// Bits that a router may change are covered by nothing; any other changed bit is noticed.
TEST(RoceIcrc, EveryFlippedBitIsDetectedExceptInFieldsThatRoutersChange) {
    SplitMix64 dice(7);
    std::vector<std::byte> storage;
    std::uint64_t flips = 0, free_bits = 0;
    for (int i = 0; i < 60; ++i) {
        const Packet packet = samples::make(dice, storage);
        if (packet.payload.bytes > 200) continue;
        std::vector<std::byte> transport(encoded_bytes(packet));
        ASSERT_TRUE(encode(packet, transport).ok());
        const auto headers = samples::make_headers(dice, static_cast<std::uint32_t>(transport.size()));
        seal(headers, transport);
        std::vector<std::byte> datagram(headers.bytes().begin(), headers.bytes().end());
        datagram.insert(datagram.end(), transport.begin(), transport.end());
        ASSERT_TRUE(good(datagram));
        const std::uint32_t ip = headers.ip_bytes();
        for (std::uint32_t bit = 0; bit < datagram.size() * 8; ++bit) {
            const std::uint32_t at = bit / 8;
            auto changed = datagram;
            changed[at] ^= static_cast<std::byte>(1u << (bit % 8));
            const bool v4_free = ip == 20 && (at == 1 || at == 8 || at == 10 || at == 11);
            const bool v6_free =
                ip == 40 && ((at == 0 && bit % 8 < 4) || at == 1 || at == 2 || at == 3 || at == 7);
            const bool udp_free = at == ip + 6 || at == ip + 7;
            const bool masked = v4_free || v6_free || udp_free || at == ip + 8 + 4;
            EXPECT_EQ(good(changed), masked) << "byte " << at << " bit " << bit % 8 << " of " << ip;
            ++flips;
            free_bits += masked ? 1 : 0;
        }
    }
    EXPECT_GT(free_bits, 0u);
    std::printf("GN_COUNT roce_icrc_flips=%llu\n", static_cast<unsigned long long>(flips));
}

TEST(RoceIcrc, FragmentsAndInvalidUdpDatagramsAreRefused) {
    const auto refused = [](std::size_t at, std::uint8_t value) {
        auto changed = from_hex(kAck);
        changed[at] = static_cast<std::byte>(value);
        std::uint32_t where = 0, bytes = 0;
        return !NetworkHeaders::parse(changed, where, bytes).ok();
    };
    EXPECT_FALSE(refused(8, 1));
    EXPECT_TRUE(refused(0, 0x46)) << "options";
    EXPECT_TRUE(refused(0, 0x65)) << "IPv6 of that length";
    EXPECT_TRUE(refused(9, 6)) << "TCP";
    EXPECT_TRUE(refused(6, 0x20)) << "a first fragment";
    EXPECT_TRUE(refused(7, 1)) << "a later fragment";
    EXPECT_TRUE(refused(3, 200)) << "longer than it is";
    EXPECT_TRUE(refused(25, 3)) << "a UDP length that is not the datagram's";
    std::uint32_t where = 0, bytes = 0;
    EXPECT_FALSE(NetworkHeaders::parse({}, where, bytes).ok());
}

}  // namespace
