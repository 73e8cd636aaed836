// shutdown_flush_test.cpp: a device that hangs is asked for one flush at a time, however hosts shut their
// controllers down meanwhile; and who shut down while it hung is shut down by a flush that began later.
#include "loop_rig.hpp"
#include "nvmf/target/shutdown_flushes.hpp"
#include "support/count.hpp"

#include <mutex>

namespace gnstor::nvmf::shutdown_flush_test {

using nvme::Status;

/// Has queues, answers nothing, and ends flushes when it is told to.
/// Answers whatever it is sent, and no flush.
class HangingDevice final : public ssd::NvmeDevice, public Poller {
  public:
    explicit HangingDevice(Reactor& reactor) : reactor_(reactor) { reactor_.add(*this); }
    ~HangingDevice() override { reactor_.remove(*this); }
    std::uint32_t poll() override {
        const std::lock_guard lock(mutex_);
        std::uint32_t work = 0;
        for (const auto& queue : queues_) {
            for (nvme::Command command; queue->fetch(command); ++work) {
                nvme::Completion done{};
                done.command_id = command.command_id;
                queue->complete(done);
            }
        }
        return work;
    }
    Result<ssd::NvmeQueue*> create_queue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client,
                                         ssd::Priority priority, bool privileged, std::uint16_t) override {
        const std::lock_guard lock(mutex_);
        queues_.push_back(std::make_unique<ssd::NvmeQueue>(id, depth, client, priority, privileged));
        return queues_.back().get();
    }
    Result<void> delete_queue(ssd::NvmeQueue*) override { return {}; }
    void flush(std::function<void(bool)> done) override {
        const std::lock_guard lock(mutex_);
        flushes_.push_back(std::move(done));
    }
    [[nodiscard]] const std::array<std::uint8_t, 16>& uuid() const override { return uuid_; }
    [[nodiscard]] const std::string& serial() const override { return serial_; }
    [[nodiscard]] bool is_timed() const override { return false; }
    [[nodiscard]] ssd::Dialect dialect() const override { return ssd::Dialect::kArray; }

    [[nodiscard]] std::size_t flushes() const {
        const std::lock_guard lock(mutex_);
        return flushes_.size();
    }
    void end_flush(std::size_t which, bool stable) {
        std::function<void(bool)> done;
        {
            const std::lock_guard lock(mutex_);
            done = flushes_[which];
        }
        done(stable);
    }

  private:
    Reactor& reactor_;
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<ssd::NvmeQueue>> queues_;
    std::vector<std::function<void(bool)>> flushes_;
    const std::array<std::uint8_t, 16> uuid_{7};
    const std::string serial_ = "HANGS";
};

/// An admin queue driven by hand: of its commands the device sees a reset alone.
class ByHand {
  public:
    ByHand(rdma::SoftNic& nic, const std::string& subsystem) : queue_(HostQueue::create(nic, 16).value()) {
        ConnectRequest request;
        request.sq_size = 15;
        request.host_id = {5};
        request.controller_id = nvme::kAnyController;
        request.subsystem_nqn = subsystem;
        request.host_nqn = client_host_nqn(kWriter);
        const IoQueueConnect connect(request);
        (void)queue_->connect("node", "hangs", connect.transport_data(), 100'000).value();
        connect_queue(*queue_, connect, simt::now_ns() + 100 * kSecond).value();
    }
    void configure(bool enable, std::uint8_t shutdown) {
        nvme::Configuration c{.enable = enable, .sq_entry_log2 = 6, .cq_entry_log2 = 4};
        c.shutdown = shutdown;
        run(0x00, 0x14, 0, c.encode());
    }
    [[nodiscard]] nvme::ControllerStatus status() {
        return nvme::ControllerStatus::decode(run(0x04, 0x1C, 0, 0));
    }

  private:
    std::uint32_t run(std::uint32_t type, std::uint32_t offset, std::uint32_t attributes,
                      std::uint32_t value) {
        nvme::Command c{};
        c.opcode = 0x7F;
        c.flags = nvme::kFlagsSgl;
        c.command_id = next_id_++;
        c.namespace_id = type;  // FCTYPE
        c.cdw10 = attributes;
        c.cdw11 = offset;
        c.cdw12 = value;
        EXPECT_TRUE(eventually([&] { return queue_->post(c) == HostQueue::Posted::kYes; }, 100));
        const auto response = await_response(*queue_, simt::now_ns() + 100 * kSecond);
        EXPECT_TRUE(response.ok());
        if (!response.ok()) return 0;
        EXPECT_EQ(response->result(), Status::kSuccess);
        return response->dw0;
    }
    std::unique_ptr<HostQueue> queue_;
    std::uint16_t next_id_ = 1;
};

TEST(ShutdownFlush, ADeviceThatHangsIsAskedOnceHoweverOftenControllersAreShutDown) {
    auto reactor = Reactor::start("node").value();
    Reactor* const reactors[] = {reactor.get()};
    rdma::LoopWire wire;
    auto node = rdma::SoftNic::open(wire, "node", {}, reactors).value();
    auto host = rdma::SoftNic::open(wire, "host", {}, reactors).value();
    HangingDevice device(*reactor);
    const SubsystemConfig subsystems[] = {
        {.device = &device, .nqn = "", .service = "hangs", .drive_reactor = reactor.get()}};
    TargetOptions options;
    options.connect_timeout_ms = 100'000;
    auto target = Target::open(*node, subsystems, options).value();
    const std::string nqn = target->subsystem_nqn(0);
    // The target's control thread has done all that it was told before a Connect that is answered.
    const auto settle = [&] { const ByHand later(*host, nqn); };

    constexpr int kRounds = 100;
    ByHand toggled(*host, nqn);
    for (int i = 0; i < kRounds; ++i) {
        toggled.configure(true, 0);
        toggled.configure(true, 1);
        EXPECT_EQ(toggled.status().shutdown, 1) << "occurring";
        toggled.configure(false, 0);
        ByHand comes_and_goes(*host, nqn);
        comes_and_goes.configure(true, 0);
        comes_and_goes.configure(true, 1);
    }
    toggled.configure(true, 0);
    toggled.configure(true, 1);
    settle();
    EXPECT_EQ(device.flushes(), 1u) << "of " << 2 * kRounds + 1 << " shutdowns";

    // The first says nothing of what was answered since it began: one more is for all who came meanwhile.
    device.end_flush(0, true);
    EXPECT_EQ(toggled.status().shutdown, 1) << "occurring";
    ASSERT_TRUE(eventually([&] { return device.flushes() == 2; }, 100));
    settle();
    EXPECT_EQ(device.flushes(), 2u);
    device.end_flush(1, true);
    EXPECT_EQ(toggled.status().shutdown, 2) << "complete";

    // What hangs when the target goes may end later.
    toggled.configure(false, 0);
    toggled.configure(true, 0);
    toggled.configure(true, 1);
    ASSERT_TRUE(eventually([&] { return device.flushes() == 3; }, 100));
    target.reset();
    device.end_flush(2, false);
    test::count("nvmf_shutdowns_of_a_device_that_hangs", 2 * kRounds + 2);
}

TEST(ShutdownFlush, ADisconnectedHostIsNotWaitedFor) {
    ShutdownFlushes flushes;
    EXPECT_TRUE(flushes.begin().empty());
    flushes.want(1, 1);
    EXPECT_EQ(flushes.begin(), (ShutdownFlushes::Wanted{{1, 1}}));
    flushes.want(1, 2);
    flushes.want(2, 1);
    flushes.want(1, 3);
    EXPECT_TRUE(flushes.begin().empty()) << "one is under way";
    flushes.forget(2);
    flushes.ended();
    EXPECT_EQ(flushes.begin(), (ShutdownFlushes::Wanted{{1, 3}}));
    flushes.ended();
    EXPECT_TRUE(flushes.begin().empty());
}

}  // namespace gnstor::nvmf::shutdown_flush_test
