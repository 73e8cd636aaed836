// several_nodes_test.cpp: an array of two nodes of one machine, whose client reaches both by shared memory:
// lanes at work while one of the nodes goes and comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "embedded/bench.hpp"
#include "embedded/daemon_over_ports.hpp"
#include "rdma/wire/shm/shm_nic.hpp"
#include "rdma/wire/shm/shm_server.hpp"
#include "ssd/scratch.hpp"
#include "support/count.hpp"
#include "support/loopback.hpp"

namespace gnstor::test::several_nodes_test {

using nvme::Status;

constexpr std::uint32_t kNodes = 2, kSsdsEach = 2, kBlocks = 1024, kLanes = 8;
// What a lane writes down of its command another one reads that finds the answer: in this order by way of the
// NIC, whose threads have the queues elsewhere in this process than the lanes. So ThreadSanitizer sees no
// order.
#if defined(__SANITIZE_THREAD__)
constexpr std::uint32_t kChannels = kLanes;
#else
constexpr std::uint32_t kChannels = 2;
#endif
const auto kMe = simt::self(simt::Lane{});

class SeveralNodes : public ::testing::Test {
  protected:
    void SetUp() override {
        std::vector<rdma::ShmNode> places;
        for (std::uint32_t i = 0; i < kNodes; ++i) {
            start(i);
            places.push_back({address(i), [path = socket(i)] { return Result(rdma::ShmNode::Place{path}); }});
        }
        nic = rdma::open_shm_nic(std::move(places)).value();
        daemon::InProcessOptions d;
        d.tick = std::chrono::milliseconds(20);
        daemon = gnstor::test::start_daemon_over(
            *nic, kNodes * kSsdsEach, [&](std::uint32_t slot) { return identity(slot); }, ports,
            std::move(d));
        client::ClientOptions c;
        c.name = "lanes";
        c.channels = kChannels;
        c.keep_alive_ms = 0;
        client = client::Client::connect(*daemon, *nic, c).value();
        client::CreateVolume r;
        r.name = "v";
        r.capacity_bytes = std::uint64_t{kBlocks} * nvme::kBlockBytes;
        r.replicas = 2;
        (void)client->create(r).value();
        volume = client->open("v", client::OpenMode::kWrite).value();
        std::vector<std::uint64_t> data(std::size_t{kBlocks} * kWordsPerBlock);
        for (std::size_t i = 0; i < data.size(); ++i) data[i] = mix64(i);
        ASSERT_EQ(volume->ref().write(kMe, client->channel(0).ref(), 0, kBlocks, data.data(), late()),
                  Status::kSuccess);
    }
    static std::string address(std::uint32_t node) { return loopback_address(7 + node); }
    [[nodiscard]] std::filesystem::path folder(std::uint32_t node) const {
        return scratch / ("node-" + std::to_string(node));
    }
    [[nodiscard]] std::filesystem::path socket(std::uint32_t node) const { return folder(node) / "shm"; }
    void start(std::uint32_t node) {
        std::filesystem::create_directories(folder(node));
        EmbeddedArrayOptions o = rig_options();
        o.ssds = kSsdsEach;
        o.ssd_capacity_bytes = 64u << 20;
        o.directory = folder(node);
        embedded::UdpListen listen;
        listen.address = address(node);
        listen.shm = socket(node);
        nodes[node] = embedded::Node::open(o, listen).value();
        ASSERT_TRUE(nodes[node]->serves_shm());
    }
    /// What gnstord does when a node has come back: its SSDs have no map. Ports belong to the daemon's
    /// thread, which keeps away from them while it is suspended.
    void give_map(std::uint32_t node) {
        nvme::MapSet set{};
        set.map = daemon->array().value().map;
        const std::uint64_t term = daemon->inspect().term;
        daemon->suspend();
        for (set.slot = node * kSsdsEach; set.slot < (node + 1) * kSsdsEach; ++set.slot) {
            ASSERT_TRUE(ports[set.slot]->volume_list(term).ok());  // it is connected anew
            const Result<void> given = ports[set.slot]->map_set(term, set, 0);
            EXPECT_TRUE(given.ok()) << given.error().message;
        }
        daemon->resume();
    }
    [[nodiscard]] daemon::SsdIdentity identity(std::uint32_t slot) const {
        return nodes[slot / kSsdsEach]->identity(slot % kSsdsEach);
    }
    /// Reads blocks here and there, and compares. The first status that is no success, or success.
    Status read(std::uint32_t lane, std::uint32_t times, std::uint32_t& done) {
        std::vector<std::uint64_t> block(kWordsPerBlock);
        SplitMix64 random(run_seed() + lane);
        const ChannelRef channel = client->channel(lane % kChannels).ref();
        for (std::uint32_t i = 0; i < times; ++i, ++done) {
            const auto at = static_cast<std::uint32_t>(random.below(kBlocks));
            const Status status = volume->ref().read(kMe, channel, at, 1, block.data(), late());
            if (status != Status::kSuccess) return status;
            for (std::uint32_t w = 0; w < kWordsPerBlock; ++w)
                if (block[w] != mix64(std::uint64_t{at} * kWordsPerBlock + w)) return Status::kInternalError;
        }
        return Status::kSuccess;
    }

    ssd::testing::Scratch scratch;
    std::unique_ptr<embedded::Node> nodes[kNodes];
    std::unique_ptr<rdma::Nic> nic;
    std::vector<std::unique_ptr<daemon::NvmfSsdPort>> ports;
    std::unique_ptr<daemon::InProcessControlPlane> daemon;
    std::unique_ptr<client::Client> client;
    std::unique_ptr<client::Volume> volume;
};

TEST_F(SeveralNodes, LanesKeepReadingWhileANodeIsAwayAndReclaimRestoresIt) {
    std::uint64_t reads = 0;
    for (std::uint32_t round = 0; round < 3; ++round) {
        const std::uint32_t victim = round % kNodes;
        std::atomic<std::uint64_t> moments{0};
        std::atomic<bool> gone{false};
        std::vector<std::thread> lanes;
        for (std::uint32_t lane = 0; lane < kLanes; ++lane)
            lanes.emplace_back([&, lane] {
                // Every block has a replica on the other node.
                for (std::uint32_t after = 0; after < 3; after += gone.load() ? 1 : 0) {
                    std::uint32_t done = 0;
                    EXPECT_EQ(read(lane, 50, done), Status::kSuccess) << "lane " << lane;
                    moments += done;
                    if (done != 50) return;
                }
            });
        while (moments.load() < 1000 && !::testing::Test::HasFailure()) std::this_thread::yield();
        nodes[victim].reset();
        gone.store(true);
        for (auto& lane : lanes) lane.join();
        reads += moments.load();
        // As by packets: what needs the node says that its queue pair is in error, at once.
        const std::vector<std::uint64_t> one(kWordsPerBlock, 1);
        EXPECT_EQ(volume->ref().write(kMe, client->channel(0).ref(), 0, 1, one.data(), late()),
                  Status::kQueueError);
        EXPECT_FALSE(client->reclaim().ok()) << "the node is not running";
        start(victim);
        give_map(victim);
        GN_ASSERT_OK(client->reclaim());
        std::vector<std::uint64_t> data(kWordsPerBlock);
        for (std::size_t i = 0; i < data.size(); ++i) data[i] = mix64(i);
        EXPECT_EQ(volume->ref().write(kMe, client->channel(0).ref(), 0, 1, data.data(), late()),
                  Status::kSuccess);
        std::uint32_t done = 0;
        EXPECT_EQ(read(0, 200, done), Status::kSuccess);
    }
    for (std::uint32_t i = 0; i < client->channel_count(); ++i) {
        EXPECT_EQ(client->channel(i).usage().value().commands_pending, 0u);
        EXPECT_EQ(client->channel(i).counters().value().quarantined, 0u);
    }
    count("several_nodes_reads", reads);
}

// As after a reclaim() that reset it and could not connect it: the connection is well, and lanes pass it by.
TEST_F(SeveralNodes, AnAbandonedQueuePairIsReconnectedByReclaim) {
    const std::vector<std::uint64_t> one(kWordsPerBlock, 1);
    const auto write = [&] {
        return volume->ref().write(kMe, client->channel(0).ref(), 0, 1, one.data(), late());
    };
    for (std::uint32_t slot = 0; slot < kSsdsEach; ++slot) GN_ASSERT_OK(client->channel(0).give_up(slot));
    EXPECT_EQ(write(), Status::kQueueError) << "each block has a replica on the first node";
    GN_ASSERT_OK(client->reclaim());
    EXPECT_EQ(write(), Status::kSuccess);
}

TEST_F(SeveralNodes, AClientOpenedWhileANodeIsAwayWorksWithoutItUntilReclaim) {
    GN_ASSERT_OK(daemon->share_volume(client->identity().id, "v", 0));
    client::ClientOptions c;
    c.name = "late";
    c.channels = 1;
    c.keep_alive_ms = 20'000;  // whatever this thread waits for, it is no lost host
    for (std::uint32_t away = 0; away < kNodes; ++away) {
        nodes[away].reset();
        auto late_comer = client::Client::connect(*daemon, *nic, c);
        GN_ASSERT_OK(late_comer);
        client::Client& late_client = **late_comer;
        const auto v = late_client.open("v", client::OpenMode::kRead).value();
        std::vector<std::byte> back(std::size_t{kBlocks} * nvme::kBlockBytes);
        const auto expect_all = [&](const char* when) {
            std::ranges::fill(back, std::byte{0});
            GN_ASSERT_OK(v->read(0, back));
            std::uint64_t wrong = 0;
            for (std::size_t i = 0; i < back.size() / 8; ++i) {
                std::uint64_t word = 0;
                std::memcpy(&word, back.data() + 8 * i, sizeof word);
                wrong += word == mix64(i) ? 0 : 1;
            }
            EXPECT_EQ(wrong, 0u) << when << " node " << away;
        };
        expect_all("without");
        EXPECT_FALSE(late_client.reclaim().ok()) << "the node is not running";
        expect_all("still without");
        EXPECT_TRUE(late_client.volatile_write_cache().value())
            << "the cache of an unreachable SSD is unknown and must be assumed volatile";
        start(away);
        give_map(away);
        GN_ASSERT_OK(late_client.reclaim());
        const std::uint64_t before = nodes[away]->describe(0).reads;
        expect_all("with");
        EXPECT_GT(nodes[away]->describe(0).reads, before) << "the node must serve reads again";
        GN_ASSERT_OK(client->reclaim());  // the one that was there before
    }
    for (auto& node : nodes) node.reset();
    EXPECT_FALSE(client::Client::connect(*daemon, *nic, c).ok()) << "no node is running";
}

}  // namespace gnstor::test::several_nodes_test
