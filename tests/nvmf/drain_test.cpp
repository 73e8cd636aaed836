// drain_test.cpp: a connection of the target alone, behind a sink that watches what the NIC tells it: nothing
// after it said that it is quiesced.
#include "nvmf/loop_rig.hpp"
#include "nvmf/target/connection.hpp"
#include "support/count.hpp"

namespace gnstor::nvmf::drain_test {

using nvme::Status;

constexpr std::uint32_t kEntries = 16;

/// Listens, makes one connection, and stands between the NIC and it.
class WatchedConnection final : public rdma::Listener, public rdma::MessageSink, public ConnectionOwner {
  public:
    explicit WatchedConnection(rdma::SoftNic& nic) : nic_(nic) {}
    ~WatchedConnection() override {
        nic_.unlisten("watched");
        if (connection_ == nullptr) return;
        connection_->shard().remove(*connection_);
        EXPECT_TRUE(nic_.destroy_queue_pair(connection_->qp()).ok());
        shard_.reset();
    }
    WatchedConnection(const WatchedConnection&) = delete;
    WatchedConnection& operator=(const WatchedConnection&) = delete;

    rdma::ConnectReply on_connect(const rdma::ConnectRequest& request) override {
        const auto verdict = check_transport_request(request.private_data, QueueLimits{});
        connection_ = std::make_unique<TargetConnection>(nic_, nullptr, *this, verdict.request,
                                                         [] { return simt::now_ns(); });
        const auto qp = nic_.create_offload_queue_pair(*this, request.affinity).value();
        shard_ = std::make_unique<OffloadShard>(nic_.owner(qp));
        connection_->attach(qp, *shard_);
        return {.accept = true,
                .reject_reason = 0,
                .private_data = transport_accept_data(kEntries),
                .qp = qp,
                .messages = kEntries,
                .message_bytes = kCapsuleBytesMax};
    }

    void on_message(const rdma::InboundMessage& message) override {
        connection_->on_message(message);
        ++messages;
    }
    void on_window_ready(rdma::QpNumber qp, std::uint64_t cookie, bool good) override {
        if (quiesced) ++too_late;
        connection_->on_window_ready(qp, cookie, good);
        ++windows;
    }
    void on_window_freed(rdma::QpNumber qp, std::uint32_t room) override {
        connection_->on_window_freed(qp, room);
    }
    void on_error(rdma::QpNumber qp) override { connection_->on_error(qp); }
    std::uint32_t fetch_bytes(const rdma::InboundMessage& message) const override {
        return connection_->fetch_bytes(message);
    }

    void on_connect_command(TargetConnection& connection) override {  // its data came before the end
        connection.answer_connect({Status::kConnectControllerBusy, 0, {}}, nullptr, nullptr);
    }
    void on_control_command(TargetConnection&) override {}
    void on_controller_disabled(Subsystem&, std::uint16_t) override {}
    void on_shutdown(Subsystem&, std::uint16_t, std::uint32_t) override {}
    void add_counters(const Subsystem&, nvme::SsdCountersLog&) override {}
    void on_draining(TargetConnection&) override { draining = true; }
    void on_quiesced(TargetConnection&) override { quiesced = true; }

    [[nodiscard]] TargetConnection& connection() { return *connection_; }
    std::atomic<std::uint32_t> messages{0}, windows{0}, too_late{0};
    std::atomic<bool> draining{false}, quiesced{false};

  private:
    rdma::SoftNic& nic_;
    std::unique_ptr<OffloadShard> shard_;
    std::unique_ptr<TargetConnection> connection_;
};

/// One round: a Connect whose data is still being fetched when the connection ends.
void end_while_fetching(LoopRig& rig, const IoQueueConnect& connect, Buffer& data, bool by_peer,
                        std::uint64_t& waited) {
    WatchedConnection watched(rig.node_nic());
    ASSERT_TRUE(rig.node_nic().listen("watched", watched).ok());
    auto queue = HostQueue::create(rig.host_nic(), kEntries).value();
    const auto accepted =
        queue->connect(rig.node_nic().address(), "watched", transport_request_data(1, kEntries, 1), 100'000);
    ASSERT_TRUE(accepted.ok()) << accepted.error().message;
    const auto sgl = data.sgl(0, sizeof(nvme::ConnectData));
    ASSERT_EQ(queue->post(connect.command_keyed(1, sgl.address, sgl.key())), HostQueue::Posted::kYes);
    ASSERT_TRUE(eventually([&] { return watched.messages == 1; }));
    if (by_peer)
        queue.reset();
    else
        watched.connection().request_fail();
    ASSERT_TRUE(eventually([&] { return watched.draining.load(); }));
    waited += watched.windows == 0 ? 1 : 0;
    ASSERT_TRUE(eventually([&] { return watched.quiesced.load(); }));
    ASSERT_TRUE(eventually([&] { return watched.windows == 1; }))
        << "a window was opened whose end is not reported";
    EXPECT_EQ(watched.too_late, 0u) << "a window callback ran after the connection was quiesced";
}

TEST(Drain, NoWindowCallbackRunsAfterAConnectionIsQuiesced) {
    LoopRig rig({.late_windows = 200'000, .target = {}});
    auto host = rig.connect(rig.host()).value();
    const IoQueueConnect connect = host->io_queue(1, kEntries);
    Buffer data(rig.host_nic(), 4096);
    const nvme::ConnectData record = connect.data();
    std::memcpy(data.data(), &record, sizeof record);
    std::uint64_t waited = 0;
    // On a busy machine a window may be there before the connection ends.
    for (int round = 0; (round < 20 || (waited == 0 && round < 1000)) && !::testing::Test::HasFailure();
         ++round)
        end_while_fetching(rig, connect, data, round % 2 != 0, waited);
    test::count("nvmf_drains_that_waited_for_a_window", waited);
    EXPECT_GT(waited, 0u);
}

}  // namespace gnstor::nvmf::drain_test
