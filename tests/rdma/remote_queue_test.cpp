// remote_queue_test.cpp: what an offload queue pair keeps for a peer that takes nothing of what it is sent.
// The test is the link: nothing that is posted ends until it says so.
#include "rdma/nic/remote_queue.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "support/count.hpp"

namespace gnstor::rdma {
namespace {

constexpr std::uint32_t kMessages = 16;

struct HeldLink final : Link {
    explicit HeldLink(std::uint32_t most) : depth(most) {}
    Result<void> post(const roce::Request& request) override {
        EXPECT_FALSE(full());
        posted.push_back(request);
        return {};
    }
    [[nodiscard]] bool full() const noexcept override { return posted.size() == depth; }
    void close() override { closed = true; }
    const std::uint32_t depth;
    std::deque<roce::Request> posted;
    bool closed = false;
};

struct Sink final : MessageSink {
    void on_message(const InboundMessage&) override {}
    void on_window_freed(QpNumber, std::uint32_t room) override { freed += room; }
    void on_window_ready(QpNumber, std::uint64_t, bool good) override { (good ? filled : broken)++; }
    void on_error(QpNumber) override { ++errors; }
    std::uint64_t freed = 0;
    int filled = 0, broken = 0, errors = 0;
};

class RemoteQueueTest : public ::testing::Test {
  protected:
    void SetUp() override {
        qp.nic = &nic;
        qp.sink = &sink;
        qp.qpn = 0x1002;
        qp.remote = std::make_unique<RemoteQueue>(engine, qp, RemoteQueue::Side::kAccepts, kMessages, 4160);
        link = std::make_unique<HeldLink>(qp.remote->depth());
        qp.remote->start(*link);
    }
    void TearDown() override { qp.remote.reset(); }
    void answer() {
        const std::uint64_t words[2] = {1, 2};
        qp.remote->send(words, sizeof words, 0);
    }
    Window open(WindowUse use, std::uint32_t bytes) {
        Window window{};
        EXPECT_TRUE(qp.remote->open_window(4096, bytes, 7, use, window));
        return window;
    }
    /// The peer has acknowledged the oldest.
    void complete() {
        ASSERT_FALSE(link->posted.empty());
        const roce::Request request = link->posted.front();
        link->posted.pop_front();
        qp.remote->on_completion({request.id, request.kind, mlx5::kSyndromeNone, 0});
    }

    std::unique_ptr<Reactor> reactor = Reactor::start("unused").value();
    NicContext nic;
    NicEngine engine{*reactor};
    Sink sink;
    QueuePair qp;
    std::unique_ptr<HeldLink> link;
};

TEST_F(RemoteQueueTest, APeerThatKeepsReadingWithoutAcknowledgingIsDisconnected) {
    // All that a queue of so many commands may have, and a window of answers whose acknowledgements are lost.
    for (std::uint32_t i = 0; i < kMessages + 64; ++i) answer();
    engine.poll();
    EXPECT_FALSE(qp.in_error());
    for (std::uint32_t i = 0; i < 10'000; ++i) answer();
    EXPECT_EQ(sink.errors, 0) << "not within a call";
    engine.poll();
    EXPECT_TRUE(qp.in_error());
    EXPECT_EQ(sink.errors, 1);
    EXPECT_TRUE(link->closed);
    gnstor::test::count("rdma_answers_not_taken", 10'000);
}

TEST_F(RemoteQueueTest, MemoryOfAcknowledgedAnswersDoesNotAccumulate) {
    for (std::uint32_t i = 0; i < 10'000; ++i) {
        answer();
        complete();
    }
    engine.poll();
    EXPECT_FALSE(qp.in_error());
}

TEST_F(RemoteQueueTest, MemoryOfAWindowIsFreeOnceThePeerHasItsData) {
    const Window answers = open(WindowUse::kWrite, 5000);
    qp.remote->close_window(answers, true);
    EXPECT_EQ(sink.freed, 0u) << "it is still to be sent";
    complete();
    EXPECT_EQ(sink.freed, window_room(5000));
    const Window failed = open(WindowUse::kWrite, 1 << 20);
    qp.remote->close_window(failed, false);
    EXPECT_EQ(sink.freed, window_room(5000) + (1u << 20)) << "there is nothing to be sent";
    EXPECT_EQ(nic.windows.idle_bytes(), window_room(5000) + (1u << 20)) << "kept for the next";
    // Of a READ: when its user has closed it, too.
    const Window fetched = open(WindowUse::kRead, 4096);
    EXPECT_FALSE(fetched.ready);
    complete();
    EXPECT_EQ(sink.filled, 1);
    EXPECT_EQ(sink.freed, window_room(5000) + (1u << 20));
    qp.remote->close_window(fetched, false);
    EXPECT_EQ(sink.freed, window_room(5000) + (1u << 20) + 4096u);
}

TEST_F(RemoteQueueTest, IdleMemoryIsBounded) {
    std::vector<Window> windows;
    for (int i = 0; i < 64; ++i) windows.push_back(open(WindowUse::kWrite, 1 << 20));
    for (const Window& window : windows) qp.remote->close_window(window, false);
    EXPECT_EQ(nic.windows.idle_bytes(), WindowMemory::kIdleBytesMax);
    EXPECT_EQ(sink.freed, std::uint64_t{64} << 20);
}

TEST_F(RemoteQueueTest, TheEndOfAConnectionFreesAllItsUnusedMemory) {
    const Window sent = open(WindowUse::kWrite, 4096);
    qp.remote->close_window(sent, true);
    const Window fetched = open(WindowUse::kRead, 4096);
    const Window held = open(WindowUse::kWrite, 4096);
    engine.fail(qp);
    EXPECT_EQ(sink.broken, 1) << "the one that was being fetched";
    EXPECT_EQ(sink.freed, 4096u) << "the one that was being sent";
    qp.remote->close_window(fetched, false);
    qp.remote->close_window(held, true);
    EXPECT_EQ(sink.freed, 3 * 4096u);
}

}  // namespace
}  // namespace gnstor::rdma
