// floor_test.cpp: a write that ended in doubt does not end a gateway's service: discards go on, in another
// epoch, and nobody's writes are lost.
#include "gateway/rig.hpp"

namespace gnstor::test::floor_test {

constexpr std::uint64_t kVolumeBlocks = (8ull << 30) / kBlock;
constexpr std::uint32_t kMostAtOnce = (32u << 20) / kBlock;  ///< what the namespace names as its limit

nvme::Epoch epoch_of(GatewayRig& rig, const std::string& name) {
    const auto volumes = rig.array.control->list_volumes().value();
    for (const nvme::VolumeRecord& record : volumes)
        if (name == record.name) return record.epoch;
    return 0;
}

TEST(GatewayFloor, DiscardsContinueAfterAWriteOfUnknownOutcome) {
    EmbeddedArrayOptions o = gateway_array();
    o.ssd_capacity_bytes = 64u << 20;
    GatewayRig rig(o);
    auto client = rig.client("gw");
    client::CreateVolume r;
    r.name = "thin";
    r.capacity_bytes = kVolumeBlocks * kBlock;
    r.chunk_bytes = 256u << 10;  // some times as many intervals as an SSD's table has
    r.any_writer = true;
    (void)client->create(r).value();
    gateway::GatewayOptions options;
    options.volume = "thin";
    options.command_timeout_ms = 12'000;
    auto served = rig.serve(*client, options).value();
    BlockHost host(rig, *served, 1);
    const auto write = [&](std::uint64_t block, int value) {
        std::memset(host.buffer.data(), value, kBlock);
        return host.status(block_command(IoOpcode::kWrite, block, 1), kBlock);
    };
    const auto holds = [&](std::uint64_t block, int value) {
        if (!nvme::ok(host.status(block_command(IoOpcode::kRead, block, 1), kBlock))) return false;
        const std::vector<std::byte> all(kBlock, static_cast<std::byte>(value));
        return std::memcmp(host.buffer.data(), all.data(), kBlock) == 0;
    };
    ASSERT_EQ(write(kVolumeBlocks - 1, 3), Status::kSuccess);
    const nvme::Epoch before = epoch_of(rig, "thin");
    {
        const Hold held(*rig.array.node->drive_reactors().front());
        EXPECT_NE(write(kVolumeBlocks - 2, 4), Status::kSuccess) << "no drive answers";
    }
    for (std::uint64_t block = 0; block < kVolumeBlocks / 2; block += kMostAtOnce)
        ASSERT_EQ(host.trim({{0, kMostAtOnce, block}}), Status::kSuccess) << "from block " << block;
    for (std::uint64_t block = 0; block < kVolumeBlocks / 2; block += kVolumeBlocks / 64) {
        ASSERT_TRUE(holds(block, 0));
        ASSERT_EQ(write(block, 9), Status::kSuccess) << "a write to a trimmed block must succeed";
        ASSERT_TRUE(holds(block, 9));
    }
    EXPECT_TRUE(holds(kVolumeBlocks - 1, 3));
    EXPECT_GT(epoch_of(rig, "thin"), before) << "a new epoch, by itself";
    EXPECT_EQ(write(kVolumeBlocks - 2, 5), Status::kSuccess);
    EXPECT_TRUE(holds(kVolumeBlocks - 2, 5));
}

}  // namespace gnstor::test::floor_test
