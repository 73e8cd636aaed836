// cm_messages_test.cpp: connection management messages lie where the specification, and a Linux kernel, look
// for them.
#include "rdma/roce/cm_messages.hpp"

#include <gnstor/nvme/fabrics.hpp>

#include "cm_samples.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <vector>

using namespace gnstor;
using namespace gnstor::rdma::roce;

namespace {

using Mad = std::array<std::byte, kMadBytes>;

RC_GTEST_PROP(RoceCmMessage, SurvivesTheWayToBytesAndBack, (std::uint64_t seed)) {
    SplitMix64 dice(seed);
    for (const CmKind kind : samples::kCmKinds) {
        const CmMessage sent = samples::make_cm(dice, kind);
        Mad mad, again;
        encode_cm(sent, mad);
        const auto got = decode_cm(mad);
        RC_ASSERT(got.has_value());
        encode_cm(*got, again);
        RC_ASSERT(mad == again);
        RC_ASSERT(got->kind == sent.kind && got->transaction == sent.transaction);
        RC_ASSERT(got->local_id == sent.local_id && got->remote_id == sent.remote_id);
        RC_ASSERT(got->queue_pair == sent.queue_pair && got->ca_guid == sent.ca_guid);
        RC_ASSERT(got->private_data == sent.private_data && got->private_bytes == sent.private_bytes);
        RC_ASSERT(got->about == sent.about && got->reason == sent.reason);
        RC_ASSERT(got->service_timeout == sent.service_timeout);
        if (kind != CmKind::kRequest && kind != CmKind::kReply) continue;
        RC_ASSERT(got->start_psn == sent.start_psn && got->responder_resources == sent.responder_resources);
        RC_ASSERT(got->initiator_depth == sent.initiator_depth && got->rnr_retries == sent.rnr_retries);
        RC_ASSERT(got->flow_control == sent.flow_control);
        if (kind == CmKind::kReply) continue;
        RC_ASSERT(got->service_id == sent.service_id && got->mtu_code == sent.mtu_code);
        RC_ASSERT(got->local_gid == sent.local_gid && got->remote_gid == sent.remote_gid);
        RC_ASSERT(got->retry_count == sent.retry_count && got->ack_timeout == sent.ack_timeout);
        RC_ASSERT(got->response_timeout == sent.response_timeout && got->cm_retries == sent.cm_retries);
        RC_ASSERT(got->transport_service == sent.transport_service);
        RC_ASSERT(got->partition_key == sent.partition_key);
        RC_ASSERT(got->hop_limit == sent.hop_limit);
    }
}

// The offsets at which a kernel's nvme-rdma was seen to put and to look for them, counted from the start of
// the MAD.
TEST(RoceCmMessage, ARequestHasTheNvmeBindingWhereTheKernelPutsIt) {
    nvme::RdmaConnectRequest binding{};
    binding.queue_id = 3;
    binding.host_receive_queue_size = 128;
    binding.host_send_queue_size = 127;
    CmMessage request;
    request.kind = CmKind::kRequest;
    request.local_id = 0x01020304;
    request.service_id = service_of_port(4420);
    request.queue_pair = 0x0A0B0C;
    request.start_psn = 0xFFFFFE;
    request.mtu_code = 5;
    request.private_bytes = kIpAddressBytes + sizeof(binding);
    IpAddresses addresses;
    addresses.source = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 77, 0, 2};
    addresses.destination = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 77, 0, 1};
    encode_ip_addresses(addresses, std::span(request.private_data).first<kIpAddressBytes>());
    std::memcpy(request.private_data.data() + kIpAddressBytes, &binding, sizeof(binding));
    Mad mad;
    encode_cm(request, mad);
    const auto at = [&](std::size_t offset) { return std::to_integer<unsigned>(mad[offset]); };
    EXPECT_EQ(at(0), 1u);
    EXPECT_EQ(at(1), 7u);
    EXPECT_EQ(at(17), 0x10u);
    const std::size_t d = 24;
    EXPECT_EQ(at(d + 3), 4u);
    EXPECT_EQ(at(d + 13) << 16 | at(d + 14) << 8 | at(d + 15), 0x061144u);
    EXPECT_EQ(at(d + 32) << 16 | at(d + 33) << 8 | at(d + 34), 0x0A0B0Cu);
    EXPECT_EQ(at(d + 44) << 16 | at(d + 45) << 8 | at(d + 46), 0xFFFFFEu);
    EXPECT_EQ(at(d + 50) >> 4, 5u);
    EXPECT_EQ(at(d + 140 + 16), 10u) << "source address";
    EXPECT_EQ(at(d + 140 + 35), 1u) << "destination address";
    EXPECT_EQ(at(d + 140 + 38), 3u) << "queue id";
    const auto got = decode_ip_addresses(std::span(mad).subspan(d + 140));
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->source, addresses.source);
    EXPECT_EQ(got->destination, addresses.destination);
}

TEST(RoceCmMessage, InvalidMessagesAreRefused) {
    SplitMix64 dice(3);
    Mad mad;
    encode_cm(samples::make_cm(dice, CmKind::kReply), mad);
    ASSERT_TRUE(decode_cm(mad).has_value());
    for (const auto& [at, value] : {std::pair{0, 2}, {1, 3}, {2, 1}, {3, 1}, {17, 0x17}, {16, 1}}) {
        Mad changed = mad;
        changed[static_cast<std::size_t>(at)] = static_cast<std::byte>(value);
        EXPECT_FALSE(decode_cm(changed).has_value()) << at;
    }
    EXPECT_FALSE(decode_cm(std::span(mad).first(255)).has_value());
    Packet packet = management_packet(mad, 5);
    EXPECT_TRUE(management_datagram(packet).has_value());
    packet.queue_key = 0;
    EXPECT_FALSE(management_datagram(packet).has_value()) << "a wrong queue key";
    packet = management_packet(mad, 5);
    packet.queue_pair = 2;
    EXPECT_FALSE(management_datagram(packet).has_value());
    EXPECT_FALSE(decode_ip_addresses(std::span(mad).first(35)).has_value());
}

}  // namespace
