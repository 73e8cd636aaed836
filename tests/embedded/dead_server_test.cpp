// dead_server_test.cpp: an array that one process serves over shared memory, and the end of that process: all
// that waits for it fails by its queue pairs, at once and not at its deadline, and all that follows; one line
// says so; reclaim() is enough once a process serves again.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <thread>

#include "embedded/rig.hpp"
#include "rdma/child.hpp"
#include "rdma/shm_wire.hpp"
#include "ssd/scratch.hpp"
#include "support/loopback.hpp"

namespace gnstor::test {
namespace {

using nvme::Status;

constexpr std::uint32_t kSsds = 2, kBlocks = 64, kReaders = 4;
constexpr std::uint64_t kMinutesNs = 30ull * 60'000'000'000;  // whoever waits it out, waits too long

simt::Deadline minutes() {
    return simt::Deadline::in_ns(kMinutesNs);
}

std::uint32_t occurrences(const std::string& text, const std::string& what) {
    std::uint32_t found = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
}

class DeadServer : public ::testing::Test {
  protected:
    // Before this process has threads.
    std::unique_ptr<rdma::test::Child> server() {
        return std::make_unique<rdma::test::Child>([this](auto ready) {
            const auto node = serve();
            ready();
            for (;;) ::pause();
        });
    }
    [[nodiscard]] std::unique_ptr<embedded::Node> serve() const {
        EmbeddedArrayOptions o = rig_options();
        o.ssds = kSsds;
        o.ssd_capacity_bytes = 64u << 20;
        o.directory = scratch / "ssds";
        std::filesystem::create_directories(o.directory);
        embedded::UdpListen listen;
        listen.address = loopback_address(21);
        listen.shm = socket();
        return embedded::Node::open(o, listen).value();
    }
    [[nodiscard]] std::filesystem::path socket() const { return scratch / "shm"; }
    void SetUp() override {
        {
            const auto node = serve();  // what the SSDs are called
            for (std::uint32_t slot = 0; slot < kSsds; ++slot) identities.push_back(node->identity(slot));
        }
        first = server();
        second = server();
        ASSERT_TRUE(first->begin());
        wire = rdma::ShmWire::open(socket()).value();
        nic = rdma::SoftNic::open(*wire).value();
        std::vector<daemon::SsdPort*> raw;
        for (std::uint32_t slot = 0; slot < kSsds; ++slot) {
            ports.push_back(daemon::NvmfSsdPort::connect(*nic, slot, identities[slot]).value());
            raw.push_back(ports.back().get());
        }
        daemon = daemon::InProcessControlPlane::start(std::make_unique<daemon::MemoryRecordStore>(),
                                                      std::move(raw), {})
                     .value();
        client::ClientOptions c;
        c.name = "owner";
        c.channels = 2;
        c.keep_alive_ms = 300;
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
            const Result<void> given = ports[set.slot]->map_set(term, set, 0);
            EXPECT_TRUE(given.ok()) << given.error().message;
        }
        daemon->resume();
    }
    Status read(std::uint32_t channel, std::uint32_t block) {
        std::vector<std::byte> to(nvme::kBlockBytes);
        const Status status = volume->ref().read(simt::self(simt::Lane{}), client->channel(channel).ref(),
                                                 block, 1, to.data(), minutes());
        return nvme::ok(status) && to.back() != std::byte{0x5A} ? Status::kInternalError : status;
    }
    Status write(std::uint32_t channel, std::uint32_t block) {
        const std::vector<std::byte> from(nvme::kBlockBytes, std::byte{0x5A});
        return volume->ref().write(simt::self(simt::Lane{}), client->channel(channel).ref(), block, 1,
                                   from.data(), minutes());
    }
    std::uint32_t pending() {
        std::uint32_t all = 0;
        for (std::uint32_t i = 0; i < client->channel_count(); ++i)
            all += client->channel(i).usage().value().commands_pending;
        return all;
    }

    ssd::testing::Scratch scratch;
    std::vector<daemon::SsdIdentity> identities;
    std::unique_ptr<rdma::test::Child> first, second;
    std::unique_ptr<rdma::ShmWire> wire;
    std::unique_ptr<rdma::SoftNic> nic;
    std::vector<std::unique_ptr<daemon::NvmfSsdPort>> ports;
    std::unique_ptr<daemon::InProcessControlPlane> daemon;
    std::unique_ptr<client::Client> client;
    std::unique_ptr<client::Volume> volume;
};

TEST_F(DeadServer, WhatWaitsForItAndWhatFollowsFailsByItsQueuePairsUntilReclaim) {
    ::testing::internal::CaptureStderr();
    // It takes what is sent from here on, and answers nothing.
    first->stand_still();
    std::vector<std::thread> lanes;
    std::array<Status, kReaders> ended{};
    for (std::uint32_t lane = 0; lane < kReaders; ++lane)
        lanes.emplace_back([&, lane] { ended[lane] = lane == 0 ? write(0, 0) : read(lane % 2, lane); });
    while (pending() < kReaders) std::this_thread::yield();
    first->kill();
    for (auto& lane : lanes) lane.join();
    for (std::uint32_t lane = 0; lane < kReaders; ++lane)
        EXPECT_EQ(ended[lane], Status::kQueueError) << "under way, lane " << lane;
    for (std::uint32_t i = 0; i < 20; ++i) {
        EXPECT_EQ(read(i % 2, i), Status::kQueueError) << "after its end";
        EXPECT_EQ(write(i % 2, i), Status::kQueueError) << "after its end";
    }
    std::vector<std::byte> to(nvme::kBlockBytes);
    EXPECT_FALSE(volume->read(0, to).ok()) << "the host's own lanes";
    // Until the keep-alives have seen all SSDs lost.
    while (!client->volatile_write_cache().ok()) std::this_thread::yield();
    EXPECT_FALSE(client->reclaim().ok()) << "nobody serves";
    EXPECT_EQ(read(0, 1), Status::kQueueError);

    ASSERT_TRUE(second->begin());
    give_map();
    GN_ASSERT_OK(client->reclaim());
    EXPECT_EQ(pending(), 0u);
    for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(read(i % 2, i), Status::kSuccess) << "block " << i;
    EXPECT_EQ(write(1, 1), Status::kSuccess);
    for (std::uint32_t i = 0; i < client->channel_count(); ++i)
        EXPECT_EQ(client->channel(i).counters().value().timeouts, 0u) << "none was waited out";

    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(occurrences(said, "client owner has lost"), 1u) << said;
    EXPECT_EQ(occurrences(said, "client owner reaches"), 1u) << said;
    EXPECT_EQ(occurrences(said, "\n"), 2u) << "a line a peer that goes and one when it is back\n" << said;
}

}  // namespace
}  // namespace gnstor::test
