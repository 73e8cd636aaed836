// host_queue_test.cpp: a host queue that is closed while the peer does not let go of a capsule: what the peer
// reads stays.
#include <gnstor/simt/time.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "nvmf/host/host_queue.hpp"
#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"

namespace gnstor::nvmf {
namespace {

constexpr std::uint64_t kLongNs = 100'000'000'000;

/// Takes connections and keeps every message, over errors too, until the test lets it go.
class Keeper final : public rdma::Listener, public rdma::MessageSink {
  public:
    explicit Keeper(rdma::SoftNic& nic) : nic_(nic) { nic_.listen("keeper", *this).value(); }
    ~Keeper() override {
        nic_.unlisten("keeper");
        if (qp_ != 0) nic_.destroy_queue_pair(qp_).value();
    }
    rdma::ConnectReply on_connect(const rdma::ConnectRequest&) override {
        qp_ = nic_.create_offload_queue_pair(*this).value();
        return {.accept = true, .reject_reason = 0, .private_data = {}, .qp = qp_};
    }
    void on_message(const rdma::InboundMessage& message) override {
        const std::lock_guard lock(mutex_);
        messages_.push_back(message);
        const nvme::Completion answer{};
        if (answer_bytes != 0) nic_.send(message.qp, &answer, answer_bytes);
    }
    void on_error(rdma::QpNumber) override {}

    std::uint32_t answer_bytes = 0;  ///< set before a message comes; 0: it does not answer

    [[nodiscard]] std::size_t count() {
        const std::lock_guard lock(mutex_);
        return messages_.size();
    }
    /// All bytes of message `i`, as they are now.
    [[nodiscard]] std::vector<std::byte> bytes(std::size_t i) {
        const std::lock_guard lock(mutex_);
        std::vector<std::byte> out;
        for (std::uint32_t s = 0; s < messages_[i].segment_count; ++s)
            out.insert(out.end(), messages_[i].segments[s].data,
                       messages_[i].segments[s].data + messages_[i].segments[s].bytes);
        return out;
    }
    void let_go() {
        nic_.owner(qp_).run([this] {
            const std::lock_guard lock(mutex_);
            for (const auto& m : messages_) nic_.release(m.qp, m.token);
        });
    }

  private:
    rdma::SoftNic& nic_;
    rdma::QpNumber qp_ = 0;
    std::mutex mutex_;
    std::vector<rdma::InboundMessage> messages_;
};

TEST(HostQueueClose, KeepsBuffersThatAHangingPeerStillReads) {
    auto reactor = Reactor::start("nic").value();
    Reactor* const reactors[] = {reactor.get()};
    rdma::LoopWire wire;
    const rdma::NicOptions options{.strict = true, .quiesce_timeout_ms = 30};
    auto node = rdma::SoftNic::open(wire, "node", options, reactors).value();
    auto host = rdma::SoftNic::open(wire, "host", options, reactors).value();
    {
        Keeper keeper(*node);
        std::vector<std::vector<std::byte>> sent;
        {
            auto queue = HostQueue::create(*host, 8).value();
            (void)queue->connect("node", "keeper", {}, 100'000).value();
            for (std::uint32_t i = 0; i < 8; ++i) {
                std::vector<std::byte>& message = sent.emplace_back(4096 + 64);
                for (std::size_t b = 0; b < message.size(); ++b)
                    message[b] = static_cast<std::byte>(b * 7 + i);
                ASSERT_EQ(queue->post_bytes(message, 64), HostQueue::Posted::kYes);
            }
            const std::uint64_t until = simt::now_ns() + kLongNs;
            while (keeper.count() < sent.size() && simt::now_ns() < until) std::this_thread::yield();
            ASSERT_EQ(keeper.count(), sent.size());
        }
        // The queue is gone; whoever allocates now must not get what the keeper reads.
        std::vector<std::vector<std::byte>> others;
        for (std::uint32_t i = 0; i < 64; ++i) others.emplace_back(40'000, std::byte{0xEE});
        for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(keeper.bytes(i), sent[i]) << "message " << i;
        keeper.let_go();
    }
    host.reset();
    node.reset();
}

TEST(HostQueueResponses, ShorterThanACompletionBreakTheQueue) {
    auto reactor = Reactor::start("nic").value();
    Reactor* const reactors[] = {reactor.get()};
    rdma::LoopWire wire;
    auto node = rdma::SoftNic::open(wire, "node", {.strict = true}, reactors).value();
    auto host = rdma::SoftNic::open(wire, "host", {.strict = true}, reactors).value();
    for (const std::uint32_t bytes : {1u, 4u, 12u, 14u, 15u, 16u}) {
        Keeper keeper(*node);
        keeper.answer_bytes = bytes;
        auto queue = HostQueue::create(*host, 8).value();
        (void)queue->connect("node", "keeper", {}, 100'000).value();
        ASSERT_EQ(queue->post(nvme::Command{}), HostQueue::Posted::kYes);
        nvme::Completion response{};
        bool answered = false;
        const std::uint64_t until = simt::now_ns() + kLongNs;
        while (!answered && !queue->broken() && simt::now_ns() < until) answered = queue->poll(response);
        EXPECT_EQ(answered, bytes == 16) << bytes << " bytes";
        EXPECT_EQ(queue->broken(), bytes != 16) << bytes << " bytes";
        keeper.let_go();
    }
}

}  // namespace
}  // namespace gnstor::nvmf
