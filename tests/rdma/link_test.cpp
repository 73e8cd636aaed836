// A modelled link: arithmetic of its directions, and a NIC behind one: nothing lost, nothing out of order,
// nothing held for ever. How long anything takes is asserted of the model alone.
#include "rdma/nic_fixture.hpp"

#include <gnstor/base/hash.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gnstor::rdma::test {

const TestWire kTestWire = TestWire::kLoop;

namespace {

LinkTiming timing_of(double bytes_per_second, std::uint64_t latency_ns) {
    return {{bytes_per_second, latency_ns}, {bytes_per_second, latency_ns}};
}

TEST(LinkModel, AnIdleLinkTakesTransferAndLatency) {
    LinkModel link({{1e9, 700}, {2e9, 300}}, 1'000);
    EXPECT_EQ(link.to_node(5'000, 4096), 5'000u + 4096 + 700);
    EXPECT_EQ(link.from_node(5'000, 4096), 5'000u + 2048 + 300);
    // What is fetched crosses once more in both directions.
    EXPECT_EQ(link.to_node_with_fetch(50'000, 64, 4096), 50'000u + 64 + 4096 + 700 + 300 + 700);
    EXPECT_EQ(link.to_node_with_fetch(80'000, 64, 0), 80'000u + 64 + 700);
}

TEST(LinkModel, ADirectionCarriesItsBandwidthAndKeepsOrder) {
    SplitMix64 random(seed_from_environment(3));
    constexpr double kRate = 23'192'823'398.0;
    LinkModel link(timing_of(kRate, 1'000), 0);
    std::uint64_t bytes = 0, before = 0, now = 0;
    for (int i = 0; i < 200'000; ++i) {
        const std::uint64_t size = 16 + random.below(70'000);
        bytes += size;
        const std::uint64_t arrival = link.to_node(now, size);
        ASSERT_GE(arrival, before);
        ASSERT_GE(arrival, now + 1'000);
        before = arrival;
        now += random.below(1'000);  // always behind: there is a backlog
    }
    const double seconds = static_cast<double>(before - 1'000) / 1e9;
    EXPECT_NEAR(static_cast<double>(bytes) / seconds, kRate, kRate * 1e-3);
}

TEST(LinkModel, ThreadsShareADirection) {
    constexpr int kThreads = 4, kMessages = 50'000;
    LinkModel link(timing_of(1e9, 10), 0);
    std::vector<std::vector<std::uint64_t>> arrivals(kThreads);
    {
        std::vector<std::jthread> threads;
        for (auto& mine : arrivals)
            threads.emplace_back([&mine, &link] {
                for (int i = 0; i < kMessages; ++i) mine.push_back(link.from_node(0, 100));
            });
    }
    std::vector<std::uint64_t> all;
    for (const auto& mine : arrivals) {
        EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
        all.insert(all.end(), mine.begin(), mine.end());
    }
    std::sort(all.begin(), all.end());
    // Each message had the link to itself for its 100 ns.
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], (i + 1) * 100 + 10);
    std::printf("GN_COUNT link_messages=%zu\n", all.size());
}

TEST(LinkModel, ImpossibleFiguresAreRefused) {
    EXPECT_TRUE(check(LinkTiming{}).ok());
    EXPECT_TRUE(check(timing_of(1e9, 0)).ok());
    EXPECT_FALSE(check(timing_of(0, 100)).ok());
    EXPECT_FALSE(check(timing_of(-1e9, 100)).ok());
    EXPECT_FALSE(check(timing_of(std::nan(""), 100)).ok());
    EXPECT_FALSE(check(timing_of(1e15, 100)).ok());
    EXPECT_FALSE(check(timing_of(1e9, 2'000'000'000)).ok());
    EXPECT_FALSE(check(LinkTiming{{1e9, 100}, {}}).ok()) << "a direction without bandwidth";
}

/// Answers each message with its own first four bytes, thirty-two together at most.
struct EchoSink : MessageSink {
    void on_message(const InboundMessage& message) override {
        std::uint32_t response[4] = {0, 0, 0, 0};
        std::memcpy(&response[3], message.segments[0].data, 4);
        nic->send(message.qp, response, sizeof response, 0, 4096);
        nic->release(message.qp, message.token);
        ++messages;
    }
    void on_error(QpNumber) override { ++errors; }
    std::uint32_t fetch_bytes(const InboundMessage& message) const override {
        return message.bytes % 2 * 4096;
    }
    SoftNic* nic = nullptr;
    std::atomic<std::uint32_t> messages{0}, errors{0};
};

class TimedNicTest : public NicTest {
  protected:
    void SetUp() override {
        NicTest::SetUp();
        Reactor* const rb[] = {reactor_b.get()};
        NicOptions options;
        options.strict = true;
        options.link = timing_of(1e9, 20'000);
        timed = must(SoftNic::open(wire, "node-timed", options, rb));
    }
    void TearDown() override {
        ends.clear();
        timed.reset();
        NicTest::TearDown();
    }
    std::unique_ptr<SoftNic> timed;
};

TEST_F(TimedNicTest, EveryMessageArrivesOnceAndAnswersKeepTheirOrder) {
    EchoSink sink;
    sink.nic = timed.get();
    const QpNumber offload = must(timed->create_offload_queue_pair(sink));
    End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
    join(*a, x.qpn, *timed, offload);
    constexpr std::uint32_t kMessages = 2'000;
    std::uint32_t sent = 0, got = 0;
    const bool done = eventually([&] {
        if (sent < kMessages && sent - got < 2) {
            SendTicket t = x.send.try_reserve();
            std::memcpy(x.payload.data() + 64 * (sent % 8), &sent, 4);
            x.send.fill_send(t, x.data(64 * (sent % 8), 64));
            x.send.publish(t);
            x.send.ring_bell();
            ++sent;
        }
        for (const Received& r : reap(*cq_a, {&x.receive, 1})) {
            EXPECT_EQ(r.dw3, got);
            ++got;
        }
        (void)x.send.refresh_completed();
        return got == kMessages;
    });
    EXPECT_TRUE(done) << got << " of " << sent;
    EXPECT_EQ(sink.messages.load(), kMessages);
    EXPECT_EQ(a->counters().strict_violations, 0u);
    must(timed->destroy_queue_pair(offload));
    std::printf("GN_COUNT link_echoes=%u\n", got);
}

TEST_F(TimedNicTest, AConnectionThatEndsReleasesItsTransfersInFlight) {
    for (std::uint32_t round = 0; round < 20; ++round) {
        EchoSink sink;
        sink.nic = timed.get();
        const QpNumber offload = must(timed->create_offload_queue_pair(sink));
        End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
        join(*a, x.qpn, *timed, offload);
        for (std::uint32_t i = 0; i < 4; ++i) {
            SendTicket t = x.send.try_reserve();
            x.send.fill_send(t, x.data(64 * i, 64));
            x.send.publish(t);
            x.send.ring_bell();
        }
        if (round % 2 == 0) {
            must(timed->destroy_queue_pair(offload));
            must(a->reset_queue_pair(x.qpn));
        } else {
            must(a->reset_queue_pair(x.qpn));
            must(timed->destroy_queue_pair(offload));
        }
        EXPECT_EQ(sink.errors.load(), 1u);
        EXPECT_LE(sink.messages.load(), 4u);
        ends.clear();  // its memory can be given back: nothing holds it
    }
}

}  // namespace
}  // namespace gnstor::rdma::test
