// durable_test.cpp: what a flush, a read or write with FUA, and a shutdown of a controller promise to an
// ordinary host; and that an SSD which does not answer holds nobody up who wants nothing of it.
#include "gateway/model_host.hpp"

#include <gnstor/placement/placement.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gnstor::test::durable_test {

constexpr std::uint32_t kChunkBlocks = 16;

gateway::GatewayOptions options_of(const std::string& volume) {
    gateway::GatewayOptions o;
    o.volume = volume;
    o.command_timeout_ms = 60'000;
    return o;
}

/// Its SSDs lie in files, with a volatile cache.
struct CachedArray {
    CachedArray() {
        options = gateway_array();
        options.directory = folder;
        options.ssd_capacity_bytes = 64u << 20;
        options.durability = SsdDurability::kProcess;
    }
    ~CachedArray() { std::filesystem::remove_all(folder); }
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / fmt::format("gn-durable-{}", ::getpid());
    EmbeddedArrayOptions options;
};

/// Of all SSDs of the array.
template <class Count>
std::uint64_t sum(const GatewayRig& rig, Count count) {
    std::uint64_t n = 0;
    for (std::uint32_t i = 0; i < rig.array.options.ssds; ++i)
        n += count(rig.array.node->drive(i).counters());
    return n;
}

struct Served {
    explicit Served(GatewayRig& rig, const gateway::GatewayOptions& options = options_of("v"))
        : client(rig.client("gw")) {
        rig.make_volume(*client, options.volume, 1024);
        volumes = rig.serve(*client, options).value();
    }
    std::unique_ptr<client::Client> client;
    std::unique_ptr<gateway::ServedVolumes> volumes;
};

void lose(GatewayRig& rig, std::initializer_list<std::uint32_t> slots) {
    (void)rig.array.set_map([&](placement::ArrayMap& map) {
        for (const std::uint32_t s : slots) map.slots[s].state = placement::SlotState::kDown;
    });
}

TEST(GatewayDurable, AfterTheLossOfAllReplicasOfAnAnsweredWriteNoFlushSucceeds) {
    GatewayRig rig;
    Served v(rig);
    BlockHost host(rig, *v.volumes, 1), other(rig, *v.volumes, 1);
    ASSERT_EQ(host.status(block_command(IoOpcode::kWrite, 0, 1), kBlock), Status::kSuccess);
    EXPECT_EQ(v.volumes->gateway(0).state().unflushed, 1u);
    EXPECT_FALSE(v.volumes->gateway(0).state().flushes_fail);
    lose(rig, {1, 2});
    EXPECT_EQ(host.status(block_command(IoOpcode::kFlush, 0, 1)), Status::kInternalError);
    EXPECT_EQ(host.status(block_command(IoOpcode::kFlush, 0, 1)), Status::kInternalError);
    EXPECT_EQ(other.status(block_command(IoOpcode::kFlush, 0, 1)), Status::kInternalError)
        << "a file system of another host wrote, too";
    EXPECT_TRUE(v.volumes->gateway(0).state().flushes_fail);
    EXPECT_NE(host.run(block_command(IoOpcode::kFlush, 0, 1), 0).status & 0x8000, 0)
        << "Do Not Retry: Linux tells its callers at once";
}

TEST(GatewayDurable, FlushesSucceedWhileEachWriteHasAReplicaLeft) {
    GatewayRig rig;
    Served v(rig);
    BlockHost host(rig, *v.volumes, 1);
    for (const std::uint32_t slot : {0u, 1u}) {
        ASSERT_EQ(host.status(block_command(IoOpcode::kWrite, 0, 1), kBlock), Status::kSuccess);
        lose(rig, {slot});
        EXPECT_EQ(host.status(block_command(IoOpcode::kFlush, 0, 1)), Status::kSuccess) << slot;
    }
}

/// A gateway that is started again and again on one record.
struct Restarted {
    explicit Restarted(GatewayRig& r) : rig(r), client(r.client("gw")) {
        std::filesystem::remove(record);
        rig.make_volume(*client, "v", 1024);
        start();
    }
    ~Restarted() {
        stop();
        std::filesystem::remove(record);
    }
    void start() {
        gateway::GatewayOptions options = options_of("v");
        options.record = record;
        client.reset();
        client = rig.client("gw");  // another process, which asks for the map of its day
        volumes = rig.serve(*client, options).value();
        host = std::make_unique<BlockHost>(rig, *volumes, 1);
    }
    void stop() {
        host.reset();
        volumes.reset();
    }
    /// As SIGKILL leaves it: nothing is flushed, and the record is what it was at the last answer.
    void kill() {
        const auto kept = record.string() + ".kept";
        std::filesystem::copy_file(record, kept, std::filesystem::copy_options::overwrite_existing);
        stop();
        std::filesystem::rename(kept, record);
    }
    Status write(std::uint64_t block) {
        return host->status(block_command(IoOpcode::kWrite, block, 1), kBlock);
    }
    Status flush() { return host->status(block_command(IoOpcode::kFlush, 0, 1)); }
    /// What a successor would find; a blank record where that is half written.
    [[nodiscard]] gateway::LossRecord said() const {
        std::ifstream in(record, std::ios::binary);
        gateway::LossRecordBytes bytes{};
        in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        const auto decoded = gateway::decode_loss_record(bytes);
        return decoded.ok() ? *decoded : gateway::LossRecord{};
    }
    [[nodiscard]] gateway::GatewayCounters counters() const { return volumes->gateway(0).counters(); }

    const std::filesystem::path record =
        std::filesystem::temp_directory_path() / fmt::format("gn-loss-{}", ::getpid());
    GatewayRig& rig;
    std::unique_ptr<client::Client> client;
    std::unique_ptr<gateway::ServedVolumes> volumes;
    std::unique_ptr<BlockHost> host;
};

TEST(GatewayRestart, AfterAKillAndLostSsdsTheFirstFlushOfEachHostFailsAndTheNextOnesSucceed) {
    GatewayRig rig;
    Restarted gateway(rig);
    ASSERT_EQ(gateway.write(0), Status::kSuccess);
    gateway.kill();
    lose(rig, {1, 2});
    gateway.start();
    EXPECT_TRUE(gateway.volumes->gateway(0).state().flushes_fail);
    EXPECT_EQ(gateway.flush(), Status::kInternalError);
    EXPECT_EQ(gateway.flush(), Status::kSuccess);
    {
        BlockHost other(rig, *gateway.volumes, 1);
        EXPECT_EQ(other.status(block_command(IoOpcode::kFlush, 0, 1)), Status::kInternalError);
        EXPECT_EQ(other.status(block_command(IoOpcode::kFlush, 0, 1)), Status::kSuccess);
    }
    // It was told, and its record says so soon: started again, it has nothing more to tell.
    EXPECT_TRUE(nvmf::eventually([&] { return gateway.said().told; }, 100));
    gateway.kill();
    gateway.start();
    EXPECT_EQ(gateway.flush(), Status::kSuccess);
}

TEST(GatewayRestart, NoFlushFailsIfNoWriteCanBeLost) {
    GatewayRig rig;
    Restarted gateway(rig);
    EXPECT_EQ(gateway.flush(), Status::kSuccess) << "of the first gateway there was";
    ASSERT_EQ(gateway.write(0), Status::kSuccess);
    gateway.kill();
    gateway.start();
    EXPECT_EQ(gateway.flush(), Status::kSuccess) << "all SSDs are present";
    ASSERT_EQ(gateway.write(1), Status::kSuccess);
    gateway.kill();
    lose(rig, {1});
    gateway.start();
    EXPECT_EQ(gateway.flush(), Status::kSuccess) << "each write has another replica";
    EXPECT_TRUE(
        nvmf::eventually([&] { return gateway.said().map.slot_count != 0 && !gateway.said().dirty; }, 100));
    gateway.kill();
    lose(rig, {2, 3});
    gateway.start();
    EXPECT_EQ(gateway.flush(), Status::kSuccess) << "the write was already flushed";
}

TEST(GatewayRestart, ARecordThatCannotBeReadCountsAsALoss) {
    GatewayRig rig;
    Restarted gateway(rig);
    ASSERT_EQ(gateway.write(0), Status::kSuccess);
    gateway.kill();
    {
        std::fstream record(gateway.record, std::ios::in | std::ios::out | std::ios::binary);
        const auto byte = static_cast<char>(record.seekg(100).get() ^ 1);
        record.seekp(100).put(byte);
    }
    gateway.start();
    EXPECT_EQ(gateway.flush(), Status::kInternalError);
    EXPECT_EQ(gateway.flush(), Status::kSuccess);
}

TEST(GatewayRestart, WritesThatAreNotFlushedCostOneSyncOfTheRecordInAll) {
    GatewayRig rig;
    Restarted gateway(rig);
    const std::uint64_t before = gateway.counters().record_writes;
    for (std::uint64_t block = 0; block < 50; ++block) ASSERT_EQ(gateway.write(block), Status::kSuccess);
    // One at the first write; one more where the gateway had noted its rest in between.
    const std::uint64_t writes = gateway.counters().record_writes - before;
    EXPECT_GE(writes, 1u);
    EXPECT_LE(writes, 2u);
    ASSERT_EQ(gateway.flush(), Status::kSuccess);
    EXPECT_TRUE(
        nvmf::eventually([&] { return gateway.counters().record_writes >= before + writes + 1; }, 100))
        << "at rest the record is put right";
}

TEST(GatewayDurable, AReadWithForceUnitAccessMakesTheReadDataStable) {
    const CachedArray array;
    GatewayRig rig(array.options);
    Served v(rig);
    BlockHost host(rig, *v.volumes, 1);
    const auto syncs = [&] { return sum(rig, [](const auto& c) { return c.syncs; }); };
    ASSERT_EQ(host.status(block_command(IoOpcode::kWrite, 3, 1), kBlock), Status::kSuccess);
    const std::uint64_t before = syncs();
    nvme::Command read = block_command(IoOpcode::kRead, 3, 1);
    read.cdw12 |= 1u << 30;
    ASSERT_EQ(host.status(read, kBlock), Status::kSuccess);
    EXPECT_GT(syncs(), before);
}

TEST(GatewayDurable, AControllerShutdownFlushesAnsweredWritesFirst) {
    const CachedArray array;
    GatewayRig rig(array.options);
    Served v(rig);
    BlockHost host(rig, *v.volumes, 1);
    ASSERT_EQ(host.status(block_command(IoOpcode::kWrite, 3, 1), kBlock), Status::kSuccess);
    const auto flushes = [&] { return sum(rig, [](const auto& c) { return c.flushes; }); };
    const std::uint64_t before = flushes();
    nvmf::HostController& c = *host.controller;
    auto cc =
        nvme::Configuration::decode(static_cast<std::uint32_t>(c.property_get(nvme::Property::kCc).value()));
    cc.shutdown = 1;
    ASSERT_TRUE(c.property_set(nvme::Property::kCc, cc.encode()).ok());
    ASSERT_TRUE(nvmf::eventually([&] {
        const auto csts = c.property_get(nvme::Property::kCsts);
        return csts.ok() && nvme::ControllerStatus::decode(static_cast<std::uint32_t>(*csts)).shutdown == 2;
    }));
    EXPECT_EQ(flushes(), before + array.options.ssds);
}

/// Posts reads of one block each until `count` are under way on `queue`.
void post_reads(BlockHost& host, std::uint32_t queue, std::uint64_t block, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
        nvme::Command read = block_command(IoOpcode::kRead, block, 1);
        read.command_id = static_cast<std::uint16_t>(i);
        read.data = host.buffer.sgl(host.offset(queue, i), kBlock);
        ASSERT_TRUE(host.post(queue, read));
    }
}
std::uint32_t reap_all(BlockHost& host, std::uint32_t queue, std::uint32_t count) {
    nvme::Completion completion{};
    std::uint32_t good = 0, seen = 0;
    EXPECT_TRUE(nvmf::eventually(
        [&] {
            if (!host.queue(queue).poll(completion)) return false;
            good += nvme::ok(completion.result()) ? 1 : 0;
            return ++seen == count;
        },
        60));
    return good;
}

/// A thread for the NICs, and one for each of four drives.
EmbeddedArrayOptions a_thread_a_drive() {
    EmbeddedArrayOptions o = rig_options(5);
    o.nic_threads = 1;
    return o;
}
void make_unreplicated(client::Client& owner, std::uint64_t blocks) {
    client::CreateVolume request;
    request.name = "v";
    request.capacity_bytes = blocks * kBlock;
    request.replicas = 1;
    (void)owner.create(request).value();
}

TEST(GatewayShares, AnUnresponsiveSsdDoesNotDelayCommandsForOtherSsds) {
    GatewayRig rig(a_thread_a_drive());
    auto client = rig.client("gw");
    make_unreplicated(*client, 1024);
    gateway::GatewayOptions options = options_of("v");
    options.under_way_max = 16;
    auto served = rig.serve(*client, options).value();
    const auto& geometry = served->gateway(0).volume().geometry;
    ASSERT_EQ(1u << geometry.chunk_shift, kChunkBlocks);
    std::array<std::uint64_t, 4> block_of{};
    const placement::ArrayMap map = client->array().map;
    for (std::uint32_t chunk = 0; chunk < 1024 / kChunkBlocks; ++chunk)
        block_of.at(placement::place(map, geometry, chunk).slot[0]) = std::uint64_t{chunk} * kChunkBlocks;
    BlockHost host(rig, *served, 4);
    constexpr std::uint32_t kEach = BlockHost::kDepth - 1;
    {
        const Hold held(*rig.array.node->drive_reactors()[2]);
        post_reads(host, 1, block_of[2], kEach);
        post_reads(host, 2, block_of[2], kEach);
        nvme::Command flush = block_command(IoOpcode::kFlush, 0, 1);
        flush.command_id = 1;
        ASSERT_TRUE(host.post(3, flush))
            << "the flush waits for the unresponsive SSD and must not delay other commands";
        for (const std::uint32_t slot : {0u, 1u, 3u})
            for (int again = 0; again < 20; ++again)
                ASSERT_EQ(host.status(block_command(IoOpcode::kRead, block_of.at(slot), 1), kBlock),
                          Status::kSuccess)
                    << "SSD " << slot;
        const gateway::GatewayState state = served->gateway(0).state();
        EXPECT_EQ(state.ssds.at(2), state.places_of_one_ssd);
        EXPECT_EQ(state.many, 1u);
        EXPECT_EQ(state.under_way, state.places_of_one_ssd + 1);
        EXPECT_EQ(state.under_way + state.waiting, 2 * kEach + 1);
        EXPECT_GE(served->gateway(0).counters().share_waits, 1u);
        nvme::Completion none{};
        EXPECT_FALSE(host.queue(1).poll(none) || host.queue(2).poll(none) || host.queue(3).poll(none));
    }
    EXPECT_EQ(reap_all(host, 1, kEach), kEach);
    EXPECT_EQ(reap_all(host, 2, kEach), kEach);
    EXPECT_EQ(reap_all(host, 3, 1), 1u);
}

// Each of a trim's commands waits for its SSD to make it last: eight under way would take as many syncs as
// there are chunks, by eight.
TEST(GatewayShares, ATrimOfManyChunksHasManyCommandsInFlightAndTheNextTrimFollows) {
    constexpr std::uint64_t kWide = 64, kFew = 8, kBlocks = 8192;
    GatewayRig rig(a_thread_a_drive());
    auto client = rig.client("gw");
    make_unreplicated(*client, kBlocks);
    auto served = rig.serve(*client, options_of("v")).value();
    std::array<std::vector<nvme::DsmRange>, 4> chunks_of;
    for (std::uint32_t chunk = 0; chunk < kBlocks / kChunkBlocks; ++chunk)
        chunks_of
            .at(placement::place(client->array().map, served->gateway(0).volume().geometry, chunk).slot[0])
            .push_back({0, kChunkBlocks, std::uint64_t{chunk} * kChunkBlocks});
    ASSERT_GT(chunks_of[3].size(), kWide + kFew + chunks_of.size());
    ASSERT_GT(chunks_of[2].size(), kFew + 5);
    BlockHost host(rig, *served, 1);
    const auto post_trim = [&](std::uint16_t id, std::span<const nvme::DsmRange> ranges) {
        std::memcpy(host.buffer.data() + host.offset(0, id), ranges.data(), ranges.size_bytes());
        nvme::Command command = trim_command(static_cast<std::uint32_t>(ranges.size()));
        command.command_id = id;
        command.data = host.buffer.sgl(host.offset(0, id), static_cast<std::uint32_t>(ranges.size_bytes()));
        return host.post(0, command);
    };
    const std::uint64_t before = rig.array.nic->counters().sends;
    const auto expect_sent = [&](std::uint64_t wanted, std::uint64_t floors = 0) {
        const auto sent = [&] { return rig.array.nic->counters().sends - before; };
        EXPECT_TRUE(nvmf::eventually([&] { return sent() >= wanted; })) << sent();
        for (int round = 0; round < 20; ++round) (void)served->gateway(0).state();
        EXPECT_GE(sent(), wanted) << "the engine has been round so often";
        EXPECT_LE(sent(), wanted + floors) << "the engine has been round so often";
    };
    {
        Hold second(*rig.array.node->drive_reactors()[2]);
        const Hold third(*rig.array.node->drive_reactors()[3]);
        ASSERT_TRUE(post_trim(1, std::span(chunks_of[2]).first(1)));  // has no use for it
        expect_sent(1);
        ASSERT_TRUE(post_trim(2, std::span(chunks_of[2]).subspan(1, kFew + 4)));
        expect_sent(1 + kFew + 4);
        ASSERT_TRUE(post_trim(3, chunks_of[3]));
        expect_sent(1 + kFew + 4 + kFew);
        second.release();
        EXPECT_EQ(reap_all(host, 0, 2), 2u);
        // The floor rises with the first two, and may be told to each SSD; the one that is held answers none.
        expect_sent(1 + kFew + 4 + kWide, chunks_of.size());
    }
    EXPECT_EQ(reap_all(host, 0, 1), 1u);
    EXPECT_EQ(served->gateway(0).counters().trims, 3u);
    EXPECT_EQ(served->gateway(0).counters().failed, 0u);
}

}  // namespace gnstor::test::durable_test
