// dead_server_test.cpp: arrays whose processes end while a client uses them: one process or two nodes over
// shared memory, nodes by packets. All that waits for them fails by its queue pairs, at once and not at its
// deadline, and all that follows; a line for each peer says so; reclaim() is enough once they serve again.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "embedded/daemon_over_ports.hpp"
#include "embedded/rig.hpp"
#include "rdma/child.hpp"
#include "rdma/wire/shm/shm_nic.hpp"
#include "rdma/wire/udp/udp_wire.hpp"
#include "ssd/scratch.hpp"
#include "support/count.hpp"
#include "support/loopback.hpp"

namespace gnstor::test::dead_server_test {

using nvme::Status;

constexpr std::uint32_t kSsds = 2, kBlocks = 64, kReaders = 4, kCalls = 20;
constexpr std::uint64_t kDeadlineNs = 5'000'000'000;  // the programs' own
constexpr std::uint64_t kLateNs = 60'000'000'000;     // whoever waits it out, waits too long

/// How the client reaches the SSDs.
enum class Form : std::uint8_t { kShmOneProcess, kShmTwoNodes, kUdpTwoNodes };

std::string name_of(Form form) {
    return form == Form::kShmOneProcess ? "ShmOneProcess"
           : form == Form::kShmTwoNodes ? "ShmTwoNodes"
                                        : "UdpTwoNodes";
}

std::uint32_t occurrences(const std::string& text, const std::string& what) {
    std::uint32_t found = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
}

class Clock {
  public:
    [[nodiscard]] double ms() const {
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began_).count();
    }

  private:
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

class DeadServer : public ::testing::TestWithParam<Form> {
  protected:
    [[nodiscard]] std::uint32_t peers() const { return GetParam() == Form::kShmOneProcess ? 1 : 2; }
    [[nodiscard]] std::uint32_t ssds_of_each() const { return kSsds / peers(); }
    [[nodiscard]] virtual daemon::InProcessOptions daemon_options() const { return {}; }
    // Before this process has threads.
    std::unique_ptr<rdma::test::Child> server(std::uint32_t peer) {
        return std::make_unique<rdma::test::Child>([this, peer](auto ready) {
            const auto node = serve(peer);
            ready();
            for (;;) ::pause();
        });
    }
    [[nodiscard]] std::unique_ptr<embedded::Node> serve(std::uint32_t peer) const {
        EmbeddedArrayOptions o = rig_options();
        o.ssds = ssds_of_each();
        o.ssd_capacity_bytes = 64u << 20;
        o.strict_nic = GetParam() != Form::kUdpTwoNodes;
        o.directory = scratch / ("ssds-" + std::to_string(peer));
        std::filesystem::create_directories(o.directory);
        embedded::UdpListen listen;
        listen.address = addresses[peer];
        if (GetParam() != Form::kUdpTwoNodes) listen.shm = socket(peer);
        return embedded::Node::open(o, listen).value();
    }
    [[nodiscard]] std::filesystem::path socket(std::uint32_t peer) const {
        return scratch / ("shm-" + std::to_string(peer));
    }
    void open_nic() {
        if (GetParam() == Form::kUdpTwoNodes) {
            reactor = Reactor::start("host").value();
            udp = rdma::UdpWire::open({.address = loopback_address(25)}, *reactor).value();
            nic = rdma::open_udp_nic(*udp, {}).value();
            return;
        }
        std::vector<rdma::ShmNode> places;
        for (std::uint32_t peer = 0; peer < peers(); ++peer)
            places.push_back({peers() == 1 ? std::string() : addresses[peer],
                              [path = socket(peer)] { return Result(rdma::ShmNode::Place{path}); }});
        nic = rdma::open_shm_nic(std::move(places)).value();
    }
    void SetUp() override {
        for (std::uint32_t peer = 0; peer < peers(); ++peer) addresses.push_back(loopback_address(21 + peer));
        for (std::uint32_t peer = 0; peer < peers(); ++peer) {
            const auto node = serve(peer);  // what the SSDs are called
            for (std::uint32_t i = 0; i < ssds_of_each(); ++i) identities.push_back(node->identity(i));
        }
        for (auto* const lives : {&first, &second})
            for (std::uint32_t peer = 0; peer < peers(); ++peer) lives->push_back(server(peer));
        for (const auto& process : first) ASSERT_TRUE(process->begin());
        open_nic();
        daemon = gnstor::test::start_daemon_over(
            *nic, kSsds, [&](std::uint32_t slot) { return identities[slot]; }, ports, daemon_options());
        client::ClientOptions c;
        c.name = "owner";
        c.channels = 2;
        c.keep_alive_ms = 1'000;  // a thread of a busy machine may rest for some hundred milliseconds
        client = client::Client::connect(*daemon, *nic, c).value();
        client::CreateVolume r;
        r.name = "v";
        r.capacity_bytes = std::uint64_t{kBlocks} * nvme::kBlockBytes;
        r.replicas = 2;
        (void)client->create(r).value();
        volume = client->open("v", client::OpenMode::kWrite).value();
        GN_ASSERT_OK(volume->write(0, std::vector<std::byte>(r.capacity_bytes, std::byte{0x5A})));
    }
    /// What gnstord does when it starts: its SSDs have no map. Ports belong to the daemon's thread, which
    /// keeps away from them while it is suspended.
    void give_map() {
        nvme::MapSet set{};
        set.map = daemon->array().value().map;
        const std::uint64_t term = daemon->inspect().term;
        daemon->suspend();
        for (set.slot = 0; set.slot < kSsds; ++set.slot) {
            ASSERT_TRUE(ports[set.slot]->volume_list(term).ok());  // it is connected anew
            const Result<void> given = ports[set.slot]->map_set(term, set, 0);
            EXPECT_TRUE(given.ok()) << given.error().message;
        }
        daemon->resume();
    }
    Status read(std::uint32_t channel, std::uint32_t block, std::uint64_t deadline_ns = kDeadlineNs) {
        std::vector<std::byte> to(nvme::kBlockBytes);
        const Status status = volume->ref().read(simt::self(simt::Lane{}), client->channel(channel).ref(),
                                                 block, 1, to.data(), simt::Deadline::in_ns(deadline_ns));
        return nvme::ok(status) && to.back() != std::byte{0x5A} ? Status::kInternalError : status;
    }
    Status write(std::uint32_t channel, std::uint32_t block, std::uint64_t deadline_ns = kDeadlineNs) {
        const std::vector<std::byte> from(nvme::kBlockBytes, std::byte{0x5A});
        return volume->ref().write(simt::self(simt::Lane{}), client->channel(channel).ref(), block, 1,
                                   from.data(), simt::Deadline::in_ns(deadline_ns));
    }
    std::uint32_t pending() {
        std::uint32_t all = 0;
        for (std::uint32_t i = 0; i < client->channel_count(); ++i)
            all += client->channel(i).usage().value().commands_pending;
        return all;
    }

    ssd::testing::Scratch scratch;
    std::vector<daemon::SsdIdentity> identities;
    std::vector<std::string> addresses;
    std::vector<std::unique_ptr<rdma::test::Child>> first, second;
    std::unique_ptr<Reactor> reactor;
    std::unique_ptr<rdma::UdpWire> udp;
    std::unique_ptr<rdma::Nic> nic;
    std::vector<std::unique_ptr<daemon::NvmfSsdPort>> ports;
    std::unique_ptr<daemon::InProcessControlPlane> daemon;
    std::unique_ptr<client::Client> client;
    std::unique_ptr<client::Volume> volume;
};

TEST_P(DeadServer, PendingAndLaterCommandsFailWithAQueueErrorUntilReclaim) {
    ::testing::internal::CaptureStderr();
    // They take what is sent from here on, and answer nothing.
    for (const auto& process : first) process->stand_still();
    std::vector<std::thread> lanes;
    std::array<Status, kReaders> ended{};
    for (std::uint32_t lane = 0; lane < kReaders; ++lane)
        lanes.emplace_back(
            [&, lane] { ended[lane] = lane == 0 ? write(0, 0, kLateNs) : read(lane % 2, lane, kLateNs); });
    while (pending() < kReaders) std::this_thread::yield();
    Clock killed;
    for (const auto& process : first) process->kill();
    for (auto& lane : lanes) lane.join();
    const double under_way_ms = killed.ms();
    for (std::uint32_t lane = 0; lane < kReaders; ++lane)
        EXPECT_EQ(ended[lane], Status::kQueueError)
            << "a command in flight must fail with a queue error, lane " << lane;
    // The kernel tells of the end of a process; that no packet is answered any more only retries tell.
    const std::uint64_t within_ns = GetParam() == Form::kUdpTwoNodes ? kLateNs : kDeadlineNs;
    EXPECT_LT(under_way_ms, static_cast<double>(within_ns) / 1e6) << "under way";
    // One deadline is more than all of them take together, so none of them is a wait.
    Clock calls;
    double slowest_ms = 0;
    for (std::uint32_t i = 0; i < 2 * kCalls; ++i) {
        Clock call;
        EXPECT_EQ(i % 2 == 0 ? read(i % 4 / 2, i) : write(i % 4 / 2, i), Status::kQueueError)
            << "a command after the server's end must fail with a queue error";
        slowest_ms = std::max(slowest_ms, call.ms());
    }
    EXPECT_LT(calls.ms(), static_cast<double>(kDeadlineNs) / 1e6) << 2 * kCalls << " calls";
    std::vector<std::byte> to(nvme::kBlockBytes);
    const auto of_host = volume->read(0, to);
    ASSERT_FALSE(of_host.ok()) << "the host's own lanes";
    EXPECT_NE(of_host.error().message.find("no connection to the SSD of slot"), std::string::npos)
        << of_host.error().message;
    // Until the keep-alives have seen all SSDs lost.
    while (!client->volatile_write_cache().ok()) std::this_thread::yield();
    EXPECT_FALSE(client->reclaim().ok()) << "no server is running";
    EXPECT_EQ(read(0, 1), Status::kQueueError);

    for (const auto& process : second) ASSERT_TRUE(process->begin());
    give_map();
    GN_ASSERT_OK(client->reclaim());
    EXPECT_EQ(pending(), 0u);
    for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(read(i % 2, i), Status::kSuccess) << "block " << i;
    EXPECT_EQ(write(1, 1), Status::kSuccess);
    for (std::uint32_t i = 0; i < client->channel_count(); ++i)
        EXPECT_EQ(client->channel(i).counters().value().timeouts, 0u) << "no call may wait for its deadline";

    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(occurrences(said, "client owner has lost"), peers()) << said;
    EXPECT_EQ(occurrences(said, "client owner reaches"), peers()) << said;
    EXPECT_EQ(occurrences(said, "\n"), 2 * peers())
        << "expected one log line when a peer disconnects and one when it is back\n"
        << said;
    std::printf(
        "%s: commands under way failed %.3f ms after the kill; the slowest of %u calls after it took %.3f "
        "ms\n",
        name_of(GetParam()).c_str(), under_way_ms, 2 * kCalls, slowest_ms);
    count("dead_server_calls", 2 * kCalls);
}

/// With grants that end soon.
class DeadNode : public DeadServer {
  protected:
    static constexpr std::uint32_t kDead = 1;
    [[nodiscard]] daemon::InProcessOptions daemon_options() const override {
        daemon::InProcessOptions o;
        o.manager.grant_ms = 900;
        return o;
    }
    std::string state() {
        for (const daemon::SsdInfo& ssd : daemon->inspect().ssds)
            if (ssd.slot == kDead) return ssd.state;
        return "";
    }
    void wait_for(const std::string& wanted) {
        const Clock waited;
        while (state() != wanted && waited.ms() < static_cast<double>(kLateNs) / 1e6)
            std::this_thread::yield();
        ASSERT_EQ(state(), wanted);
    }
    /// Calls for each block until it succeeds: the first calls after a node's death fail.
    template <class Call>
    void retry_all(Call call) {
        const Clock waited;
        for (std::uint32_t block = 0; block < kBlocks; ++block) {
            Status status = Status::kQueueError;
            while (!nvme::ok(status) && waited.ms() < static_cast<double>(kLateNs) / 1e6)
                status = call(block % 2, block);
            ASSERT_EQ(status, Status::kSuccess) << "block " << block;
        }
    }
    void write_all() {
        retry_all([this](std::uint32_t channel, std::uint32_t block) { return write(channel, block); });
    }
};

TEST_P(DeadNode, WritesGoOnWithoutItsSsdOnceThatIsOutAndNeedNoReclaim) {
    first[kDead]->kill();
    write_all();
    EXPECT_EQ(state(), "out");
    for (std::uint32_t block = 0; block < kBlocks; ++block) EXPECT_EQ(read(0, block), Status::kSuccess);
    ASSERT_TRUE(second[kDead]->begin());
    write_all();
    EXPECT_EQ(state(), "out") << "a client that writes does not reach it yet";
    GN_ASSERT_OK(volume->release());
    volume.reset();
    wait_for("in");
    GN_ASSERT_OK(client->refresh_map());
    GN_ASSERT_OK(client->reclaim());
    volume = client->open("v", client::OpenMode::kWrite).value();
    write_all();
    // What it missed, it has: without the other node.
    first[0]->kill();
    retry_all([this](std::uint32_t channel, std::uint32_t block) { return read(channel, block); });
    count("dead_node_blocks_written", 3 * kBlocks);
}

INSTANTIATE_TEST_SUITE_P(Forms, DeadNode, ::testing::Values(Form::kShmTwoNodes, Form::kUdpTwoNodes),
                         [](const auto& form) { return name_of(form.param); });

INSTANTIATE_TEST_SUITE_P(Forms, DeadServer,
                         ::testing::Values(Form::kShmOneProcess, Form::kShmTwoNodes, Form::kUdpTwoNodes),
                         [](const auto& form) { return name_of(form.param); });

}  // namespace gnstor::test::dead_server_test
