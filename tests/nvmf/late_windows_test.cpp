// late_windows_test.cpp: a target on a wire that fetches and sends (late_windows.hpp): commands wait
// for their payload, only what succeeded is sent, refused keys end their connection, and a connection drains
// whatever it waits for.
#include "loop_rig.hpp"
#include "support/count.hpp"

#include <algorithm>

namespace gnstor::nvmf {
namespace {

using nvme::IoOpcode;
using nvme::Status;

constexpr std::byte kMark{0xEE};

class LateWindows : public ::testing::Test {
  protected:
    explicit LateWindows(std::uint32_t rounds = 12) : rig({.late_windows = rounds, .target = {}}) {
        rig.make_volume();
    }

    std::unique_ptr<HostQueue> queue_of(HostController& host, std::uint16_t id, std::uint32_t entries) {
        return host.open_io_queue(id, entries).value();
    }
    bool all(const Buffer& buffer, std::byte value, std::size_t from, std::size_t to) {
        const std::byte* const data = const_cast<Buffer&>(buffer).data();
        return std::all_of(data + from, data + to, [&](std::byte b) { return b == value; });
    }
    LoopRig rig;
};

TEST_F(LateWindows, ConnectDataIsFetched) {
    auto host = rig.connect(rig.host()).value();
    const IoQueueConnect connect = host->io_queue(3, 16);
    Buffer buffer(rig.host_nic(), 4096);
    const nvme::ConnectData good = connect.data();
    nvme::ConnectData bad = good;
    bad.controller_id = 999;
    auto queue = HostQueue::create(rig.host_nic(), 16).value();
    ASSERT_TRUE(host->connect_transport(queue->qp(), connect).ok());
    const auto try_with = [&](const nvme::ConnectData& data, std::uint16_t id) {
        std::memcpy(buffer.data(), &data, sizeof data);
        const auto sgl = buffer.sgl(0, sizeof data);
        EXPECT_EQ(queue->post(connect.command_keyed(id, sgl.address, sgl.key())), HostQueue::Posted::kYes);
        return await_response(*queue, simt::now_ns() + 100 * kSecond).value();
    };
    const auto refused = try_with(bad, 5);
    EXPECT_EQ(refused.result(), Status::kConnectInvalidParameters);
    EXPECT_EQ(refused.dw0, nvme::connect_bad_parameter(offsetof(nvme::ConnectData, controller_id), true));
    nvme::ConnectData malformed = good;
    malformed.host_nqn[0] = 'x';
    EXPECT_EQ(try_with(malformed, 6).result(), Status::kConnectInvalidParameters);
    EXPECT_EQ(try_with(good, 7).result(), Status::kSuccess);
    EXPECT_EQ(try_with(good, 8).result(), Status::kCommandSequenceError) << "it is connected";
}

TEST_F(LateWindows, ASecondConnectWhileTheFirstIsFetchedIsRefused) {
    auto host = rig.connect(rig.host()).value();
    const IoQueueConnect connect = host->io_queue(1, 16);
    Buffer buffer(rig.host_nic(), 4096);
    const nvme::ConnectData data = connect.data();
    std::memcpy(buffer.data(), &data, sizeof data);
    const auto sgl = buffer.sgl(0, sizeof data);
    auto queue = HostQueue::create(rig.host_nic(), 16).value();
    ASSERT_TRUE(host->connect_transport(queue->qp(), connect).ok());
    for (std::uint16_t id = 1; id <= 2; ++id)
        ASSERT_EQ(queue->post(connect.command_keyed(id, sgl.address, sgl.key())), HostQueue::Posted::kYes);
    for (int i = 0; i < 2; ++i) {
        const auto r = await_response(*queue, simt::now_ns() + 100 * kSecond).value();
        EXPECT_EQ(r.result(), r.command_id == 1 ? Status::kSuccess : Status::kCommandSequenceError);
    }
}

TEST_F(LateWindows, AReadThatIsRefusedSendsNothing) {
    auto host = rig.connect(rig.host(client_host_nqn(kWriter + 1))).value();
    IoClient io_client(rig.host_nic(), *host, 1);
    std::fill_n(io_client.buffer.data(), 65536, kMark);
    nvme::IoFields f = fields(0, 4);
    f.client = kWriter + 1;
    EXPECT_EQ(io_client.status(io(IoOpcode::kRead, f, io_client.buffer.sgl(0, 16384))),
              Status::kAccessDenied);
    EXPECT_TRUE(all(io_client.buffer, kMark, 0, 65536));
    EXPECT_FALSE(io_client.queue().broken());
}

TEST_F(LateWindows, AnAnswerShorterThanItsBufferCarriesNoDataOfOtherHosts) {
    auto admin = rig.connect(rig.host(std::string{kAdminHostNqn})).value();
    std::vector<std::byte> data(kAdminDataBytes, kMark);
    nvme::Command list{};
    list.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kVolumeList);
    list.flags = nvme::kFlagsSgl;
    list.cdw11 = static_cast<std::uint32_t>(data.size());
    list.cdw14 = static_cast<std::uint32_t>(kTerm);
    ASSERT_EQ(admin->admin(list, data, Direction::kToHost).value().result(), Status::kSuccess);
    nvme::VolumeListHeader header;
    std::memcpy(&header, data.data(), sizeof header);
    ASSERT_EQ(header.returned, 1u);
    const std::size_t used = sizeof header + sizeof(nvme::VolumeRecord);
    EXPECT_TRUE(std::all_of(data.begin() + static_cast<std::ptrdiff_t>(used), data.end(),
                            [](std::byte b) { return b == std::byte{0}; }));
    const auto identify = admin->identify_controller().value();
    EXPECT_EQ(identify.cntlid, admin->controller_id());
}

TEST_F(LateWindows, ARefusedKeyEndsOnlyItsOwnConnection) {
    auto host = rig.connect(rig.host()).value();
    IoClient steady(rig.host_nic(), *host, 1);
    steady.buffer.fill(1);
    Buffer read_only(rig.host_nic(), 8192, rdma::kRemoteRead);
    Buffer write_only(rig.host_nic(), 8192, rdma::kLocalWrite | rdma::kRemoteWrite);
    const nvme::Command bad[] = {
        io(IoOpcode::kRead, fields(1, 1), read_only.sgl(0, 4096)),
        io(IoOpcode::kRead, fields(1, 1), write_only.sgl(8000, 4096)),
        io(IoOpcode::kWrite, fields(1, 1, 1), write_only.sgl(0, 4096)),
        io(IoOpcode::kWrite, fields(1, 1, 1), nvme::SglDescriptor::keyed(0x1000, 4096, 0xDEAD))};
    for (const nvme::Command& command : bad) {
        auto queue = queue_of(*host, 2, 16);
        ASSERT_EQ(queue->post(command), HostQueue::Posted::kYes);
        EXPECT_TRUE(eventually([&] { return queue->broken(); }));
        queue.reset();
        EXPECT_TRUE(eventually([&] { return rig.target().connections_open() == 2; }));
        EXPECT_EQ(steady.status(io(IoOpcode::kWrite, fields(9, 1, 1), steady.buffer.sgl(0, 4096))),
                  Status::kSuccess)
            << "other connections must continue to work";
    }
}

class VeryLateWindows : public LateWindows {
  protected:
    VeryLateWindows() : LateWindows(20'000) {}
};

TEST_F(VeryLateWindows, WritesBeingFetchedWhenTheirConnectionEndsAreDrained) {
    auto host = rig.connect(rig.host()).value();
    constexpr std::uint16_t kWrites = 32;
    Buffer buffer(rig.host_nic(), kWrites * 8192);
    std::uint64_t fetches = 0;
    // On a busy machine windows may be there before the connection ends: as many rounds as it takes.
    constexpr std::uint64_t kFetches = 50;
    const std::uint64_t until = simt::now_ns() + 60'000'000'000ull;
    for (int round = 0; round < 50 || (fetches < kFetches && simt::now_ns() < until); ++round) {
        auto queue = queue_of(*host, 1, kWrites);
        const std::uint64_t before = rig.counters().writes;
        const std::uint64_t arrived = rig.counters().capsules;
        for (std::uint16_t i = 0; i < kWrites; ++i) {
            nvme::Command c = io(IoOpcode::kWrite, fields(i * 2u, 2, round * kWrites + i + 1u),
                                 buffer.sgl(i * 8192u, 8192));
            c.command_id = i;
            ASSERT_EQ(queue->post(c), HostQueue::Posted::kYes);
        }
        ASSERT_TRUE(eventually([&] { return rig.counters().capsules > arrived; }));
        queue.reset();
        ASSERT_TRUE(eventually([&] { return rig.target().connections_open() == 1; }));
        fetches += (rig.counters().capsules - arrived) - (rig.counters().writes - before);
    }
    // Those that had arrived and never got as far as the drive.
    test::count("nvmf_fetches_cut_short", fetches);
    EXPECT_GT(fetches, 0u);
}

TEST_F(VeryLateWindows, TheTargetClosesWhileWritesAreFetched) {
    auto host = rig.connect(rig.host()).value();
    auto queue = queue_of(*host, 1, 32);
    Buffer buffer(rig.host_nic(), 65536);
    for (std::uint16_t i = 0; i < 32; ++i) {
        nvme::Command c = io(IoOpcode::kWrite, fields(0, 16, i + 1u), buffer.sgl(0, 65536));
        c.command_id = i;
        ASSERT_EQ(queue->post(c), HostQueue::Posted::kYes);
    }
    rig.close_target();
    EXPECT_TRUE(eventually([&] { return queue->broken() && !host->connected(); }));
    queue.reset();
    host.reset();
}

}  // namespace
}  // namespace gnstor::nvmf
