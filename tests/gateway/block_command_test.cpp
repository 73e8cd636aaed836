// block_command_test.cpp: which commands of an ordinary host become which requests; raw bytes hurt nobody.
#include "gateway/block_command.hpp"

#include "gateway/raw_commands.hpp"
#include "gateway/rig.hpp"

namespace gnstor::test::block_command_test {

using gateway::BlockCommand;
using gateway::BlockNamespace;
using gateway::host_status;
using gateway::parse_block_command;

constexpr BlockNamespace kLarge{1ull << 32, true};
alignas(8) std::byte g_data[1u << 20];

nvme::Command with_data(nvme::Command command, std::uint32_t bytes) {
    command.data = nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockAddress,
                                                reinterpret_cast<std::uintptr_t>(g_data), bytes);
    return command;
}

struct Parsed {
    Status status;
    BlockCommand command;
    std::vector<IoRequest> requests;
};
Parsed parse(const nvme::Command& command, const BlockNamespace& ns = kLarge) {
    Parsed p;
    p.requests.resize(3);  // of an earlier command
    p.status = parse_block_command(command, ns, p.command, p.requests);
    return p;
}

TEST(BlockCommand, TheLastBlockOfTheLargestVolumeIsAcceptedAndTheNextIsRefused) {
    const std::uint64_t last = (1ull << 32) - 1;
    const auto good = parse(with_data(block_command(IoOpcode::kRead, last, 1), kBlock));
    ASSERT_EQ(good.status, Status::kSuccess);
    ASSERT_EQ(good.requests.size(), 1u);
    EXPECT_EQ(good.requests[0].block, 0xFFFFFFFFu);
    EXPECT_EQ(good.requests[0].buffer, g_data);
    for (const unsigned long long first : {last + 1ull, 2 * last + 1ull, ~0ull, 1ull << 63})
        EXPECT_EQ(parse(with_data(block_command(IoOpcode::kRead, first, 1), kBlock)).status,
                  Status::kLbaOutOfRange);
    EXPECT_EQ(parse(with_data(block_command(IoOpcode::kRead, last, 2), 2 * kBlock)).status,
              Status::kLbaOutOfRange);
}

TEST(BlockCommand, TransfersAreLimitedByMdtsAndWriteZeroesAreNot) {
    EXPECT_EQ(parse(with_data(block_command(IoOpcode::kWrite, 0, 256), 256 * kBlock)).status,
              Status::kSuccess);
    EXPECT_EQ(parse(with_data(block_command(IoOpcode::kWrite, 0, 257), 257 * kBlock)).status,
              Status::kInvalidField);
    const auto zeroes = parse(block_command(IoOpcode::kWriteZeroes, 7, 65536));
    ASSERT_EQ(zeroes.status, Status::kSuccess);
    EXPECT_EQ(zeroes.requests[0].blocks, 65536u);
}

TEST(BlockCommand, ForceUnitAccessIsHonouredAndHintsAreIgnored) {
    nvme::Command c = with_data(block_command(IoOpcode::kWrite, 1, 1), kBlock);
    EXPECT_FALSE(parse(c).command.force_unit_access);
    c.cdw12 |= 1u << 30;
    EXPECT_TRUE(parse(c).command.force_unit_access);
    // What drives read as epoch, map version, sectors and sequence.
    c.cdw2 = c.cdw3 = c.cdw13 = c.cdw14 = c.cdw15 = 0xFFFFFFFFu;
    c.cdw12 |= 0xBFFF0000u & ~(1u << 30);  // protection information, directives, limited retry
    const auto p = parse(c);
    ASSERT_EQ(p.status, Status::kSuccess);
    EXPECT_EQ(p.requests[0].blocks, 1u);
    EXPECT_EQ(p.requests[0].sectors, 0);
}

TEST(BlockCommand, ARangeListIsTrimmedAsAWholeOrRefusedAndHintsAloneDoNothing) {
    std::vector<nvme::DsmRange> ranges;
    for (std::uint32_t i = 0; i < 256; ++i) ranges.push_back({0, i, std::uint64_t{i} * 1000});
    std::memcpy(g_data, ranges.data(), ranges.size() * sizeof ranges[0]);
    const auto all = parse(with_data(trim_command(256), kBlock));
    ASSERT_EQ(all.status, Status::kSuccess);
    EXPECT_EQ(all.requests.size(), 255u) << "the one of no blocks is nothing";
    nvme::Command hints = with_data(trim_command(256), kBlock);
    hints.cdw11 = 3;
    const auto none = parse(hints);
    EXPECT_EQ(none.status, Status::kSuccess);
    EXPECT_TRUE(none.requests.empty());
    ranges[255].start = (1ull << 32) - 254;
    std::memcpy(g_data, ranges.data(), ranges.size() * sizeof ranges[0]);
    const auto one_wrong = parse(with_data(trim_command(256), kBlock));
    EXPECT_EQ(one_wrong.status, Status::kLbaOutOfRange);
    EXPECT_TRUE(one_wrong.requests.empty());
    EXPECT_EQ(parse(with_data(trim_command(256), kBlock - 16)).status, Status::kDataSglLengthInvalid);
}

TEST(BlockCommand, AWriteProtectedNamespaceTakesReadsAndFlushesAlone) {
    const BlockNamespace ns{100, false};
    std::memset(g_data, 0, kBlock);
    g_data[4] = std::byte{1};  // a range of one block
    EXPECT_EQ(parse(with_data(block_command(IoOpcode::kRead, 0, 1), kBlock), ns).status, Status::kSuccess);
    EXPECT_EQ(parse(block_command(IoOpcode::kFlush, 0, 1), ns).status, Status::kSuccess);
    EXPECT_EQ(parse(with_data(block_command(IoOpcode::kWrite, 0, 1), kBlock), ns).status,
              Status::kNamespaceWriteProtected);
    EXPECT_EQ(parse(block_command(IoOpcode::kWriteZeroes, 0, 1), ns).status,
              Status::kNamespaceWriteProtected);
    EXPECT_EQ(parse(with_data(trim_command(1), 16), ns).status, Status::kNamespaceWriteProtected);
}

TEST(BlockCommand, NoVendorStatusOfTheArrayReachesAnOrdinaryNvmeHost) {
    for (std::uint32_t v = 0; v < 0x20000; ++v) {
        const Status told = host_status(static_cast<Status>(v));
        EXPECT_FALSE(nvme::is_local(told));
        EXPECT_NE(static_cast<std::uint32_t>(told) >> 8, 7u) << "vendor specific";
        EXPECT_EQ(nvme::ok(told), v == 0) << v;
    }
}

TEST(RawCommands, AreCompletedExactlyOnceWhateverTheirContents) {
    GatewayRig rig;
    auto client = rig.client("gw");
    rig.make_volume(*client, "v", 512);
    gateway::GatewayOptions o;
    o.volume = "v";
    auto opened = gateway::Gateway::open(*client, o).value();
    RawCommands raw(*opened, opened->reactor());
    SplitMix64 random(run_seed());
    const std::uint8_t opcodes[] = {0, 1, 2, 8, 9, 0x06, 0x0A, 0x0C, 0x02, 0x18};
    std::uint64_t given = 0;
    for (int round = 0; round < 200; ++round) {
        std::vector<std::uint8_t> bytes(66 * (1 + random.below(24)));
        for (auto& b : bytes) b = static_cast<std::uint8_t>(random.next());
        // Three in four are plausible: an opcode that exists, a range near the volume's.
        for (std::size_t at = 0; at < bytes.size(); at += 66) {
            if (random.below(4) == 0) continue;
            nvme::Command c;
            std::memcpy(&c, &bytes[at + 2], sizeof c);
            c.opcode = opcodes[random.below(std::size(opcodes))];
            c.cdw10 = static_cast<std::uint32_t>(random.below(540));
            c.cdw11 = random.below(4) == 0 ? c.cdw11 : c.opcode == 9 ? 4 : 0;
            c.cdw12 &= 0x3FFF001Fu;
            std::memcpy(&bytes[at + 2], &c, sizeof c);
            bytes[at] = static_cast<std::uint8_t>(bytes[at] & 3);
        }
        given += raw.feed(bytes);
    }
    EXPECT_GT(raw.succeeded, given / 10);
    EXPECT_GT(raw.refused, given / 10);
    count("gateway_raw_commands", given);
    opened.reset();
    rig.array.expect_clean(*client);
}

}  // namespace gnstor::test::block_command_test
