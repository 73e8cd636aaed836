// kernel_packets_test.cpp: what a Linux kernel sent decodes, has a good ICRC, and says what it meant.
#include "kernel_packets.hpp"

#include <gnstor/nvme/fabrics.hpp>

#include "rdma/roce/cm_messages.hpp"
#include "rdma/roce/icrc.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

using namespace gnstor;
using namespace gnstor::rdma::roce;

namespace {

/// A datagram, its checks done.
struct Captured {
    explicit Captured(std::string_view text) {
        for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
            bytes.push_back(static_cast<std::byte>(std::stoul(std::string(text.substr(i, 2)), nullptr, 16)));
        }
        std::uint32_t at = 0, count = 0;
        const auto headers = NetworkHeaders::parse(bytes, at, count);
        const auto payload = std::span<const std::byte>(bytes).subspan(at, count);
        good = headers.ok() && icrc_is_good(*headers, payload) &&
               decode(payload, packet) == DecodeVerdict::kGood;
        bytes[at + 9] ^= std::byte{1};
        noticed = !icrc_is_good(*headers, payload);
        bytes[at + 9] ^= std::byte{1};
    }
    std::vector<std::byte> bytes;
    Packet packet;
    bool good = false, noticed = false;
};

CmMessage message_of(const Captured& captured) {
    const auto mad = management_datagram(captured.packet);
    const auto message = mad ? decode_cm(*mad) : std::nullopt;
    EXPECT_TRUE(message.has_value());
    return message.value_or(CmMessage{});
}

TEST(RoceKernelPackets, HaveAGoodIcrcAndOneFlippedBitIsDetected) {
    for (const auto text : {samples::kKernelRequest, samples::kKernelReadyToUse, samples::kKernelDisconnect,
                            samples::kKernelSend, samples::kKernelAck}) {
        const Captured captured(text);
        EXPECT_TRUE(captured.good) << text;
        EXPECT_TRUE(captured.noticed) << text;
    }
}

TEST(RoceKernelPackets, ARequestCarriesTheParametersOfNvmeRdma) {
    const Captured captured(samples::kKernelRequest);
    const CmMessage request = message_of(captured);
    EXPECT_EQ(request.kind, CmKind::kRequest);
    EXPECT_EQ(request.service_id, service_of_port(4420));
    EXPECT_EQ(request.queue_pair, 0x11u);
    EXPECT_EQ(request.start_psn, 0xEA455Eu);
    EXPECT_EQ(request.mtu_code, 3u);
    EXPECT_EQ(request.retry_count, 7u);
    EXPECT_EQ(request.rnr_retries, 7u);
    EXPECT_EQ(request.ack_timeout, 19u);
    EXPECT_EQ(request.responder_resources, 128u);
    const auto addresses = decode_ip_addresses(request.private_data);
    ASSERT_TRUE(addresses.has_value());
    EXPECT_EQ(addresses->source, request.local_gid);
    EXPECT_EQ(addresses->destination, request.remote_gid);
    nvme::RdmaConnectRequest binding;
    std::memcpy(&binding, request.private_data.data() + kIpAddressBytes, sizeof(binding));
    EXPECT_EQ(binding.queue_id, 0u);
    EXPECT_EQ(binding.host_receive_queue_size, 32u);
    EXPECT_EQ(binding.host_send_queue_size, 31u);
    // Encoded again, each field that this system knows of lies where the kernel put it.
    std::array<std::byte, kMadBytes> again;
    encode_cm(request, again);
    const auto theirs = *management_datagram(captured.packet);
    std::uint32_t differing = 0;
    for (std::uint32_t i = 0; i < kMadBytes; ++i) differing += again[i] != theirs[i] ? 1 : 0;
    EXPECT_LE(differing, 3u) << "the flow label, which we send as zero";
}

TEST(RoceKernelPackets, TheOtherMessagesOfAConnectionAreDecodedCorrectly) {
    const CmMessage request = message_of(Captured(samples::kKernelRequest));
    const CmMessage ready = message_of(Captured(samples::kKernelReadyToUse));
    const CmMessage bye = message_of(Captured(samples::kKernelDisconnect));
    EXPECT_EQ(ready.kind, CmKind::kReadyToUse);
    EXPECT_EQ(ready.local_id, request.local_id);
    EXPECT_EQ(ready.transaction, request.transaction);
    EXPECT_EQ(bye.kind, CmKind::kDisconnect);
    EXPECT_EQ(bye.queue_pair, 0x4243u);
    const Captured send(samples::kKernelSend), ack(samples::kKernelAck);
    EXPECT_EQ(send.packet.opcode, Opcode::kSendOnly);
    EXPECT_EQ(send.packet.payload.bytes, 64u);
    EXPECT_EQ(send.packet.psn, 0xFFFFFBu);
    EXPECT_TRUE(send.packet.ack_request);
    EXPECT_EQ(ack.packet.psn, 0xEA455Fu);
    EXPECT_EQ(ack.packet.syndrome, ack_syndrome());
    EXPECT_EQ(ack.packet.message_number, 2u);
}

}  // namespace
