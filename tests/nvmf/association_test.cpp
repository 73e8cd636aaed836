// association_test.cpp: connecting, enabling, identifying, staying alive: HostController against Target over
// the loop wire.
#include "loop_rig.hpp"

#include <gnstor/nvme/features.hpp>

#include <optional>

namespace gnstor::nvmf {
namespace {

using nvme::Status;

TEST(Association, AHostConnectsEnablesAndIdentifies) {
    LoopRig rig;
    auto host = rig.connect(rig.host());
    ASSERT_TRUE(host.ok()) << host.error().message;
    HostController& c = **host;
    EXPECT_TRUE(c.connected());
    EXPECT_EQ(c.property_get(nvme::Property::kVs).value(), nvme::kVersion20);
    EXPECT_EQ(nvme::Capabilities::decode(c.property_get(nvme::Property::kCap).value()).max_queue_entries,
              1023);
    EXPECT_TRUE(nvme::ControllerStatus::decode(
                    static_cast<std::uint32_t>(c.property_get(nvme::Property::kCsts).value()))
                    .ready);
    const auto identify = c.identify_controller().value();
    EXPECT_EQ(identify.cntlid, c.controller_id());
    EXPECT_EQ(std::string(identify.subnqn), rig.target().subsystem_nqn(0));
    EXPECT_EQ(identify.ioccsz * 16, kCapsuleBytesMax);
    EXPECT_EQ(std::string(identify.sn, rig.drive().serial().size()), rig.drive().serial())
        << "the rest is the drive's";
    EXPECT_EQ(c.identify_namespace().value().lbaf[0].ds, 12) << "4 KiB blocks";
    EXPECT_EQ(c.io_queues(), 128u);
    EXPECT_EQ(c.set_queue_count(5).value(), 5u);
    EXPECT_TRUE(c.keep_alive().ok());
}

TEST(Association, EveryControllerHasItsOwnId) {
    LoopRig rig;
    auto a = rig.connect(rig.host()).value();
    auto b = rig.connect(rig.host(client_host_nqn(10))).value();
    EXPECT_NE(a->controller_id(), b->controller_id());
    EXPECT_EQ(a->identify_controller().value().cntlid, a->controller_id());
    EXPECT_EQ(b->identify_controller().value().cntlid, b->controller_id());
}

TEST(Association, ConnectErrorsNameTheWrongField) {
    LoopRig rig;
    const auto message = [&](auto change) {
        HostOptions o = rig.host();
        change(o);
        const auto host = rig.connect(o);
        EXPECT_FALSE(host.ok());
        return host.ok() ? std::string{} : host.error().message;
    };
    EXPECT_NE(message([](HostOptions& o) {
                  o.subsystem_nqn = "nqn.2026-11.io.gnstor:ssd:other";
              }).find("subsystem NQN"),
              std::string::npos);
    EXPECT_NE(message([](HostOptions& o) { o.host_nqn = "me"; }).find("host NQN"), std::string::npos);
    EXPECT_NE(message([](HostOptions& o) { o.host_id = {}; }).find("host id"), std::string::npos);
    EXPECT_FALSE(message([](HostOptions& o) { o.service = "ssd-9"; }).empty());
    EXPECT_FALSE(message([](HostOptions& o) { o.admin_entries = 129; }).empty())
        << "admin queues have 128 entries at most";
    EXPECT_TRUE(eventually([&] { return rig.target().connections_open() == 0; }));
}

TEST(Association, AnIoQueueWithInvalidParametersIsRefused) {
    LoopRig rig;
    auto host = rig.connect(rig.host()).value();
    EXPECT_EQ(host->set_queue_count(4).value(), 4u);
    EXPECT_FALSE(host->open_io_queue(5, 16).ok()) << "only four were granted";
    const auto deep = host->open_io_queue(1, 1025);
    ASSERT_FALSE(deep.ok()) << "MQES";
    EXPECT_NE(deep.error().message.find("1024 commands at most, not of 1025; use a smaller depth"),
              std::string::npos)
        << deep.error().message;
    auto first = host->open_io_queue(1, 16);
    ASSERT_TRUE(first.ok()) << first.error().message;
    const auto second = host->open_io_queue(1, 16);
    ASSERT_FALSE(second.ok()) << "queue 1 is connected";
    EXPECT_NE(second.error().message.find("Command Sequence Error"), std::string::npos)
        << second.error().message;

    const auto refused = [&](ConnectRequest request) {
        const IoQueueConnect connect(std::move(request));
        auto queue = HostQueue::create(rig.host_nic(), 16).value();
        EXPECT_TRUE(host->connect_transport(queue->qp(), connect).ok());
        const auto r = connect_queue(*queue, connect, simt::now_ns() + 100 * kSecond);
        EXPECT_FALSE(r.ok());
        return r.ok() ? std::string{} : r.error().message;
    };
    ConnectRequest good{.queue_id = 2,
                        .sq_size = 15,
                        .attributes = 0,
                        .keep_alive_ms = 0,
                        .host_id = {1, 2, 3, 4},
                        .controller_id = host->controller_id(),
                        .subsystem_nqn = rig.target().subsystem_nqn(0),
                        .host_nqn = client_host_nqn(kWriter)};
    ConnectRequest bad = good;
    bad.host_id = {9};
    EXPECT_NE(refused(bad).find("host id"), std::string::npos);
    bad = good;
    bad.host_nqn = client_host_nqn(10);
    EXPECT_NE(refused(bad).find("host NQN"), std::string::npos);
    bad = good;
    bad.controller_id = 999;
    EXPECT_NE(refused(bad).find("controller id"), std::string::npos);
}

TEST(Association, AConnectionBeginsWithConnect) {
    LoopRig rig;
    auto host = rig.connect(rig.host()).value();
    const IoQueueConnect connect = host->io_queue(1, 16);
    auto queue = HostQueue::create(rig.host_nic(), 16).value();
    ASSERT_TRUE(host->connect_transport(queue->qp(), connect).ok());
    ASSERT_EQ(queue->post(nvme::encode_io(nvme::IoOpcode::kFlush, {})), HostQueue::Posted::kYes);
    EXPECT_EQ(await_response(*queue, simt::now_ns() + 100 * kSecond).value().result(),
              Status::kCommandSequenceError);
    EXPECT_TRUE(connect_queue(*queue, connect, simt::now_ns() + 100 * kSecond).ok());
    const auto again = connect_queue(*queue, connect, simt::now_ns() + 100 * kSecond);
    ASSERT_FALSE(again.ok());
    EXPECT_NE(again.error().message.find("Command Sequence Error"), std::string::npos);
}

TEST(Association, ConnectDataMayBeFetchedFromTheHostsMemory) {
    LoopRig rig;
    auto host = rig.connect(rig.host()).value();
    const IoQueueConnect connect = host->io_queue(3, 16);
    auto queue = HostQueue::create(rig.host_nic(), 16).value();
    Buffer buffer(rig.host_nic(), 4096);
    ASSERT_TRUE(host->connect_transport(queue->qp(), connect).ok());
    const nvme::ConnectData data = connect.data();
    std::memcpy(buffer.data(), &data, sizeof data);
    const auto sgl = buffer.sgl(0, sizeof data);
    ASSERT_EQ(queue->post(connect.command_keyed(5, sgl.address, sgl.key())), HostQueue::Posted::kYes);
    const auto answer = await_response(*queue, simt::now_ns() + 100 * kSecond).value();
    EXPECT_EQ(answer.result(), Status::kSuccess);
    EXPECT_EQ(answer.dw0, host->controller_id());
    // A key that names nothing is an error of this command, not of the target.
    auto other = HostQueue::create(rig.host_nic(), 16).value();
    const IoQueueConnect fourth = host->io_queue(4, 16);
    ASSERT_TRUE(host->connect_transport(other->qp(), fourth).ok());
    ASSERT_EQ(other->post(fourth.command_keyed(5, sgl.address, sgl.key() ^ 0x5555)), HostQueue::Posted::kYes);
    EXPECT_EQ(await_response(*other, simt::now_ns() + 100 * kSecond).value().result(),
              Status::kDataTransferError);
    const nvme::ConnectData second = fourth.data();
    std::memcpy(buffer.data(), &second, sizeof second);
    ASSERT_EQ(other->post(fourth.command_keyed(6, sgl.address, sgl.key())), HostQueue::Posted::kYes);
    EXPECT_EQ(await_response(*other, simt::now_ns() + 100 * kSecond).value().result(), Status::kSuccess)
        << "the next Connect is the first that it sees";
    queue.reset();
    other.reset();
}

TEST(Association, ASilentControllerExpiresWithAllItsQueues) {
    LoopRig rig({.manual_clock = true, .target = {}});
    HostOptions o = rig.host();
    o.keep_alive_ms = 1000;
    auto host = rig.connect(o).value();
    auto io = host->open_io_queue(1, 16).value();
    auto other = rig.connect(rig.host()).value();  // a minute's time
    rig.clock_ns += 900'000'000;
    EXPECT_TRUE(host->keep_alive().ok());
    rig.clock_ns += 900'000'000;
    rig.target().check_time();
    EXPECT_TRUE(host->keep_alive().ok());
    EXPECT_FALSE(io->broken());
    rig.clock_ns += 1'000'000'000;
    rig.target().check_time();
    EXPECT_TRUE(eventually([&] { return !host->connected() && io->broken(); }));
    EXPECT_FALSE(host->keep_alive().ok());
    EXPECT_TRUE(other->keep_alive().ok()) << "other controllers must not be affected";
    EXPECT_TRUE(eventually([&] { return rig.target().connections_open() == 1; }));
    EXPECT_EQ(rig.counters().keep_alive_expired, 1u);
    host.reset();
    EXPECT_TRUE(rig.connect(o).ok()) << "the host must be able to reconnect";
}

TEST(Association, AConnectionThatNeverConnectsIsFailed) {
    LoopRig rig({.manual_clock = true, .target = {}});
    auto queue = HostQueue::create(rig.host_nic(), 16).value();
    ASSERT_TRUE(queue->connect("node", "ssd-0", transport_request_data(0, 16, 0), 10000).ok());
    EXPECT_EQ(rig.target().connections_open(), 1u);
    rig.clock_ns += 5'100'000'000;
    rig.target().check_time();
    EXPECT_TRUE(eventually([&] { return queue->broken() && rig.target().connections_open() == 0; }));
}

TEST(Association, ClosingTheAdminQueueEndsTheControllerAndItsIoQueues) {
    LoopRig rig;
    auto host = rig.connect(rig.host()).value();
    auto io = host->open_io_queue(1, 16).value();
    const IoQueueConnect stale = host->io_queue(2, 16);
    auto late = HostQueue::create(rig.host_nic(), 16).value();
    ASSERT_TRUE(host->connect_transport(late->qp(), stale).ok());
    host.reset();
    EXPECT_TRUE(eventually([&] { return io->broken(); }));
    EXPECT_TRUE(eventually([&] { return rig.target().connections_open() == 1; }));
    const auto r = connect_queue(*late, stale, simt::now_ns() + 100 * kSecond);
    ASSERT_FALSE(r.ok());
    EXPECT_NE(r.error().message.find("controller id"), std::string::npos) << r.error().message;
}

TEST(Association, DisablingTheControllerClosesItsIoQueuesWhichMayReconnect) {
    LoopRig rig;
    auto host = rig.connect(rig.host()).value();
    for (int round = 0; round < 5; ++round) {
        auto io = host->open_io_queue(1, 16);
        ASSERT_TRUE(io.ok()) << io.error().message;
        ASSERT_TRUE(host->property_set(nvme::Property::kCc, 0).ok());
        EXPECT_EQ(host->property_get(nvme::Property::kCsts).value(), 0u);
        EXPECT_FALSE(host->identify_controller().ok()) << "not enabled";
        const nvme::Configuration on{.enable = true, .sq_entry_log2 = 6, .cq_entry_log2 = 4};
        ASSERT_TRUE(host->property_set(nvme::Property::kCc, on.encode()).ok());
        EXPECT_TRUE(eventually([&] { return (*io)->broken(); }));
    }
}

TEST(Association, AQueueIdCanBeConnectedAgainAtOnce) {
    LoopRig rig;
    auto host = rig.connect(rig.host()).value();
    for (int round = 0; round < 20; ++round) {
        const auto io = host->open_io_queue(1, 16);
        ASSERT_TRUE(io.ok()) << "round " << round << ": " << io.error().message;
    }
}

TEST(Association, VendorCommandsNeedTheAdminHost) {
    LoopRig rig;
    auto client = rig.connect(rig.host()).value();
    EXPECT_EQ(client->volume_add(kTerm, sample_record()).error().code, Errc::kPermission);
    EXPECT_EQ(client->map_set(kTerm, rig.map()).error().code, Errc::kPermission);
    EXPECT_EQ(client->volume_list(kTerm).error().code, Errc::kPermission);
    EXPECT_EQ(client->volume_delete(kTerm, kVolume).error().code, Errc::kPermission);
    EXPECT_TRUE(client->keep_alive().ok()) << "the association stands";

    auto admin = rig.connect(rig.host(std::string{kAdminHostNqn})).value();
    ASSERT_TRUE(admin->map_set(kTerm, rig.map()).ok());
    const auto added = admin->volume_add(kTerm, sample_record());
    ASSERT_TRUE(added.ok()) << added.error().message;
    EXPECT_EQ(admin->volume_add(kTerm, sample_record()).error().code, Errc::kExists);
    nvme::VolumeRecord changed = sample_record();
    changed.epoch = 2;
    changed.revision = 2;
    EXPECT_TRUE(admin->volume_chmod(kTerm, changed).ok());
    for (nvme::VolumeId v = 100; v < 300; ++v) {
        const auto name = "volume-" + std::to_string(v);
        ASSERT_TRUE(admin->volume_add(kTerm, sample_record(v, name.c_str())).ok());
    }
    const auto list = admin->volume_list(kTerm).value();
    EXPECT_EQ(list.records.size(), 201u) << "more than one VOLUME LIST carries";
    EXPECT_EQ(list.term, kTerm);
    EXPECT_EQ(list.records.front().epoch, 2u);
    EXPECT_TRUE(admin->volume_delete(kTerm, 150).ok());
    EXPECT_EQ(admin->volume_delete(kTerm, 150).error().code, Errc::kNotFound);
    EXPECT_EQ(admin->volume_delete(kTerm - 1, 151).error().code, Errc::kState) << "an older term";
}

/// A second admin queue, driven by hand: it has commands that are not answered at once.
class ByHand {
  public:
    explicit ByHand(LoopRig& rig) : queue_(HostQueue::create(rig.host_nic(), 16).value()) {
        ConnectRequest request{.queue_id = 0,
                               .sq_size = 15,
                               .attributes = 0,
                               .keep_alive_ms = 0,
                               .host_id = {1, 2, 3, 4},
                               .controller_id = nvme::kAnyController,
                               .subsystem_nqn = rig.target().subsystem_nqn(0),
                               .host_nqn = client_host_nqn(kWriter)};
        const IoQueueConnect connect(request);
        EXPECT_TRUE(queue_->connect("node", "ssd-0", connect.transport_data(), 10000).ok());
        EXPECT_TRUE(connect_queue(*queue_, connect, simt::now_ns() + 100 * kSecond).ok());
    }
    void post(nvme::AdminOpcode opcode, std::uint16_t id, std::uint32_t cdw10 = 0, std::uint32_t cdw11 = 0) {
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(opcode);
        c.flags = nvme::kFlagsSgl;
        c.command_id = id;
        c.cdw10 = cdw10;
        c.cdw11 = cdw11;
        ASSERT_EQ(queue_->post(c), HostQueue::Posted::kYes);
    }
    nvme::Completion next() { return await_response(*queue_, simt::now_ns() + 100 * kSecond).value(); }
    nvme::Completion run(nvme::AdminOpcode opcode, std::uint16_t id, std::uint32_t cdw10 = 0,
                         std::uint32_t cdw11 = 0) {
        post(opcode, id, cdw10, cdw11);
        const nvme::Completion c = next();
        EXPECT_EQ(c.command_id, id);
        return c;
    }
    void enable(bool on, std::uint16_t id = 1) {
        nvme::PropertyCommand set{
            .opcode = 0x7F,
            .flags = nvme::kFlagsSgl,
            .command_id = id,
            .type = 0,
            .reserved5 = {},
            .attributes = 0,
            .reserved41 = {},
            .offset = 0x14,
            .value = nvme::Configuration{.enable = on, .sq_entry_log2 = 6, .cq_entry_log2 = 4}.encode(),
            .reserved56 = {}};
        nvme::Command wire;
        std::memcpy(&wire, &set, sizeof wire);
        ASSERT_EQ(queue_->post(wire), HostQueue::Posted::kYes);
        const nvme::Completion c = next();
        EXPECT_EQ(c.command_id, id);
        EXPECT_EQ(c.result(), Status::kSuccess);
    }

  private:
    std::unique_ptr<HostQueue> queue_;
};

TEST(Association, EventRequestsAreHeldAbortedAndEndWithTheQueue) {
    LoopRig rig;
    auto host = rig.connect(rig.host()).value();
    auto queue = std::make_optional<ByHand>(rig);
    queue->enable(true);
    for (std::uint16_t id = 10; id < 14; ++id) queue->post(nvme::AdminOpcode::kAsyncEventRequest, id);
    queue->post(nvme::AdminOpcode::kAsyncEventRequest, 14);
    EXPECT_EQ(queue->next().command_id, 14) << "four are held, the fifth is refused";
    queue->post(nvme::AdminOpcode::kAbort, 20, 12u << 16);
    std::uint32_t seen = 0;
    for (int i = 0; i < 2; ++i) {
        const auto c = queue->next();
        seen += c.command_id;
        if (c.command_id == 12) {
            EXPECT_EQ(c.result(), Status::kAborted);
        }
        if (c.command_id == 20) {
            EXPECT_EQ(c.dw0, 0u) << "it was aborted";
        }
    }
    EXPECT_EQ(seen, 32u);
    EXPECT_EQ(queue->run(nvme::AdminOpcode::kAbort, 21, 99u << 16).dw0, 1u) << "nothing of that id";
    queue.reset();
    EXPECT_TRUE(eventually([&] { return rig.target().connections_open() == 1; }))
        << "event requests must not delay other commands";
}

TEST(Association, AResetEndsEventRequestsUnansweredAndSetsFeaturesBack) {
    constexpr std::uint32_t kEvents = 0x0B;
    LoopRig rig;
    ByHand queue(rig);
    queue.enable(true);
    // More rounds than the queue has entries, or the device has places: none is lost.
    for (int round = 0; round < 50; ++round) {
        EXPECT_EQ(queue.run(nvme::AdminOpcode::kGetFeatures, 2, kEvents).dw0, 0u) << "as at the beginning";
        EXPECT_EQ(queue.run(nvme::AdminOpcode::kSetFeatures, 3, kEvents, 0x100).result(), Status::kSuccess);
        EXPECT_EQ(queue.run(nvme::AdminOpcode::kGetFeatures, 4, kEvents).dw0, 0x100u);
        for (std::uint16_t id = 50; id < 54; ++id) queue.post(nvme::AdminOpcode::kAsyncEventRequest, id);
        EXPECT_EQ(queue.run(nvme::AdminOpcode::kAsyncEventRequest, 54).result(),
                  Status::kAsyncEventLimitExceeded)
            << "round " << round << ": exactly four event requests must be accepted after a reset";
        queue.enable(false);
        queue.enable(true);
    }
    EXPECT_EQ(queue.run(nvme::AdminOpcode::kAbort, 60, 50u << 16).dw0, 1u) << "the request no longer exists";
    queue.post(nvme::AdminOpcode::kAsyncEventRequest, 50);
    queue.post(nvme::AdminOpcode::kAbort, 61, 50u << 16);
    EXPECT_EQ(queue.next().command_id + queue.next().command_id, 50 + 61) << "the new one can be aborted";
    EXPECT_EQ(rig.counters().malformed, 0u);
}

}  // namespace
}  // namespace gnstor::nvmf
