// Bit fields of properties and features: each value at its limits comes back, reserved bits stay zero.
#include <gnstor/nvme/fabrics.hpp>
#include <gnstor/nvme/features.hpp>
#include <gnstor/nvme/identify.hpp>

#include <gtest/gtest.h>

#include <cstring>

namespace n = gnstor::nvme;

TEST(Properties, CapabilitiesUseOnlyTheirOwnBits) {
    n::Capabilities all;
    all.max_queue_entries = 0xFFFF;
    all.contiguous_queues = all.weighted_round_robin = all.nvm_command_set = true;
    all.timeout_500ms = 0xFF;
    all.page_size_min = all.page_size_max = 0xF;
    EXPECT_EQ(all.encode(), 0x00FF0020FF03FFFFull);
    EXPECT_EQ(n::Capabilities::decode(all.encode()), all);
    EXPECT_EQ(n::Capabilities::decode(0).encode(), 0u);
}

TEST(Properties, EveryBitOfConfigurationAndStatusComesBackOrIsReserved) {
    for (int bit = 0; bit < 32; ++bit) {
        const std::uint32_t v = 1u << bit;
        const std::uint32_t cc = n::Configuration::decode(v).encode();
        EXPECT_EQ(cc, (v & 0x00FFFFF1u)) << "CC bit " << bit;
        const std::uint32_t csts = n::ControllerStatus::decode(v).encode();
        EXPECT_EQ(csts, (v & 0x0Fu)) << "CSTS bit " << bit;
    }
}

TEST(Properties, HaveTheWidthOfTheSpecification) {
    EXPECT_EQ(n::property_bytes(0x00), 8u);
    for (const std::uint32_t offset : {0x08u, 0x14u, 0x1Cu, 0x20u}) EXPECT_EQ(n::property_bytes(offset), 4u);
    for (const std::uint32_t offset : {0x04u, 0x0Cu, 0x18u, 0x24u, 0xFFFFFFFFu})
        EXPECT_EQ(n::property_bytes(offset), 0u);
}

TEST(Features, NumberOfQueuesIsZeroBased) {
    EXPECT_EQ((n::QueueCount{1, 1}).encode(), 0u);
    EXPECT_EQ((n::QueueCount{8, 16}).encode(), 0x000F0007u);
    for (const std::uint32_t v : {0u, 0x00010002u, 0xFFFEFFFEu})
        EXPECT_EQ(n::QueueCount::decode(v).encode(), v);
}

TEST(Features, AsyncEventPacksTypeInformationAndPage) {
    EXPECT_EQ((n::AsyncEvent{2, 0, 4}).encode(), 0x00040002u);
    EXPECT_EQ((n::AsyncEvent{7, 0xFF, 0xFF}).encode(), 0x00FFFF07u);
}

TEST(Fabrics, ACommandIsReadAsConnectAndPropertyByTheSameBytes) {
    n::Command c{};
    c.opcode = 0x7F;
    c.namespace_id = 0x01;
    EXPECT_EQ(n::fabrics_type(c), n::FabricsType::kConnect);
    c.cdw10 = 0x00050000;  // RECFMT 0, QID 5
    c.cdw11 = 0x0004001F;  // SQSIZE 31, CATTR 4
    c.cdw12 = 15000;
    n::ConnectCommand connect;
    std::memcpy(&connect, &c, sizeof connect);
    EXPECT_EQ(connect.queue_id, 5);
    EXPECT_EQ(connect.sq_size, 31);
    EXPECT_EQ(connect.attributes, n::kConnectDisableSqFlow);
    EXPECT_EQ(connect.keep_alive_ms, 15000u);
    EXPECT_EQ(n::connect_bad_parameter(42, false), 42u);
    EXPECT_EQ(n::connect_bad_parameter(256, true), 0x10100u);
}

TEST(Health, CountersKeep64BitsAndClearTheRest) {
    n::Counter128 c;
    std::memset(&c, 0xAA, sizeof c);
    c.set(0x0123456789ABCDEFull);
    EXPECT_EQ(c.low(), 0x0123456789ABCDEFull);
    for (int i = 8; i < 16; ++i) EXPECT_EQ(c.bytes[i], 0);
}
