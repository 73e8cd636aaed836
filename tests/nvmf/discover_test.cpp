// discover_test.cpp: what a host reads out of a discovery log: all of a good one, nothing of a broken one;
// and from a target's own discovery controller, by packets.
#include "nvmf/host/discover.hpp"
#include "nvmf/loop_rig.hpp"
#include "nvmf/protocol/nqn.hpp"

#include <gnstor/base/hash.hpp>
#include <gnstor/nvme/discovery.hpp>

#include <gtest/gtest.h>

#include <cstring>

using namespace gnstor;
using namespace gnstor::nvmf;

namespace {

nvme::DiscoveryEntry entry(const std::string& nqn, const std::string& address, const std::string& service) {
    nvme::DiscoveryEntry e{};
    e.transport = static_cast<std::uint8_t>(nvme::TransportType::kRdma);
    e.family = static_cast<std::uint8_t>(nvme::AddressFamily::kIpv4);
    e.subtype = static_cast<std::uint8_t>(nvme::SubsystemType::kNvm);
    std::memset(e.address, ' ', sizeof e.address);
    std::memset(e.service, ' ', sizeof e.service);
    std::memcpy(e.subsystem_nqn, nqn.data(), nqn.size());
    std::memcpy(e.address, address.data(), address.size());
    std::memcpy(e.service, service.data(), service.size());
    return e;
}

std::vector<std::byte> page(const std::vector<nvme::DiscoveryEntry>& entries, std::uint64_t said,
                            std::uint16_t format = 0) {
    std::vector<std::byte> bytes(sizeof(nvme::DiscoveryLogHeader) +
                                 entries.size() * sizeof(nvme::DiscoveryEntry));
    nvme::DiscoveryLogHeader header{};
    header.records = said;
    header.record_format = format;
    std::memcpy(bytes.data(), &header, sizeof header);
    for (std::size_t i = 0; i < entries.size(); ++i)
        std::memcpy(bytes.data() + sizeof header + i * sizeof entries[i], &entries[i], sizeof entries[i]);
    return bytes;
}

TEST(Discover, ReadsNvmSubsystemsOfRdmaInTheirOrder) {
    auto tcp = entry("nqn.2026-11.io.gnstor:tcp", "10.0.0.9", "4420");
    tcp.transport = static_cast<std::uint8_t>(nvme::TransportType::kTcp);
    auto referral = entry("nqn.2026-11.io.gnstor:other", "10.0.0.9", "4420");
    referral.subtype = static_cast<std::uint8_t>(nvme::SubsystemType::kReferral);
    const auto found =
        read_discovery_log(page({entry("nqn.2026-11.io.gnstor:b", "10.0.0.1", "4420"), tcp, referral,
                                 entry("nqn.2026-11.io.gnstor:a", "fd00::1", "4421")},
                                4),
                           "peer");
    ASSERT_TRUE(found.ok()) << found.error().message;
    ASSERT_EQ(found->size(), 2u);
    EXPECT_EQ(found->at(0).nqn, "nqn.2026-11.io.gnstor:b");
    EXPECT_EQ(found->at(0).address, "10.0.0.1");
    EXPECT_EQ(found->at(0).service, "4420");
    EXPECT_EQ(found->at(1).address, "fd00::1");
    EXPECT_EQ(found->at(1).service, "4421");
    EXPECT_TRUE(read_discovery_log(page({}, 0), "peer")->empty());
}

TEST(Discover, ABrokenLogIsAnError) {
    const auto good = entry("nqn.2026-11.io.gnstor:a", "10.0.0.1", "4420");
    const auto code = [](const std::vector<std::byte>& bytes) {
        return read_discovery_log(bytes, "peer").error().code;
    };
    EXPECT_EQ(code({}), Errc::kCorrupt);
    EXPECT_EQ(code(std::vector<std::byte>(1023)), Errc::kCorrupt);
    EXPECT_EQ(code(page({good}, 2)), Errc::kCorrupt);
    EXPECT_EQ(code(page({good}, ~0ull)), Errc::kCorrupt);
    EXPECT_EQ(code(page({good}, 1, 1)), Errc::kCorrupt);
    auto nameless = good;
    std::memset(nameless.subsystem_nqn, 'x', sizeof nameless.subsystem_nqn);
    EXPECT_EQ(code(page({nameless}, 1)), Errc::kCorrupt);
    auto loud = good;
    loud.address[3] = '\x1B';
    EXPECT_EQ(code(page({loud}, 1)), Errc::kCorrupt)
        << "an address with terminal control characters must be refused";
    loud = good;
    loud.service[1] = '\n';
    EXPECT_EQ(code(page({loud}, 1)), Errc::kCorrupt);
    auto full = good;
    std::memset(full.address, '1', sizeof full.address);
    EXPECT_EQ(read_discovery_log(page({full}, 1), "peer")->at(0).address.size(), 256u);
}

TEST(Discover, RandomPagesNeverHarm) {
    SplitMix64 random(3);
    std::size_t read = 0;
    for (int i = 0; i < 2000; ++i) {
        auto bytes = page({entry("nqn.2026-11.io.gnstor:a", "10.0.0.1", "4420")}, 1);
        for (int k = 0; k < 4; ++k)
            bytes[random.below(bytes.size())] = static_cast<std::byte>(random.below(256));
        bytes.resize(random.below(4) == 0 ? random.below(bytes.size()) : bytes.size());
        const auto found = read_discovery_log(bytes, "peer");
        if (found.ok()) ++read;
        if (!found.ok()) {
            EXPECT_EQ(found.error().code, Errc::kCorrupt);
        }
    }
    EXPECT_GT(read, 100u);
}

TEST(Discover, AnSsdIsToldFromAnotherSubsystemByItsName) {
    const std::array<std::uint8_t, 16> uuid{1, 2, 3};
    EXPECT_TRUE(is_ssd_subsystem(ssd_subsystem_nqn(uuid)));
    EXPECT_FALSE(is_ssd_subsystem("nqn.2026-11.io.gnstor:volume:ssd"));
    EXPECT_FALSE(is_ssd_subsystem(ssd_subsystem_nqn(uuid) + "0"));
    EXPECT_FALSE(is_ssd_subsystem("nqn.2026-11.io.gnstor:ssd:"));
    EXPECT_FALSE(is_ssd_subsystem(""));
}

TEST(Discover, ATargetsDiscoveryControllerListsItsSubsystems) {
    RigOptions options;
    options.udp = true;
    options.target.ports.push_back({.service = "4421", .address = {}});
    LoopRig rig(options);
    const auto found = discover(rig.host_nic(), rig.node_nic().address(), "4421", 100'000);
    ASSERT_TRUE(found.ok()) << found.error().message;
    ASSERT_EQ(found->size(), 1u);
    EXPECT_TRUE(is_ssd_subsystem(found->at(0).nqn));
    EXPECT_EQ(found->at(0).address, rig.node_nic().address());
    EXPECT_EQ(found->at(0).service, "4421");
    EXPECT_FALSE(discover(rig.host_nic(), rig.node_nic().address(), "4499", 1'000).ok())
        << "no listener has that address and service";
}

}  // namespace
