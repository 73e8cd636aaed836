// gateway_test.cpp: a volume behind an ordinary namespace behaves as a plain array of blocks, over
// reconnects, lost leases, broken queue pairs and SSDs that do not answer.
#include "gateway/model_host.hpp"

#include <unistd.h>

#include <filesystem>

namespace gnstor::test::gateway_test {

using gateway::GatewayOptions;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kCommands = 400;
#else
constexpr std::uint64_t kCommands = 2500;
#endif
constexpr std::uint64_t kVolumeBlocks = 1024;

GatewayOptions options_of(const std::string& volume, std::uint32_t timeout_ms = 60'000) {
    GatewayOptions o;
    o.volume = volume;
    o.command_timeout_ms = timeout_ms;
    return o;
}

TEST(Gateway, AnOrdinaryHostSeesOneNamespaceOfTheVolumesSizeAndItsNameStays) {
    GatewayRig rig;
    auto client = rig.client("gw");
    rig.make_volume(*client, "v", kVolumeBlocks);
    std::array<std::uint8_t, 16> name{};
    for (int opening = 0; opening < 2; ++opening) {
        auto served = rig.serve(*client, options_of("v")).value();
        EXPECT_EQ(served->nqn(0), "nqn.2026-11.io.gnstor:volume:v");
        BlockHost host(rig, *served, 1);
        const auto c = host.controller->identify_controller().value();
        EXPECT_EQ(std::string(c.mn, 13), "GNStor volume");
        EXPECT_EQ(c.vwc, 0) << "the SSDs' own promise";
        EXPECT_EQ(c.oncs, 0x0C);
        nvme::Command ask{};
        ask.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kIdentify);
        ask.flags = nvme::kFlagsSgl;
        ask.cdw10 = static_cast<std::uint32_t>(nvme::IdentifyCns::kControllerOfSet);
        nvme::IdentifyControllerNvm limits{};
        const auto bytes = std::as_writable_bytes(std::span(&limits, 1));
        ASSERT_TRUE(nvme::ok(host.controller->admin(ask, bytes, nvmf::Direction::kToHost)->result()));
        EXPECT_EQ(limits.dmrsl, 128u << served->gateway(0).volume().geometry.chunk_shift)
            << "a larger trim would not end in time";
        const auto n = host.controller->identify_namespace().value();
        EXPECT_EQ(n.nsze, kVolumeBlocks);
        EXPECT_EQ(n.lbaf[0].ds, 12);
        EXPECT_EQ(n.nsattr, 0);
        if (opening == 1) {
            EXPECT_EQ(std::memcmp(n.nguid, name.data(), name.size()), 0);
        }
        std::memcpy(name.data(), n.nguid, name.size());
    }
}

/// Commands that a host leaves under way, hosts that come again, and everything is as a model has it.
void compare_with_model(GatewayRig& rig, std::uint64_t commands) {
    auto client = rig.client("gw");
    auto reader = rig.client("reader");
    rig.make_volume(*client, "v", kVolumeBlocks);
    auto served = rig.serve(*client, options_of("v")).value();
    BlockHost host(rig, *served, 3);
    ModelHost model(host, kVolumeBlocks, run_seed());
    for (int round = 0; round < 3; ++round) {
        model.run(commands, true);
        host.disconnect();
        model.lose_what_is_under_way();
        host.connect(*served, 3);
        model.forget_all();
        model.run(commands / 4, false);
        if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GE(model.under_way_most, 32u);
    EXPECT_GE(model.in_capsules, commands / 20);
    host.disconnect();
    served.reset();
    auto volume = reader->open("v", client::OpenMode::kRead).value();
    model.expect_contents(*volume);
    volume.reset();
    rig.array.expect_clean(*client);
    count("gateway_commands", model.done);
    count("gateway_commands_cut_off", model.lost);
}

TEST(Gateway, RandomCommandsOnSeveralQueuesMatchAPlainModelAcrossReconnects) {
    GatewayRig rig;
    compare_with_model(rig, kCommands);
}

TEST(Gateway, TheSameHoldsOverThePacketWire) {
    GatewayRig rig(gateway_array(), false, true);
    compare_with_model(rig, kCommands / 8);
}

/// FLUSH reaches every SSD, and matters exactly where one has a cache that power loss empties.
void expect_write_cache(SsdDurability durability, bool cached) {
    const auto folder = std::filesystem::temp_directory_path() / fmt::format("gn-gateway-{}", ::getpid());
    EmbeddedArrayOptions array = gateway_array();
    array.directory = folder;
    array.ssd_capacity_bytes = 64u << 20;
    array.durability = durability;
    {
        GatewayRig rig(array);
        auto client = rig.client("gw");
        rig.make_volume(*client, "v", 64);
        auto served = rig.serve(*client, options_of("v")).value();
        BlockHost host(rig, *served, 1);
        EXPECT_EQ(host.controller->identify_controller()->vwc, cached ? 1 : 0);
        EXPECT_EQ(host.status(block_command(IoOpcode::kWrite, 0, 1), kBlock), Status::kSuccess);
        std::vector<std::uint64_t> before;
        for (std::uint32_t i = 0; i < array.ssds; ++i) before.push_back(rig.array.node->describe(i).flushes);
        EXPECT_EQ(host.status(block_command(IoOpcode::kFlush, 0, 1)), Status::kSuccess);
        for (std::uint32_t i = 0; i < array.ssds; ++i)
            EXPECT_EQ(rig.array.node->describe(i).flushes, before[i] + 1) << "SSD " << i;
        nvme::Command fua = block_command(IoOpcode::kWrite, 1, 1);
        fua.cdw12 |= 1u << 30;
        EXPECT_EQ(host.status(fua, kBlock), Status::kSuccess);
    }
    std::filesystem::remove_all(folder);
}

TEST(Gateway, AVolatileWriteCacheIsReportedExactlyWhereSsdsHaveOneAndFlushReachesThemAll) {
    expect_write_cache(SsdDurability::kProcess, true);
    expect_write_cache(SsdDurability::kPower, false);
}

TEST(Gateway, CommandsThatANamespaceMustNotAcceptAreRefusedAndNotExecuted) {
    GatewayRig rig;
    auto client = rig.client("gw");
    rig.make_volume(*client, "v", kVolumeBlocks);
    auto served = rig.serve(*client, options_of("v")).value();
    BlockHost host(rig, *served, 1);
    const std::uint64_t end = kVolumeBlocks;
    using Op = IoOpcode;
    EXPECT_EQ(host.status(block_command(Op::kRead, end, 1), kBlock), Status::kLbaOutOfRange);
    EXPECT_EQ(host.status(block_command(Op::kRead, end - 1, 2), 2 * kBlock), Status::kLbaOutOfRange);
    EXPECT_EQ(host.status(block_command(Op::kWrite, ~0ull, 1), kBlock), Status::kLbaOutOfRange);
    EXPECT_EQ(host.status(block_command(Op::kWrite, 1ull << 32, 1), kBlock), Status::kLbaOutOfRange)
        << "the high bits of an LBA must not select a volume";
    EXPECT_EQ(host.status(block_command(Op::kWriteZeroes, end - 1, 2)), Status::kLbaOutOfRange);
    EXPECT_EQ(host.status(block_command(Op::kRead, 0, 257), 257 * kBlock), Status::kInvalidField) << "MDTS";
    EXPECT_EQ(host.status(block_command(Op::kRead, 0, 2), kBlock), Status::kDataSglLengthInvalid);
    EXPECT_EQ(host.status(block_command(static_cast<Op>(0x05), 0, 1), kBlock), Status::kInvalidOpcode)
        << "Compare";
    nvme::Command other = block_command(Op::kRead, 0, 1);
    other.namespace_id = 2;
    EXPECT_EQ(host.status(other, kBlock), Status::kInvalidNamespace);
    nvme::Command everywhere = block_command(Op::kFlush, 0, 1);
    everywhere.namespace_id = 0xFFFFFFFFu;
    EXPECT_EQ(host.status(everywhere), Status::kSuccess);
    // One wrong range: none is deallocated.
    std::memset(host.buffer.data(), 0x5A, kBlock);
    ASSERT_EQ(host.status(block_command(Op::kWrite, 3, 1), kBlock), Status::kSuccess);
    EXPECT_EQ(host.trim({{0, 1, 3}, {0, 2, end - 1}}), Status::kLbaOutOfRange);
    EXPECT_EQ(host.trim({{0, 1, 3}, {0, 1, ~0ull}}), Status::kLbaOutOfRange);
    std::memset(host.buffer.data(), 0, kBlock);
    ASSERT_EQ(host.status(block_command(Op::kRead, 3, 1), kBlock), Status::kSuccess);
    EXPECT_EQ(host.buffer.data()[17], std::byte{0x5A});
    EXPECT_EQ(host.trim({{0, 1, 3}, {0, 0, 5}}), Status::kSuccess);
    ASSERT_EQ(host.status(block_command(Op::kRead, 3, 1), kBlock), Status::kSuccess);
    EXPECT_EQ(host.buffer.data()[17], std::byte{0});
    // GNStor's own commands are for SSDs.
    nvme::Command vendor{};
    vendor.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kVolumeDelete);
    vendor.flags = nvme::kFlagsSgl;
    EXPECT_FALSE(nvme::ok(host.controller->admin(vendor, {}, nvmf::Direction::kNone)->result()));
    EXPECT_EQ(served->gateway(0).counters().refused, 8u)
        << "the target must refuse the other commands before the gateway";
}

TEST(Gateway, TwoVolumesBehindOnePortAreTwoIndependentDisks) {
    GatewayRig rig;
    auto one = rig.client("gw-one"), two = rig.client("gw-two");
    rig.make_volume(*one, "a", 64);
    rig.make_volume(*two, "b", 128);
    const gateway::VolumeToServe volumes[] = {{one.get(), options_of("a"), ""},
                                              {two.get(), options_of("b"), "nqn.2030-01.example:b"}};
    auto served = gateway::serve(*rig.target_nic, volumes).value();
    ASSERT_EQ(served->size(), 2u);
    BlockHost a(rig, *served, 1, 0), b(rig, *served, 1, 1);
    const auto of_a = a.controller->identify_namespace().value(),
               of_b = b.controller->identify_namespace().value();
    EXPECT_EQ(of_a.nsze, 64u);
    EXPECT_EQ(of_b.nsze, 128u);
    EXPECT_NE(std::memcmp(of_a.nguid, of_b.nguid, sizeof of_a.nguid), 0) << "Linux takes no two of one name";
    std::memset(a.buffer.data(), 0xAA, kBlock);
    ASSERT_EQ(a.status(block_command(IoOpcode::kWrite, 5, 1), kBlock), Status::kSuccess);
    ASSERT_EQ(b.status(block_command(IoOpcode::kRead, 5, 1), kBlock), Status::kSuccess);
    EXPECT_EQ(b.buffer.data()[0], std::byte{0});
    EXPECT_EQ(a.status(block_command(IoOpcode::kRead, 100, 1), kBlock), Status::kLbaOutOfRange);
    EXPECT_FALSE(gateway::serve(*rig.target_nic, {}).ok());
}

/// A queue that is refused fails the whole connection of a Linux host, which asks for one a processor.
TEST(Gateway, AHostOfManyProcessorsIsGrantedQueuesThatAllFitForSeveralVolumes) {
    GatewayRig rig;
    auto client = rig.client("gw");
    rig.make_volume(*client, "v", kVolumeBlocks);
    auto served = rig.serve(*client, options_of("v")).value();
    std::vector<std::unique_ptr<nvmf::HostController>> controllers;
    std::vector<std::unique_ptr<nvmf::HostQueue>> queues;
    for (int volume = 0; volume < 3; ++volume) {
        auto controller = nvmf::HostController::connect(*rig.host_nic, rig.host(served->nqn(0))).value();
        EXPECT_EQ(controller->io_queues(), gateway::kQueuesMost) << "128 were asked for";
        for (std::uint32_t i = 1; i <= controller->io_queues(); ++i) {
            auto queue = controller->open_io_queue(static_cast<std::uint16_t>(i), 128);
            ASSERT_TRUE(queue.ok()) << volume << ", queue " << i << ": " << queue.error().message;
            queues.push_back(std::move(queue).value());
        }
        controllers.push_back(std::move(controller));
    }
    queues.clear();
}

TEST(Gateway, AVolumeOpenedForReadingIsWriteProtectedAndShowsWhatItsWriterWrites) {
    GatewayRig rig;
    auto client = rig.client("gw");
    auto writer = rig.client("writer");
    rig.make_volume(*writer, "v", 64);
    auto volume = writer->open("v", client::OpenMode::kWrite).value();
    GatewayOptions o = options_of("v");
    o.read_only = true;
    auto served = rig.serve(*client, o).value();
    BlockHost host(rig, *served, 1);
    EXPECT_EQ(host.controller->identify_namespace()->nsattr, 1);
    EXPECT_EQ(host.status(block_command(IoOpcode::kWrite, 0, 1), kBlock), Status::kNamespaceWriteProtected);
    EXPECT_EQ(host.status(block_command(IoOpcode::kWriteZeroes, 0, 1)), Status::kNamespaceWriteProtected);
    EXPECT_EQ(host.trim({{0, 1, 0}}), Status::kNamespaceWriteProtected);
    std::vector<std::byte> data(2 * kBlock, std::byte{0x77});
    ASSERT_TRUE(volume->write(5, data).ok());
    ASSERT_EQ(host.status(block_command(IoOpcode::kRead, 5, 2), 2 * kBlock), Status::kSuccess);
    EXPECT_EQ(std::memcmp(host.buffer.data(), data.data(), data.size()), 0);
    EXPECT_EQ(host.status(block_command(IoOpcode::kFlush, 0, 1)), Status::kSuccess);
    EXPECT_FALSE(served->gateway(0).writable());
}

TEST(Gateway, WhenAnotherWriterTakesTheVolumeWritesAreRefusedHostsAreToldAndNothingIsMixed) {
    constexpr std::uint64_t kLeaseMs = 60'000;
    EmbeddedArrayOptions array = gateway_array();
    array.lease_ms = kLeaseMs;
    GatewayRig rig(array, true);
    auto client = rig.client("gw");
    auto rival = rig.client("rival");
    rig.make_volume(*client, "v", kVolumeBlocks);
    auto served = rig.serve(*client, options_of("v")).value();
    BlockHost host(rig, *served, 2);
    ModelHost model(host, kVolumeBlocks, run_seed() + 7);
    model.run(kCommands / 2, false);
    nvme::Command events{};
    events.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kSetFeatures);
    events.flags = nvme::kFlagsSgl;
    events.cdw10 = static_cast<std::uint32_t>(nvme::Feature::kAsyncEventConfiguration);
    events.cdw11 = nvme::kAsyncNamespaceAttribute;
    ASSERT_TRUE(nvme::ok(host.controller->admin(events, {}, nvmf::Direction::kNone)->result()));

    rig.array.daemon->suspend();
    rig.array.clock_ms += kLeaseMs + 1;
    rig.array.daemon->resume();
    auto volume = rival->open("v", client::OpenMode::kWrite);
    ASSERT_TRUE(volume.ok()) << volume.error().message;
    std::vector<std::byte> theirs(kBlock, std::byte{0x11});
    EXPECT_EQ(host.status(block_command(IoOpcode::kWrite, 8, 1), kBlock), Status::kNamespaceWriteProtected);
    EXPECT_FALSE(served->gateway(0).writable());
    EXPECT_EQ(host.controller->identify_namespace()->nsattr, 1);
    nvme::Command request{};
    request.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kAsyncEventRequest);
    request.flags = nvme::kFlagsSgl;
    const auto notice = host.controller->admin(request, {}, nvmf::Direction::kNone);
    ASSERT_TRUE(notice.ok()) << "a host that asks later must get the notice too";
    EXPECT_EQ(notice->dw0, (nvme::AsyncEvent{2, 0, 4}.encode()));
    // Reading goes on, and what was acknowledged before is there.
    model.read_only = true;
    model.run(kCommands / 4, false);
    model.expect_contents(**volume);
    ASSERT_TRUE((*volume)->write(8, theirs).ok());
    EXPECT_EQ(host.status(block_command(IoOpcode::kWrite, 8, 1), kBlock), Status::kNamespaceWriteProtected);
    ASSERT_EQ(host.status(block_command(IoOpcode::kRead, 8, 1), kBlock), Status::kSuccess);
    EXPECT_EQ(std::memcmp(host.buffer.data(), theirs.data(), kBlock), 0);
}

TEST(Gateway, BrokenQueuePairsCauseOnlyDelayAndAreReconnectedByTheGateway) {
    GatewayRig rig;
    auto client = rig.client("gw");
    rig.make_volume(*client, "v", kVolumeBlocks);
    auto served = rig.serve(*client, options_of("v")).value();
    BlockHost host(rig, *served, 2);
    ModelHost model(host, kVolumeBlocks, run_seed() + 3);
    SplitMix64 random(run_seed());
    for (int kill = 0; kill < 3; ++kill) {
        model.run(kCommands / 8, true);
        rig.array.nic->disconnect(client->channel(0).queue_pair(static_cast<std::uint32_t>(random.below(4))));
        model.run(kCommands / 4, false);
        // A flush meets every SSD: it works once all are connected again.
        ASSERT_TRUE(nvmf::eventually(
            [&] { return nvme::ok(host.status(block_command(IoOpcode::kFlush, 0, 1))); }, 60));
        if (HasFailure()) return;
    }
    EXPECT_GE(served->gateway(0).counters().reclaims, 1u);
    model.run(kCommands / 4, false);
    EXPECT_EQ(model.failed, 0u);
    count("gateway_commands", model.done);
}

TEST(Gateway, AnUnresponsiveSsdCausesErrorsAtTheDeadlineAndNoHang) {
    GatewayRig rig;
    auto client = rig.client("gw");
    rig.make_volume(*client, "v", kVolumeBlocks);
    auto served = rig.serve(*client, options_of("v", 5000)).value();
    BlockHost host(rig, *served, 2);
    ModelHost model(host, kVolumeBlocks, run_seed() + 4);
    model.run(kCommands / 8, false);
    {
        const Hold held(*rig.array.node->drive_reactors().front());
        const std::uint64_t began = simt::now_ns();
        model.run(64, false, true);
        EXPECT_GT(model.failed, 0u);
        EXPECT_LT(simt::now_ns() - began, 100 * nvmf::kSecond);
    }
    ASSERT_TRUE(
        nvmf::eventually([&] { return nvme::ok(host.status(block_command(IoOpcode::kFlush, 0, 1))); }, 60));
    model.run(kCommands / 8, false, true);
    EXPECT_GT(model.done, 64u);
}

TEST(Gateway, WhileReconnectionToALostSsdFailsCommandsEndByTheDeadlineAndTheSsdReturns) {
    GatewayRig rig;
    auto client = rig.client("gw");
    rig.make_volume(*client, "v", kVolumeBlocks);
    GatewayOptions o = options_of("v", 300);
    o.under_way_max = 4;  // the others wait for those
    auto served = rig.serve(*client, o).value();
    BlockHost host(rig, *served, 2);
    ModelHost model(host, kVolumeBlocks, run_seed() + 6);
    model.run(kCommands / 8, false, true);
    {
        // Its queue pair is gone, and whoever connects to it waits.
        const Hold held(*rig.array.node->drive_reactors().front());
        rig.array.nic->disconnect(client->channel(0).queue_pair(2));
        const std::uint64_t failed = model.failed;
        model.run(100, false, true);
        EXPECT_GT(model.failed, failed);
    }
    ASSERT_TRUE(
        nvmf::eventually([&] { return nvme::ok(host.status(block_command(IoOpcode::kFlush, 0, 1))); }, 60));
    EXPECT_GE(served->gateway(0).counters().reclaims, 1u);
    model.run(kCommands / 8, false, true);
}

TEST(Gateway, CommandsInFlightEndWhenTheGatewayClosesEvenIfTheSsdsHang) {
    GatewayRig rig;
    auto client = rig.client("gw");
    rig.make_volume(*client, "v", kVolumeBlocks);
    auto served = rig.serve(*client, options_of("v")).value();
    BlockHost host(rig, *served, 2);
    ModelHost model(host, kVolumeBlocks, run_seed() + 5);
    {
        Hold held(*rig.array.node->drive_reactors().front());
        // No more than the queues hold: nothing of it is answered.
        for (std::uint32_t i = 0; i < BlockHost::kDepth - 1; ++i) {
            nvme::Command command = block_command(IoOpcode::kWrite, i, 1);
            command.command_id = static_cast<std::uint16_t>(i);
            command.data = host.buffer.sgl(0, kBlock);
            ASSERT_TRUE(host.post(0, command));
        }
        std::thread closing([&] { served.reset(); });
        EXPECT_TRUE(nvmf::eventually([&] { return host.queue(0).broken(); })) << "while the SSDs hang";
        held.release();
        closing.join();
    }
    host.disconnect();
    rig.array.expect_clean(*client);
}

}  // namespace gnstor::test::gateway_test
