// connections_test.cpp: how a target counts the ends of its connections, how much hosts may have of its
// memory, and the counters log page, in which the array's admin host reads both.
#include "loop_rig.hpp"

#include <gnstor/nvme/counters_log.hpp>

namespace gnstor::nvmf {
namespace {

using nvme::Status;

/// Ends that no host meant well with are failures, and all others are not.
TEST(Connections, AreCountedByHowTheyEnded) {
    LoopRig rig({.manual_clock = true, .target = {}});
    const auto open = [&](std::size_t n) {
        return eventually([&] { return rig.target().connections_open() == n; });
    };
    {
        auto host = rig.connect(rig.host()).value();
        auto io = host->open_io_queue(1, 16).value();
        io.reset();
        ASSERT_TRUE(open(1));
    }
    ASSERT_TRUE(open(0));
    SubsystemCounters c = rig.counters();
    EXPECT_EQ(c.connections_accepted, 2u);
    EXPECT_EQ(c.connections_disconnected, 2u) << "as hosts do";
    EXPECT_EQ(c.connections_failed, 0u);
    EXPECT_EQ(c.connections_refused, 0u);

    HostOptions deep = rig.host();
    deep.admin_entries = 129;
    EXPECT_FALSE(rig.connect(deep).ok());
    c = rig.counters();
    EXPECT_EQ(c.connections_refused, 1u);
    EXPECT_EQ(c.connections_accepted, 2u);

    // It never says Connect.
    auto mute = HostQueue::create(rig.host_nic(), 16).value();
    ASSERT_TRUE(mute->connect("node", "ssd-0", transport_request_data(0, 16, 0), 10000).ok());
    rig.clock_ns += 5'100'000'000;
    rig.target().check_time();
    ASSERT_TRUE(open(0));
    EXPECT_EQ(rig.counters().connections_failed, 1u);

    // It falls silent, with two queues.
    HostOptions timed = rig.host();
    timed.keep_alive_ms = 1000;
    auto silent = rig.connect(timed).value();
    auto io = silent->open_io_queue(1, 16).value();
    rig.clock_ns += 1'100'000'000;
    rig.target().check_time();
    ASSERT_TRUE(open(0));
    c = rig.counters();
    EXPECT_EQ(c.connections_failed, 3u);
    EXPECT_EQ(c.keep_alive_expired, 1u);
    EXPECT_EQ(c.connections_disconnected, 2u);
}

TEST(Connections, HostsHaveABoundedNumberOfQueueEntriesAndOneHostHalfOfThem) {
    RigOptions options;
    options.target.entries_max = 256;
    LoopRig rig(options);
    auto host = rig.connect(rig.host()).value();  // 32 entries of an admin queue
    auto a = host->open_io_queue(1, 64);
    ASSERT_TRUE(a.ok()) << a.error().message;
    const auto refused = host->open_io_queue(2, 64);
    ASSERT_FALSE(refused.ok()) << "32 + 64 + 64 are more than half of 256";
    EXPECT_EQ(rig.counters().connections_refused, 1u);
    auto b = host->open_io_queue(2, 32);
    ASSERT_TRUE(b.ok()) << "a queue that fits must be accepted: " << b.error().message;
    (*a).reset();
    ASSERT_TRUE(eventually([&] { return rig.target().connections_open() == 2; }));
    EXPECT_TRUE(host->open_io_queue(3, 64).ok()) << "returned queue entries must be usable again";
}

TEST(Connections, TheCountersLogIsTheAdminHostsAndHoldsTheTargetsOwn) {
    LoopRig rig;
    rig.make_volume();
    auto writer = rig.connect(rig.host()).value();
    IoClient client(rig.host_nic(), *writer, 1);
    for (int i = 0; i < 3; ++i)
        ASSERT_EQ(client.status(io(nvme::IoOpcode::kRead, fields(0, 2), client.buffer.sgl(0, 8192))),
                  Status::kSuccess);
    auto admin = rig.connect(rig.host(std::string{kAdminHostNqn})).value();
    nvme::SsdCountersLog log{};
    const nvme::Command ask = nvme::counters_log_command();
    const auto bytes = std::as_writable_bytes(std::span(&log, 1));
    EXPECT_EQ(writer->admin(ask, bytes, Direction::kToHost)->result(), Status::kInvalidLogPage);
    ASSERT_EQ(admin->admin(ask, bytes, Direction::kToHost)->result(), Status::kSuccess);
    EXPECT_EQ(log.version, nvme::kCountersLogVersion);
    EXPECT_EQ(log.mapped_blocks, 0u) << "nothing was written";
    EXPECT_EQ(log.available_spare_percent, 100u);
    EXPECT_EQ(log.reads, 3u);
    EXPECT_EQ(log.blocks_read, 6u);
    EXPECT_EQ(log.connections_accepted, rig.counters().connections_accepted);
    EXPECT_GE(log.connections_accepted, 4u);
    EXPECT_GT(log.capsules, 3u);
}

}  // namespace
}  // namespace gnstor::nvmf
