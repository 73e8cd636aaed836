// Thousands of random requests both ways over several connections at once, on a good network and on one that
// loses packets; peers that die, fail, and hang up in the middle of it.
#include <algorithm>
#include <atomic>
#include <thread>

#include "rdma/udp/rig.hpp"
#include "support/count.hpp"

namespace gnstor::rdma::udp {
namespace {

using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;
using roce::RequestKind;

constexpr std::uint32_t kDepth = 32;
constexpr std::uint32_t kLongest = 48 * 1024;
// Of each memory: what the peer reads and nobody writes, then what it writes.
constexpr std::uint64_t kWriteAt = 512 * 1024;

/// Keeps one end of a connection busy from a thread of its own, and knows what must come of it.
class Worker {
  public:
    Worker(FakeEndpoint& own, FakeEndpoint& other, std::uint64_t seed)
        : own_(own), other_(other), dice_(seed) {
        other.reactor.run([&] {
            expected_ = other.memory;
            other.on_message = [this](std::span<const std::byte> what) {
                wrong_messages_ += rig::holds(what, message_seed(arrived_)) ? 0 : 1;
                ++arrived_;
            };
        });
        for (auto& buffer : buffers_) buffer.resize(kLongest);
    }

    void run(std::uint32_t requests) {
        for (std::uint32_t i = 0; i < requests; ++i) {
            const std::uint64_t id = ++posted_;
            // The buffer of this id is free when the request that had it has completed.
            if (id > kDepth) take(id - kDepth);
            auto& buffer = buffers_[id % kDepth];
            const auto size = static_cast<std::uint32_t>(dice_.below(i % 4 == 0 ? kLongest : 300));
            const std::span<std::byte> bytes = std::span(buffer).first(size);
            Sent& sent = sent_[id % kDepth];
            sent = {RequestKind::kSend, 0, size};
            const std::uint64_t kind = dice_.below(4);
            if (kind == 0) {
                rig::fill(bytes, message_seed(messages_++));
                post(rig::request(dice_.below(2) == 0 ? RequestKind::kSend : RequestKind::kSendInvalidate, id,
                                  bytes));
            } else if (kind == 1) {
                sent = {RequestKind::kRead, dice_.below(kWriteAt - size), size};
                post(rig::request(RequestKind::kRead, id, bytes, sent.address, rig::kReadOnlyKey));
            } else {
                sent = {RequestKind::kWrite, kWriteAt + dice_.below(expected_.size() - kWriteAt - size),
                        size};
                rig::fill(bytes, id * 31 + 7);
                std::copy(bytes.begin(), bytes.end(),
                          expected_.begin() + static_cast<std::ptrdiff_t>(sent.address));
                post(rig::request(RequestKind::kWrite, id, bytes, sent.address));
            }
            if (::testing::Test::HasFatalFailure()) return;
        }
        take(posted_);
    }

    void check() {
        EXPECT_TRUE(own_.bad.empty());
        EXPECT_FALSE(own_.out_of_order);
        EXPECT_EQ(wrong_reads_, 0u);
        other_.reactor.run([&] {
            EXPECT_EQ(arrived_, messages_);
            EXPECT_EQ(wrong_messages_, 0u);
            EXPECT_TRUE(expected_ == other_.memory);
            other_.on_message = nullptr;
        });
        EXPECT_GT(reads_, 0u);
    }
    [[nodiscard]] std::uint64_t done() const { return posted_; }

  private:
    struct Sent {
        RequestKind kind = RequestKind::kSend;
        std::uint64_t address = 0;
        std::uint32_t bytes = 0;
    };
    static std::uint64_t message_seed(std::uint64_t number) { return 0x5EED00 + number; }

    void post(roce::Request request) {
        request.invalidate_rkey = rig::kKey;
        const auto posted = own_.post(request);
        ASSERT_TRUE(posted.ok()) << posted.error().message;
    }
    /// Waits for all up to `id`; looks at what was read.
    void take(std::uint64_t id) {
        ASSERT_TRUE(own_.await_completions(id)) << "request " << id << " did not complete";
        for (; taken_ < id; ++taken_) {
            const Sent& sent = sent_[(taken_ + 1) % kDepth];
            if (sent.kind != RequestKind::kRead) continue;
            ++reads_;
            const auto& buffer = buffers_[(taken_ + 1) % kDepth];
            if (!std::equal(buffer.begin(), buffer.begin() + sent.bytes,
                            expected_.begin() + static_cast<std::ptrdiff_t>(sent.address)))
                ++wrong_reads_;
        }
    }

    FakeEndpoint &own_, &other_;
    SplitMix64 dice_;
    std::vector<std::byte> expected_;  ///< the other's memory; what is read of it nobody writes
    std::array<std::vector<std::byte>, kDepth> buffers_;
    std::array<Sent, kDepth> sent_{};
    std::uint64_t posted_ = 0, taken_ = 0, messages_ = 0, reads_ = 0, wrong_reads_ = 0;
    std::uint64_t arrived_ = 0, wrong_messages_ = 0;  // the other's reactor
};

/// Loses, seeded, so many of a thousand packets.
class LossyTap final : public Tap {
  public:
    LossyTap(std::uint64_t seed, std::uint32_t per_mille) : dice_(seed), per_mille_(per_mille) {}
    bool on_packet(bool, const roce::NetworkHeaders&, std::span<const std::byte>) override {
        if (dice_.below(1000) >= per_mille_) return true;
        ++lost;
        return false;
    }
    std::uint64_t lost = 0;

  private:
    SplitMix64 dice_;
    const std::uint32_t per_mille_;
};

struct Rate {
    std::uint32_t mtu, per_mille, requests;
};

class Random : public ::testing::TestWithParam<Rate> {};

TEST_P(Random, RequestsOverSeveralConnectionsBothWaysAllArriveOnceAndInOrder) {
    const Rate rate = GetParam();
    Pair pair(rate.mtu, rate.mtu);
    LossyTap left_tap(1, rate.per_mille), right_tap(2, rate.per_mille);
    pair.left.driver->set_tap(&left_tap);
    pair.right.driver->set_tap(&right_tap);
    FakeAcceptor acceptor(*pair.right.reactor);
    acceptor.receives = kDepth * 2;
    acceptor.receive_bytes = kLongest;
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    constexpr std::size_t kConnections = 3;
    std::vector<std::unique_ptr<FakeEndpoint>> left;
    std::vector<std::unique_ptr<Worker>> workers;
    for (std::size_t i = 0; i < kConnections; ++i) {
        left.push_back(std::make_unique<FakeEndpoint>(*pair.left.reactor, 1 << 20, 3));
        left[i]->post_receives(kDepth * 2, kLongest);
        const auto connected =
            pair.connect(*left[i], static_cast<QpNumber>(7 + i), {.depth = kDepth, .reads_max = 4});
        ASSERT_TRUE(connected.ok()) << connected.error().message;
        // Its link is up when the RTU, or what comes next, has arrived: with loss only then.
        FakeEndpoint* right = nullptr;
        {
            const std::lock_guard lock(acceptor.mutex);
            right = acceptor.endpoints[i].get();
        }
        workers.push_back(std::make_unique<Worker>(*left[i], *right, 100 + i));
    }
    std::vector<std::thread> threads;
    for (auto& worker : workers) threads.emplace_back([&] { worker->run(rate.requests); });
    std::vector<std::unique_ptr<Worker>> answers;
    for (std::size_t i = 0; i < kConnections; ++i) {
        FakeEndpoint* const right = acceptor.await_link(i);
        ASSERT_NE(right, nullptr);
    }
    for (std::size_t i = 0; i < kConnections; ++i) {
        answers.push_back(std::make_unique<Worker>(*acceptor.endpoints[i], *left[i], 200 + i));
        threads.emplace_back([&, worker = answers.back().get()] { worker->run(rate.requests); });
    }
    for (std::thread& thread : threads) thread.join();
    std::uint64_t done = 0;
    for (auto& worker : workers) {
        worker->check();
        done += worker->done();
    }
    for (auto& worker : answers) {
        worker->check();
        done += worker->done();
    }
    pair.left.driver->set_tap(nullptr);
    pair.right.driver->set_tap(nullptr);
    for (auto& endpoint : left) endpoint->close();
    pair.right.driver->unlisten(4420);
    const UdpWireCounters counters = pair.left.driver->counters(), other = pair.right.driver->counters();
    if (rate.per_mille > 0) {
        EXPECT_GT(counters.retransmissions + other.retransmissions, 0u);
    }
    EXPECT_EQ(counters.receive_overruns + other.receive_overruns, 0u) << "lost by our own overrun";
    EXPECT_EQ(counters.bad_icrc + other.bad_icrc, 0u);
    test::count("udp_random_requests", done);
    test::count("udp_random_lost", left_tap.lost + right_tap.lost);
}
INSTANTIATE_TEST_SUITE_P(Networks, Random,
                         ::testing::Values(Rate{1024, 0, 3000}, Rate{4096, 0, 3000}, Rate{1024, 10, 800},
                                           Rate{4096, 50, 300}));

// As a process without privileges has it on a stock Linux: 208 KiB asked for, 416 KiB by the kernel's
// measure.
void move_through_a_small_receive_buffer(std::uint64_t& overruns) {
    Pair pair(4096, 4096);
    const auto reopen = [](rig::Node& node, UdpWireOptions& options) {
        options.receive_buffer_bytes = 212'992;
        node.driver.reset();
        node.driver = std::move(Driver::open(options, *node.reactor)).value();
    };
    reopen(pair.left, pair.left_options);
    reopen(pair.right, pair.right_options);
    FakeAcceptor acceptor(*pair.right.reactor);
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    constexpr std::size_t kConnections = 16;
    constexpr std::uint64_t kRequests = 12;
    std::vector<std::unique_ptr<FakeEndpoint>> left;
    std::vector<std::byte> out(600'000), in(600'000);
    rig::fill(out, 4);
    for (std::size_t i = 0; i < kConnections; ++i) {
        left.push_back(std::make_unique<FakeEndpoint>(*pair.left.reactor, 1 << 20, 3));
        const auto connected = pair.connect(*left[i], static_cast<QpNumber>(7 + i));
        ASSERT_TRUE(connected.ok()) << connected.error().message;
        ASSERT_NE(acceptor.await_link(i), nullptr);
    }
    for (std::uint64_t id = 1; id <= kRequests; ++id) {
        for (auto& one : left) {
            const bool write = id % 2 == 0;
            ASSERT_TRUE(one->post(rig::request(write ? RequestKind::kWrite : RequestKind::kRead, id,
                                               write ? std::span(out) : std::span(in), 0))
                            .ok());
        }
    }
    for (auto& one : left) {
        ASSERT_TRUE(one->await_completions(kRequests));
        EXPECT_TRUE(one->bad.empty());
        one->close();
    }
    pair.right.driver->unlisten(4420);
    for (const auto& one : acceptor.endpoints)
        EXPECT_TRUE(rig::holds(std::span(one->memory).first(out.size()), 4));
    const UdpWireCounters counters = pair.left.driver->counters(), other = pair.right.driver->counters();
    overruns = counters.receive_overruns + other.receive_overruns;
    test::count("udp_paced_packets", counters.packets_sent + other.packets_sent);
}

// A receiver that a busy machine does not let run for the length of a timeout gets what was sent twice.
// Without pacing no round of these would be free of overruns.
TEST(Pacing, ManyConnectionsDoNotOverrunASmallReceiveBuffer) {
    std::uint64_t overruns = 1;
    for (std::uint32_t round = 0; round < 5 && overruns > 0 && !HasFatalFailure(); ++round)
        move_through_a_small_receive_buffer(overruns);
    EXPECT_EQ(overruns, 0u);
}

TEST(Death, APeerThatVanishesIsDetectedByEveryoneWithPendingRequests) {
    Pair pair;
    FakeAcceptor acceptor(*pair.right.reactor);
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    FakeEndpoint busy(*pair.left.reactor), idle(*pair.left.reactor);
    ASSERT_TRUE(pair.connect(busy, 7).ok());
    ASSERT_TRUE(pair.connect(idle, 8).ok());
    ASSERT_NE(acceptor.await_link(1), nullptr);
    // Without a word: as kill -9 does it.
    pair.right.driver.reset();
    for (const auto& endpoint : acceptor.endpoints) endpoint->forget_link();
    std::vector<std::byte> bytes(100'000);
    for (std::uint64_t id = 1; id <= 5; ++id)
        ASSERT_TRUE(busy.post(rig::request(RequestKind::kWrite, id, bytes, 0)).ok());
    ASSERT_TRUE(busy.await([&] { return busy.failed.has_value(); }));
    EXPECT_EQ(*busy.failed, mlx5::kTransportRetryExceeded);
    ASSERT_EQ(busy.bad.size(), 5u) << "all requests ended before the end was told";
    EXPECT_EQ(busy.bad[0].status, mlx5::kTransportRetryExceeded);
    EXPECT_EQ(busy.bad[4].status, mlx5::kFlushed);
    EXPECT_FALSE(busy.called_after_end);
    EXPECT_TRUE(idle.await([&] { return idle.failed.has_value(); }))
        << "a failure detected on one connection must end all connections to that peer";
    EXPECT_FALSE(busy.post(rig::request(RequestKind::kWrite, 6, bytes, 0)).ok());
    idle.close();
}

TEST(Death, ADriverThatIsClosedRightAfterItsLinksTellsTheirPeers) {
    for (std::uint32_t round = 0; round < 20; ++round) {
        Pair pair;
        FakeAcceptor acceptor(*pair.right.reactor);
        ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
        FakeEndpoint endpoint(*pair.left.reactor, 64);
        ASSERT_TRUE(pair.connect(endpoint, 7).ok());
        FakeEndpoint* const other = acceptor.await_link(0);
        ASSERT_NE(other, nullptr);
        endpoint.close();
        pair.left.driver.reset();
        EXPECT_TRUE(other->await([&] { return other->failed.has_value(); }));
        pair.right.driver->unlisten(4420);
    }
}

TEST(Death, ARestartedPeerEndsItsOldConnectionsWhenItConnectsAgain) {
    Pair pair;
    FakeAcceptor acceptor(*pair.right.reactor);
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    FakeEndpoint first(*pair.left.reactor);
    ASSERT_TRUE(pair.connect(first, 7).ok());
    FakeEndpoint* const accepted = acceptor.await_link(0);
    ASSERT_NE(accepted, nullptr);
    pair.left.driver.reset();
    first.forget_link();
    pair.left.driver = std::move(Driver::open(pair.left_options, *pair.left.reactor)).value();
    FakeEndpoint second(*pair.left.reactor);
    ASSERT_TRUE(pair.connect(second, 7).ok());
    EXPECT_TRUE(accepted->await([&] { return accepted->failed.has_value(); }));
    FakeEndpoint* const again = acceptor.await_link(1);
    ASSERT_NE(again, nullptr);
    std::vector<std::byte> bytes(5000);
    ASSERT_TRUE(second.post(rig::request(RequestKind::kWrite, 1, bytes, 0)).ok());
    ASSERT_TRUE(second.await_completions(1));
    EXPECT_TRUE(second.bad.empty());
    second.close();
    pair.right.driver->unlisten(4420);
}

TEST(Death, AWrongKeyEndsTheConnectionOnBothSidesWithItsReason) {
    Pair pair;
    FakeAcceptor acceptor(*pair.right.reactor);
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    FakeEndpoint endpoint(*pair.left.reactor), bystander(*pair.left.reactor);
    ASSERT_TRUE(pair.connect(endpoint, 7).ok());
    ASSERT_TRUE(pair.connect(bystander, 8).ok());
    FakeEndpoint* const other = acceptor.await_link(0);
    ASSERT_NE(acceptor.await_link(1), nullptr);
    std::vector<std::byte> bytes(9000);
    ASSERT_TRUE(endpoint.post(rig::request(RequestKind::kWrite, 1, bytes, 0, rig::kReadOnlyKey)).ok());
    ASSERT_TRUE(endpoint.await([&] { return endpoint.failed.has_value(); }));
    EXPECT_EQ(*endpoint.failed, mlx5::kRemoteAccessError);
    ASSERT_EQ(endpoint.bad.size(), 1u);
    EXPECT_EQ(endpoint.bad[0].status, mlx5::kRemoteAccessError);
    ASSERT_TRUE(other->await([&] { return other->failed.has_value(); }));
    EXPECT_EQ(*other->failed, mlx5::kLocalAccessError);
    ASSERT_TRUE(bystander.post(rig::request(RequestKind::kWrite, 1, bytes, 0)).ok());
    ASSERT_TRUE(bystander.await_completions(1));
    EXPECT_TRUE(bystander.bad.empty());
    // Its number can be used at once.
    FakeEndpoint again(*pair.left.reactor);
    const auto connected = pair.connect(again, 7);
    EXPECT_TRUE(connected.ok()) << connected.error().message;
    again.close();
    bystander.close();
    pair.right.driver->unlisten(4420);
}

TEST(Death, ClosingDuringTrafficMakesNoCallbackAfterwards) {
    Pair pair;
    FakeAcceptor acceptor(*pair.right.reactor);
    acceptor.receives = 64;
    acceptor.receive_bytes = 4096;
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    for (std::uint32_t round = 0; round < 60; ++round) {
        FakeEndpoint endpoint(*pair.left.reactor);
        ASSERT_TRUE(pair.connect(endpoint, 7).ok());
        FakeEndpoint* const other = acceptor.await_link(round);
        ASSERT_NE(other, nullptr);
        std::vector<std::byte> bytes(200'000), more(200'000);
        for (std::uint64_t id = 1; id <= 3; ++id) {
            ASSERT_TRUE(endpoint.post(rig::request(RequestKind::kWrite, id, bytes, 0)).ok());
            ASSERT_TRUE(other->post(rig::request(RequestKind::kRead, id, more, 0)).ok());
        }
        if (round % 3 == 0) {
            ASSERT_TRUE(endpoint.await_completions(1));
        }
        (round % 2 == 0 ? &endpoint : other)->close();
        FakeEndpoint* const hears = round % 2 == 0 ? other : &endpoint;
        ASSERT_TRUE(hears->await([&] { return hears->failed.has_value(); }));
        EXPECT_FALSE(endpoint.called_after_end);
        EXPECT_FALSE(other->called_after_end);
    }
    pair.right.driver->unlisten(4420);
}

}  // namespace
}  // namespace gnstor::rdma::udp
