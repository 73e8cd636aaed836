// turn_order_test.cpp: in which order a drive gets the commands of a client with many queue pairs and of a
// modest one, and that a drive that hangs keeps no other drive's memory. The test is the drive: it has the
// other side of every connection's NVMe queue, and nothing is answered until it says so.
#include <gnstor/simt/time.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "late_windows.hpp"
#include "nvmf/host/host.hpp"
#include "nvmf/protocol/nqn.hpp"
#include "nvmf/target/connection.hpp"
#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "support/count.hpp"

namespace gnstor::nvmf::turn_order_test {

using nvme::IoOpcode;
using nvme::Status;

constexpr std::uint32_t kEntries = 64;
constexpr std::uint32_t kPlaces = 64;
constexpr std::uint64_t kStaging =
    kStagingBytesMin;  // of each drive: two largest commands of a client, of two
constexpr std::uint64_t kLongNs = 100'000'000'000;

template <class Condition>
bool eventually(Condition condition) {
    const std::uint64_t until = simt::now_ns() + kLongNs;
    while (!condition()) {
        if (simt::now_ns() > until) return false;
        std::this_thread::yield();
    }
    return true;
}

/// One queue pair from the host to the drive.
struct Pair {
    Subsystem* subsystem = nullptr;
    std::unique_ptr<TargetConnection> connection;
    std::unique_ptr<HostQueue> queue;
    ssd::NvmeQueue drive{1, 2 * kEntries, 0, ssd::Priority::kMedium, false};
    std::uint64_t posted = 0, completed = 0;
    std::uint16_t next_id = 1;

    [[nodiscard]] std::uint64_t at_drive() const {
        return connection->counters().flushes.get() + connection->counters().reads.get() - completed;
    }
    [[nodiscard]] std::uint64_t arrived() const { return connection->counters().capsules.get() - 1; }
};

class TurnOrder : public ::testing::Test, public rdma::Listener, public ConnectionOwner {
  protected:
    void SetUp() override {
        Reactor* const reactors[] = {reactor.get()};
        node = rdma::SoftNic::open(wire, "node", {.stage_windows = rdma::late_windows(3)}, reactors).value();
        host = rdma::SoftNic::open(wire, "host", {}, reactors).value();
        shard = std::make_unique<OffloadShard>(
            *reactor, SharedBudgetOptions{.staging_bytes = kStaging, .places = kPlaces});
        node->listen("ssd", *this).value();
    }
    void TearDown() override {
        for (const auto& pair : pairs) serve(*pair, ~0u);
        for (const auto& pair : pairs) pair->queue.reset();
        ASSERT_TRUE(eventually([&] {
            for (const auto& pair : pairs) serve(*pair, ~0u);
            return quiesced == pairs.size();
        }));
        for (const auto& pair : pairs) {
            shard->remove(*pair->connection);
            node->destroy_queue_pair(pair->connection->qp()).value();
        }
        if (keys) host->deregister_memory(*keys).value();
        node->unlisten("ssd");
    }
    Pair& connect(const std::string& nqn) { return connect(nqn, subsystem); }
    Pair& connect(const std::string& nqn, Subsystem& to) {
        pairs.push_back(std::make_unique<Pair>());
        Pair& pair = *pairs.back();
        pair.subsystem = &to;
        pair.queue = HostQueue::create(*host, kEntries).value();
        (void)pair.queue->connect("node", "ssd", transport_request_data(1, kEntries, 1), 100'000).value();
        ConnectRequest request;
        request.queue_id = 1;
        request.sq_size = kEntries - 1;
        request.controller_id = 1;
        request.host_id = {1};
        request.subsystem_nqn = std::string{kAdminHostNqn};
        request.host_nqn = nqn;
        connect_queue(*pair.queue, IoQueueConnect(request), simt::now_ns() + kLongNs).value();
        return pair;
    }

    // rdma::Listener
    rdma::ConnectReply on_connect(const rdma::ConnectRequest&) override {
        Pair& pair = *pairs.back();
        pair.connection = std::make_unique<TargetConnection>(
            *node, pair.subsystem, *this, TransportRequest{1, kEntries, 1}, [] { return simt::now_ns(); });
        const rdma::QpNumber qp = node->create_offload_queue_pair(*pair.connection).value();
        pair.connection->attach(qp, *shard);
        return {.accept = true,
                .reject_reason = 0,
                .private_data = transport_accept_data(kEntries),
                .qp = qp,
                .messages = kEntries,
                .message_bytes = kCapsuleBytesMax};
    }
    // ConnectionOwner
    void on_connect_command(TargetConnection& c) override {
        c.answer_connect({}, pairs.back()->subsystem, &pairs.back()->drive);
    }
    void on_control_command(TargetConnection&) override {}
    void on_controller_disabled(Subsystem&, std::uint16_t) override {}
    void on_shutdown(Subsystem&, std::uint16_t, std::uint32_t) override {}
    void add_counters(const Subsystem&, nvme::SsdCountersLog&) override {}
    void on_draining(TargetConnection&) override {}
    void on_quiesced(TargetConnection&) override { ++quiesced; }

    /// The host asks until `wanted` of its commands are under way, and they have arrived.
    void fill(Pair& pair, std::uint64_t wanted) {
        ASSERT_TRUE(eventually([&] {
            nvme::Completion response;
            while (pair.queue->poll(response)) ++answered;
            while (pair.posted - pair.completed < wanted && post(pair)) ++pair.posted;
            return pair.posted - pair.completed == wanted && pair.arrived() == pair.posted;
        }));
    }
    static bool post(Pair& pair) {
        nvme::IoFields f;
        f.volume = 1;
        nvme::Command c = nvme::encode_io(IoOpcode::kFlush, f);
        return post(pair, c);
    }
    static bool post(Pair& pair, nvme::Command c) {
        c.command_id = pair.next_id;
        if (pair.queue->post(c) != HostQueue::Posted::kYes) return false;
        pair.next_id =
            pair.next_id == 30'000 ? std::uint16_t{1} : static_cast<std::uint16_t>(pair.next_id + 1);
        return true;
    }
    /// The drive answers up to `most` of what it has of this queue.
    std::uint32_t serve(Pair& pair, std::uint32_t most) {
        nvme::Command c{};
        std::uint32_t served = 0;
        for (; served < most && pair.drive.fetch(c); ++served) {
            nvme::Completion done{};
            done.command_id = c.command_id;
            done.set_result(Status::kSuccess);
            pair.drive.complete(done);
            ++pair.completed;
        }
        if (served != 0) reactor->wake();
        return served;
    }
    [[nodiscard]] std::uint64_t at_drive_of(const std::vector<Pair*>& some) const {
        std::uint64_t sum = 0;
        for (const Pair* pair : some) sum += pair->at_drive();
        return sum;
    }

    std::unique_ptr<Reactor> reactor = Reactor::start("node").value();
    rdma::LoopWire wire;
    std::unique_ptr<rdma::SoftNic> node, host;
    Subsystem subsystem{SubsystemConfig{}, ControllerOptions{}},
        another{SubsystemConfig{}, ControllerOptions{}};
    std::unique_ptr<OffloadShard> shard;
    std::vector<std::unique_ptr<Pair>> pairs;
    std::vector<std::byte> memory = std::vector<std::byte>(kTransferBytesMax);
    std::optional<rdma::MemoryKeys> keys;  // of `memory`, where a test has given it to the host's NIC
    std::atomic<std::size_t> quiesced{0};
    std::uint64_t answered = 0;
};

TEST_F(TurnOrder, AClientWithManyQueuePairsHasOneShareOfADrive) {
    constexpr std::uint32_t kUnderWay = 32;
    std::vector<Pair*> greedy;
    for (int i = 0; i < 16; ++i) greedy.push_back(&connect(client_host_nqn(1)));
    for (Pair* pair : greedy) ASSERT_NO_FATAL_FAILURE(fill(*pair, kUnderWay));
    // Alone, it has the drive for itself.
    ASSERT_TRUE(eventually([&] { return at_drive_of(greedy) == 16 * kUnderWay; }));

    // Another client's command is at the drive at once, before any of those is answered.
    Pair& modest = connect(client_host_nqn(2));
    ASSERT_NO_FATAL_FAILURE(fill(modest, 1));
    ASSERT_TRUE(eventually([&] { return modest.at_drive() == 1; }));

    // The drive answers all that it has but that one, and the greedy host asks anew each time.
    for (std::uint32_t round = 0; round < 2 * kUnderWay; ++round)
        for (Pair* pair : greedy) {
            serve(*pair, 1);
            ASSERT_NO_FATAL_FAILURE(fill(*pair, kUnderWay));
        }
    EXPECT_LE(at_drive_of(greedy) + modest.at_drive(), kPlaces);
    std::uint64_t waits = 0;
    for (const Pair* pair : greedy) waits += pair->connection->counters().waits_for_turn.get();
    EXPECT_GT(waits, 0u);

    // Half of the places are the modest one's, although all are taken.
    ASSERT_NO_FATAL_FAILURE(fill(modest, kEntries - 1));
    ASSERT_TRUE(eventually([&] { return modest.at_drive() >= kPlaces / 2; }));

    // And from then on they take turns: it has more of what the greedy one's queues give back.
    const std::uint64_t before = modest.at_drive();
    EXPECT_TRUE(eventually([&] {
        for (Pair* pair : greedy) serve(*pair, 1);
        return modest.at_drive() >= std::min<std::uint64_t>(before + 8, kEntries - 1);
    }));
    test::count("nvmf_commands_that_waited_for_turns", waits);
}

TEST_F(TurnOrder, AHangingDriveHoldsNoStagingMemoryOfAnotherDrive) {
    constexpr std::uint32_t kCommands = 8, kWithMemory = kStaging / 2 / kTransferBytesMax;
    keys =
        host->register_memory(memory.data(), memory.size(), rdma::kLocalWrite | rdma::kRemoteWrite).value();
    const auto read = [&] {
        nvme::IoFields f;
        f.volume = 1;
        f.blocks = kTransferBytesMax / 4096;
        nvme::Command c = nvme::encode_io(IoOpcode::kRead, f);
        c.data = nvme::SglDescriptor::keyed(reinterpret_cast<std::uintptr_t>(memory.data()),
                                            kTransferBytesMax, keys->rkey);
        return c;
    };
    for (const nvme::ClientId client : {1, 2}) {
        Pair& hung = connect(client_host_nqn(client));
        for (int i = 0; i < int{kCommands}; ++i) {
            ASSERT_TRUE(eventually([&] { return post(hung, read()); }));
            ++hung.posted;
        }
        const ConnectionCounters& counters = hung.connection->counters();
        ASSERT_TRUE(eventually([&] { return counters.waits_for_memory.get() == kCommands - kWithMemory; }));
        ASSERT_TRUE(eventually([&] { return hung.at_drive() == kWithMemory; }));
    }

    // Nothing of that drive is answered. The other one's memory is there.
    for (const nvme::ClientId client : {1, 3}) {
        Pair& other = connect(client_host_nqn(client), another);
        ASSERT_TRUE(eventually([&] { return post(other, read()); }));
        nvme::Completion response;
        ASSERT_TRUE(eventually([&] {
            serve(other, 1);
            return other.queue->poll(response);
        })) << "client "
            << client;
        EXPECT_EQ(response.result(), Status::kSuccess);
    }
    EXPECT_EQ(at_drive_of({pairs[0].get(), pairs[1].get()}), 2 * kWithMemory);

    // It answers after all: what waited goes on.
    for (const std::size_t i : {0u, 1u})
        ASSERT_TRUE(eventually([&] {
            serve(*pairs[i], ~0u);
            return pairs[i]->completed == kCommands;
        }));
}

TEST(StagingShare, IsAnEqualPartAndEnoughForTheLargestCommandsOfTwoClients) {
    EXPECT_EQ(staging_share(256u << 20, 1), 256u << 20);
    EXPECT_EQ(staging_share(256u << 20, 4), 64u << 20);
    EXPECT_EQ(staging_share(256u << 20, 1000), kStagingBytesMin);
    EXPECT_EQ(staging_share(256u << 20, 0), 256u << 20) << "a target may have nothing to serve";
    EXPECT_GE(kStagingBytesMin / 2, kTransferBytesMax + kInCapsuleBytes);
}

}  // namespace gnstor::nvmf::turn_order_test
