// discard_test.cpp: discards of a volume that is much larger than its SSDs end, and leave it writable.
#include "gateway/rig.hpp"

namespace gnstor::test::discard_test {

constexpr std::uint64_t kVolumeBlocks = (8ull << 30) / kBlock;
constexpr std::uint32_t kMostAtOnce = (32u << 20) / kBlock;  ///< what the namespace names as its limit

TEST(GatewayDiscard, OfAWholeThinVolumeOnTinySsdsCompletesAndTheVolumeIsWritableAfterwards) {
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
    options.command_timeout_ms = 60'000;
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
    std::uint64_t trimmed = 0;
    for (int round = 1; round <= 2; ++round) {
        for (std::uint64_t block = 0; block < kVolumeBlocks; block += kVolumeBlocks / 64)
            ASSERT_EQ(write(block, round), Status::kSuccess) << "round " << round << ", block " << block;
        for (std::uint64_t block = 0; block < kVolumeBlocks / round; block += kMostAtOnce, ++trimmed)
            ASSERT_EQ(host.trim({{0, kMostAtOnce, block}}), Status::kSuccess)
                << "round " << round << ", from block " << block;
        for (std::uint64_t block = 0; block < kVolumeBlocks / round; block += kVolumeBlocks / 64) {
            ASSERT_TRUE(holds(block, 0));
            ASSERT_EQ(write(block + 1, 7 + round), Status::kSuccess)
                << "a write to a trimmed block must succeed";
            ASSERT_TRUE(holds(block + 1, 7 + round));
        }
    }
    count("gateway_discards", trimmed);
}

}  // namespace gnstor::test::discard_test
