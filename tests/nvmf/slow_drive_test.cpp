// slow_drive_test.cpp: a drive that keeps a write for long while it serves everything else: how many commands
// of the queue go by meanwhile. The test is the drive: it has the other side of the connection's NVMe queue.
#include <gnstor/simt/time.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "nvmf/host/host.hpp"
#include "nvmf/protocol/nqn.hpp"
#include "nvmf/target/connection.hpp"
#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "support/count.hpp"

namespace gnstor::nvmf::slow_drive_test {

using nvme::IoOpcode;
using nvme::Status;

constexpr std::uint32_t kEntries = 32;
constexpr std::uint64_t kLongNs = 100'000'000'000;

class SlowDrive : public ::testing::Test, public rdma::Listener, public ConnectionOwner {
  protected:
    void SetUp() override {
        Reactor* const reactors[] = {reactor.get()};
        node = rdma::SoftNic::open(wire, "node", {.strict = true}, reactors).value();
        host = rdma::SoftNic::open(wire, "host", {.strict = true}, reactors).value();
        node->listen("ssd", *this).value();
        queue = HostQueue::create(*host, kEntries).value();
        (void)queue->connect("node", "ssd", transport_request_data(1, kEntries, 1), 100'000).value();
        ConnectRequest request;
        request.queue_id = 1;
        request.sq_size = kEntries - 1;
        request.controller_id = 1;
        request.host_id = {1};
        request.subsystem_nqn = std::string{kAdminHostNqn};
        request.host_nqn = std::string{kAdminHostNqn};
        connect_queue(*queue, IoQueueConnect(request), simt::now_ns() + kLongNs).value();
    }
    void TearDown() override {
        for (const std::uint16_t id : kept) complete(id);
        queue.reset();
        const std::uint64_t until = simt::now_ns() + kLongNs;
        while (!quiesced.load() && simt::now_ns() < until) std::this_thread::yield();
        ASSERT_TRUE(quiesced.load());
        shard->remove(*connection);
        node->destroy_queue_pair(connection->qp()).value();
        node->unlisten("ssd");
        EXPECT_EQ(node->counters().strict_violations + host->counters().strict_violations, 0u);
    }

    // rdma::Listener
    rdma::ConnectReply on_connect(const rdma::ConnectRequest&) override {
        connection = std::make_unique<TargetConnection>(
            *node, &subsystem, *this, TransportRequest{1, kEntries, 1}, [] { return simt::now_ns(); });
        const rdma::QpNumber qp = node->create_offload_queue_pair(*connection).value();
        shard = std::make_unique<OffloadShard>(node->owner(qp));
        connection->attach(qp, *shard);
        return {.accept = true,
                .reject_reason = 0,
                .private_data = transport_accept_data(kEntries),
                .qp = qp,
                .messages = kEntries,
                .message_bytes = kCapsuleBytesMax};
    }
    // ConnectionOwner
    void on_connect_command(TargetConnection& c) override { c.answer_connect({}, &subsystem, &drive); }
    void on_control_command(TargetConnection&) override {}
    void on_controller_disabled(Subsystem&, std::uint16_t) override {}
    void on_shutdown(Subsystem&, std::uint16_t, std::uint32_t) override {}
    void add_counters(const Subsystem&, nvme::SsdCountersLog&) override {}
    void on_draining(TargetConnection&) override {}
    void on_quiesced(TargetConnection&) override { quiesced.store(true); }

    void complete(std::uint16_t id) {
        nvme::Completion c{};
        c.command_id = id;
        c.set_result(Status::kSuccess);
        drive.complete(c);
        reactor->wake();
    }
    /// The drive's turn: serves what is there, but keeps writes of `kept_block` back.
    void serve() {
        nvme::Command c{};
        while (drive.fetch(c)) {
            const nvme::IoFields f = nvme::decode_io(c);
            if (f.block == kept_block && c.opcode == static_cast<std::uint8_t>(IoOpcode::kWrite)) {
                kept.push_back(c.command_id);
                kept_data.push_back(reinterpret_cast<const std::byte*>(c.data.address));
            } else {
                complete(c.command_id);
            }
        }
    }
    bool post_write(std::uint32_t block) {
        nvme::IoFields f;
        f.volume = 1;
        f.block = block;
        f.blocks = 1;
        f.sequence = 1;
        nvme::Command c = nvme::encode_io(IoOpcode::kWrite, f);
        c.command_id = next_id++;
        c.data = nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0, 4096);
        std::fill(payload.begin(), payload.end(), static_cast<std::byte>(block));
        return queue->post(c, payload) == HostQueue::Posted::kYes;
    }
    /// Waits a while for room: that of an entry may come a moment after the answer to it. What is held back
    /// does not come.
    bool post_when_room(std::uint32_t block, std::uint64_t patience_ns = 2'000'000'000) {
        const std::uint64_t patience = simt::now_ns() + patience_ns;
        bool posted = post_write(block);
        for (; !posted && simt::now_ns() < patience; posted = post_write(block)) std::this_thread::yield();
        return posted;
    }
    /// So many writes, one after the other. Returns how many ended.
    std::uint64_t run_writes(std::uint32_t block, std::uint64_t wanted) {
        return run_writes_until_full(block, wanted, kLongNs);
    }
    /// The same, until the host's ring has no room.
    std::uint64_t run_writes_until_full(std::uint32_t block, std::uint64_t most,
                                        std::uint64_t patience_ns = 2'000'000'000) {
        std::uint64_t done = 0;
        for (; done < most && post_when_room(block, patience_ns); ++done) {
            nvme::Completion r;
            const std::uint64_t until = simt::now_ns() + kLongNs;
            bool answered = queue->poll(r);
            for (; !answered && simt::now_ns() < until; answered = queue->poll(r)) {
                serve();
                std::this_thread::yield();
            }
            EXPECT_TRUE(answered);
            if (!answered) break;
        }
        return done;
    }
    void keep_one(std::uint32_t block) {
        kept_block = block;
        ASSERT_TRUE(post_when_room(block, kLongNs));
        const std::uint64_t until = simt::now_ns() + kLongNs;
        while (kept.empty() && simt::now_ns() < until) serve();
        ASSERT_EQ(kept.size(), 1u);
    }
    /// Its bytes are as they were sent, however many commands went by.
    void let_go(std::uint32_t block) {
        ASSERT_EQ(kept.size(), 1u);
        EXPECT_TRUE(std::all_of(kept_data[0], kept_data[0] + 4096,
                                [&](std::byte b) { return b == static_cast<std::byte>(block); }));
        complete(kept[0]);
        kept.clear();
        kept_data.clear();
        nvme::Completion r;
        const std::uint64_t until = simt::now_ns() + kLongNs;
        while (!queue->poll(r) && simt::now_ns() < until) std::this_thread::yield();
        EXPECT_EQ(r.result(), Status::kSuccess);
    }
    [[nodiscard]] std::uint64_t staged() const { return connection->counters().staged_writes.get(); }

    std::unique_ptr<Reactor> reactor = Reactor::start("node").value();
    rdma::LoopWire wire;
    std::unique_ptr<rdma::SoftNic> node, host;
    Subsystem subsystem{SubsystemConfig{}, ControllerOptions{}};
    ssd::NvmeQueue drive{1, 2 * kEntries, 0, ssd::Priority::kMedium, false};
    std::unique_ptr<OffloadShard> shard;
    std::unique_ptr<TargetConnection> connection;
    std::unique_ptr<HostQueue> queue;
    std::atomic<bool> quiesced{false};
    std::vector<std::byte> payload = std::vector<std::byte>(4096);
    std::vector<std::uint16_t> kept;
    std::vector<const std::byte*> kept_data;
    std::uint32_t kept_block = ~0u;
    std::uint16_t next_id = 1;
};

TEST_F(SlowDrive, ADelayedWriteDoesNotDelayOtherCommands) {
    ASSERT_NO_FATAL_FAILURE(keep_one(7));
    const std::uint64_t passed = run_writes(8, 20 * kEntries);
    EXPECT_EQ(passed, 20 * kEntries) << "a send ring of " << kEntries
                                     << " is full behind the one that is kept";
    let_go(7);
    test::count("nvmf_writes_past_a_kept_one", passed);
}

TEST_F(SlowDrive, PayloadIsReadInPlaceOfADriveThatTakesWritesInTurnUntilItDoesNot) {
    EXPECT_EQ(run_writes(1, 400), 400u);
    EXPECT_EQ(staged(), 256u) << "copied until the drive has shown how it is";
    ASSERT_NO_FATAL_FAILURE(keep_one(7));
    // Read in place, so it holds back what is behind it in the ring: all of that goes, and no more.
    const std::uint64_t room = run_writes(8, kEntries - 1);
    ASSERT_EQ(room, kEntries - 1);
    const std::uint64_t before = room + run_writes_until_full(8, 20 * kEntries);
    EXPECT_EQ(before, kEntries - 1);
    EXPECT_EQ(staged(), 256u);
    let_go(7);
    // From now on it is copied.
    ASSERT_NO_FATAL_FAILURE(keep_one(9));
    const std::uint64_t after = run_writes(8, 20 * kEntries);
    EXPECT_EQ(after, 20 * kEntries);
    let_go(9);
    std::printf("  commands that went by: %llu by reference, %llu copied\n",
                static_cast<unsigned long long>(before), static_cast<unsigned long long>(after));
    test::count("nvmf_writes_past_a_kept_one", after);
    // And read in place again, once it has taken enough of them in turn.
    EXPECT_EQ(run_writes(1, 300), 300u);
    const std::uint64_t then = staged();
    EXPECT_EQ(run_writes(1, 100), 100u);
    EXPECT_EQ(staged(), then);
}

TEST_F(SlowDrive, PayloadIsStillReadInPlaceOfADriveWhoseUnitsDiffer) {
    EXPECT_EQ(run_writes(1, 300), 300u);
    const std::uint64_t staged_before = staged();
    for (std::uint32_t round = 0; round < 10; ++round) {
        ASSERT_NO_FATAL_FAILURE(keep_one(7));
        ASSERT_EQ(run_writes(8, kEntries * 5 / 8), kEntries * 5 / 8);
        let_go(7);
    }
    EXPECT_EQ(staged(), staged_before) << "another unit had much less to do";
}

}  // namespace gnstor::nvmf::slow_drive_test
