// udp_nic_test.cpp: software NICs that reach each other by RoCEv2 packets instead of by pointers: what lanes
// and target offloads see is the same. Two NICs, two wires, two reactors of one process, on loopback
// addresses.
#include "rdma/nic_fixture.hpp"
#include "rdma/wire/udp/udp_wire.hpp"

#include <gnstor/base/hash.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

namespace gnstor::rdma::test {

const TestWire kTestWire = TestWire::kUdp;

namespace {

/// One machine: reactor, wire, NIC, receive queue.
struct Machine {
    explicit Machine(const std::string& address, std::uint32_t mtu = 1024, bool strict = true) {
        reactor = must(Reactor::start("m" + address.substr(address.size() - 1)));
        wire = must(UdpWire::open({.address = address, .port = kTestRocePort, .mtu = mtu}, *reactor));
        NicOptions options;
        options.strict = strict;
        options.seed = seed_from_environment(11);
        nic = must(open_udp_nic(*wire, options));
        cq = std::make_unique<ReceiveCq>(*nic, 6);
    }
    ~Machine() {
        cq.reset();
        nic.reset();
        wire.reset();
    }
    std::unique_ptr<Reactor> reactor;
    std::unique_ptr<UdpWire> wire;
    std::unique_ptr<SoftNic> nic;
    std::unique_ptr<ReceiveCq> cq;
};

/// Connects by way of a listener that accepts with queue pair `to`.
void join_udp(Machine& from, QpNumber qp, Machine& to, QpNumber accepting, std::uint32_t messages = 0,
              std::uint32_t message_bytes = 0) {
    Acceptor acceptor;
    acceptor.answer = [&](const ConnectRequest& request) {
        EXPECT_EQ(request.peer, from.nic->address());
        ConnectReply reply;
        reply.accept = true;
        reply.qp = accepting;
        reply.messages = messages;
        reply.message_bytes = message_bytes;
        reply.private_data = {std::byte{1}, std::byte{2}};
        return reply;
    };
    must(to.nic->listen(kService, acceptor));
    const std::byte hello[] = {std::byte{7}};
    const auto answer = must(from.nic->connect(qp, to.nic->address(), kService, hello, 10'000));
    ASSERT_GE(answer.size(), 2u);
    EXPECT_EQ(answer[1], std::byte{2});
    ASSERT_TRUE(eventually([&] { return to.nic->state(accepting) == QpState::kReadyToSend; }));
    to.nic->unlisten(kService);
}

void fill(std::span<std::byte> bytes, std::uint64_t seed) {
    SplitMix64 random(seed);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
}

/// Keeps messages and answers about windows.
struct WindowSink : KeepingSink {
    void on_window_ready(QpNumber, std::uint64_t cookie, bool good) override {
        const std::lock_guard lock(mutex);
        (good ? ready : bad).push_back(cookie);
    }
    std::size_t ready_count() {
        const std::lock_guard lock(mutex);
        return ready.size() + bad.size();
    }
    std::vector<std::uint64_t> ready, bad;
};

class UdpNic : public ::testing::TestWithParam<std::uint32_t> {
  protected:
    Machine a{gnstor::test::loopback_address(2), GetParam()};
    Machine b{gnstor::test::loopback_address(3), GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Mtu, UdpNic, ::testing::Values(1024u, 4096u));

TEST_P(UdpNic, SendsOfAllSizesArriveWholeAndInOrderBothWays) {
    EndOptions options;
    options.buffer_bytes = 8192;
    End x(*a.nic, *a.cq, options), y(*b.nic, *b.cq, options);
    join_udp(a, x.qpn, b, y.qpn);
    const std::uint32_t sizes[] = {1, 16, 32, 33, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097, 8191, 8192};
    for (int direction = 0; direction < 2; ++direction) {
        End& from = direction == 0 ? x : y;
        ReceiveCq& cq = direction == 0 ? *b.cq : *a.cq;
        End& to = direction == 0 ? y : x;
        const ReceiveSet set{&to.receive, 1};
        for (const std::uint32_t bytes : sizes) {
            fill(std::span(from.payload).first(bytes), bytes);
            ASSERT_EQ(from.post_and_wait([&](SendTicket& t) { from.send.fill_send(t, from.data(0, bytes)); }),
                      mlx5::kSyndromeNone);
            std::vector<Received> all;
            ASSERT_TRUE(eventually([&] {
                for (Received& r : reap(cq, set)) all.push_back(std::move(r));
                return !all.empty();
            }));
            ASSERT_EQ(all.size(), 1u);
            ASSERT_EQ(all[0].bytes, bytes);
            EXPECT_TRUE(std::equal(all[0].message.begin(), all[0].message.end(), from.payload.begin()));
        }
    }
    EXPECT_EQ(a.nic->counters().strict_violations + b.nic->counters().strict_violations, 0u);
}

TEST_P(UdpNic, RandomWritesAndReadsAgreeWithAModelOfThePeersMemory) {
    constexpr std::size_t kBytes = 1 << 16;
    End x(*a.nic, *a.cq), y(*b.nic, *b.cq);
    join_udp(a, x.qpn, b, y.qpn);
    SplitMix64 random(seed_from_environment(5));
    std::vector<std::byte> model(kBytes);
    fill(model, 1);
    std::copy(model.begin(), model.end(), y.payload.begin());
    const auto there = reinterpret_cast<std::uint64_t>(y.payload.data());
    std::uint32_t operations = 0;
    for (std::uint32_t i = 0; i < 600; ++i, ++operations) {
        const auto bytes = static_cast<std::uint32_t>(1 + random.below(i % 8 == 0 ? 40'000 : 5'000));
        const auto at = random.below(kBytes - bytes + 1);
        const auto mine = random.below(kBytes - bytes + 1);
        const auto remote = mlx5::make_remote(there + at, y.keys.rkey);
        const std::uint32_t split = bytes == 1 ? 1 : static_cast<std::uint32_t>(1 + random.below(bytes - 1));
        const bool write = random.below(2) == 0;
        const auto post = [&](SendTicket& t) {
            if (split == bytes) {
                write ? x.send.fill_write(t, remote, x.data(mine, bytes))
                      : x.send.fill_read(t, remote, x.data(mine, bytes));
                return;
            }
            const auto first = x.data(mine, split), second = x.data(mine + split, bytes - split);
            write ? x.send.fill_write(t, remote, first, second) : x.send.fill_read(t, remote, first, second);
        };
        if (write) fill(std::span(x.payload).subspan(mine, bytes), i);
        ASSERT_EQ(x.post_and_wait(post), mlx5::kSyndromeNone);
        if (write)
            std::copy_n(x.payload.begin() + static_cast<std::ptrdiff_t>(mine), bytes,
                        model.begin() + static_cast<std::ptrdiff_t>(at));
        ASSERT_TRUE(std::equal(x.payload.begin() + static_cast<std::ptrdiff_t>(mine),
                               x.payload.begin() + static_cast<std::ptrdiff_t>(mine + bytes),
                               model.begin() + static_cast<std::ptrdiff_t>(at)))
            << "operation " << i;
    }
    EXPECT_TRUE(std::equal(model.begin(), model.end(), y.payload.begin()));
    std::printf("GN_COUNT rdma_udp_nic_operations=%u\n", operations);
}

TEST_P(UdpNic, AnOffloadTakesMessagesFetchesFillsAndAnswersInOrder) {
    WindowSink sink;
    sink.let_go_on_error = b.nic.get();
    const QpNumber offload = must(b.nic->create_offload_queue_pair(sink));
    End x(*a.nic, *a.cq);
    join_udp(a, x.qpn, b, offload, 8, 4096);
    const auto there = reinterpret_cast<std::uint64_t>(x.payload.data());
    constexpr std::uint32_t kWindow = 20'000;
    for (std::uint32_t round = 0; round < 50; ++round) {
        fill(std::span(x.payload).first(kWindow), round);
        ASSERT_EQ(x.post_and_wait([&](SendTicket& t) { x.send.fill_send(t, x.data(0, 64)); }),
                  mlx5::kSyndromeNone);
        ASSERT_TRUE(eventually([&] { return sink.count() == round + 1; }));
        Window in{}, out{};
        b.nic->owner(offload).run([&] {
            ASSERT_TRUE(b.nic->open_window(offload, there, kWindow, x.keys.rkey, WindowUse::kRead, in));
            EXPECT_FALSE(in.ready) << "it has to be fetched first";
            ASSERT_TRUE(
                b.nic->open_window(offload, there + 30'000, kWindow, x.keys.rkey, WindowUse::kWrite, out));
            EXPECT_TRUE(out.ready);
        });
        ASSERT_TRUE(eventually([&] { return sink.ready_count() == round + 1; }));
        ASSERT_TRUE(sink.bad.empty());
        EXPECT_EQ(sink.ready.back(), in.cookie);
        b.nic->owner(offload).run([&] {
            ASSERT_EQ(std::memcmp(in.data, x.payload.data(), kWindow), 0);
            std::memcpy(out.data, in.data, kWindow);
            b.nic->close_window(offload, in);
            b.nic->close_window(offload, out, round % 5 != 4);
            b.nic->release(offload, sink.messages[round].token);
            b.nic->send(offload, &round, sizeof round);
        });
        std::vector<Received> all;
        ASSERT_TRUE(eventually([&] {
            for (Received& r : reap(*a.cq, {&x.receive, 1})) all.push_back(std::move(r));
            return !all.empty();
        }));
        EXPECT_EQ(std::memcmp(all[0].message.data(), &round, 4), 0);
        // The answer implies the data, but for what was closed as not filled.
        const bool same = std::memcmp(x.payload.data() + 30'000, x.payload.data(), kWindow) == 0;
        EXPECT_EQ(same, round % 5 != 4) << "round " << round;
    }
    must(b.nic->destroy_queue_pair(offload));
    EXPECT_EQ(sink.errors, 1u);
}

TEST_P(UdpNic, MoreMessagesThanTheSinkHoldsWaitAtTheSender) {
    WindowSink sink;
    sink.let_go_on_error = b.nic.get();
    const QpNumber offload = must(b.nic->create_offload_queue_pair(sink));
    End x(*a.nic, *a.cq);
    join_udp(a, x.qpn, b, offload, 2, 64);
    SendTicket last;
    for (std::uint32_t i = 0; i < 3; ++i) {
        last = x.send.try_reserve();
        x.payload[i] = static_cast<std::byte>(i + 1);
        x.send.fill_send(last, x.data(i, 1));
        x.send.publish(last);
    }
    x.send.ring_bell();
    ASSERT_TRUE(eventually([&] { return sink.count() == 2 && b.nic->counters().rnr > 0; }));
    b.nic->owner(offload).run([&] { b.nic->release(offload, sink.messages[0].token); });
    ASSERT_TRUE(eventually([&] { return sink.count() == 3; }));
    ASSERT_TRUE(eventually([&] { return x.send.refresh_completed() == 3; }));
    EXPECT_EQ(sink.bytes[2], std::byte{3});
    must(b.nic->destroy_queue_pair(offload));
}

TEST_P(UdpNic, RemotePeersCannotAccessMemoryBehindAnOffloadOrInvalidateItsKeys) {
    End y(*b.nic, *b.cq);
    const auto there = mlx5::make_remote(reinterpret_cast<std::uint64_t>(y.payload.data()), y.keys.rkey);
    y.payload[0] = std::byte{7};
    for (int kind = 0; kind < 3; ++kind) {
        KeepingSink sink;
        const QpNumber offload = must(b.nic->create_offload_queue_pair(sink));
        End x(*a.nic, *a.cq);
        join_udp(a, x.qpn, b, offload, 8, 4096);
        EXPECT_EQ(x.post_and_wait([&](SendTicket& t) {
            if (kind == 0) x.send.fill_write(t, there, x.data(0, 16));
            if (kind == 1) x.send.fill_read(t, there, x.data(0, 16));
            if (kind == 2) x.send.fill_send_invalidate(t, y.keys.rkey, x.data(0, 16));
        }),
                  mlx5::kRemoteAccessError)
            << kind;
        must(b.nic->destroy_queue_pair(offload));
        EXPECT_EQ(sink.count(), 0u);
    }
    EXPECT_EQ(y.payload[0], std::byte{7});
    End z(*a.nic, *a.cq);
    join_udp(a, z.qpn, b, y.qpn);
    EXPECT_EQ(z.post_and_wait([&](SendTicket& t) { z.send.fill_write(t, there, z.data(0, 16)); }),
              mlx5::kSyndromeNone)
        << "the key is as good as before";
}

TEST_P(UdpNic, AWindowWithAWrongKeyIsReportedAndFailsTheConnection) {
    WindowSink sink;
    const QpNumber offload = must(b.nic->create_offload_queue_pair(sink));
    End x(*a.nic, *a.cq);
    join_udp(a, x.qpn, b, offload, 8, 4096);
    const auto there = reinterpret_cast<std::uint64_t>(x.payload.data());
    Window in{};
    b.nic->owner(offload).run([&] {
        ASSERT_TRUE(b.nic->open_window(offload, there, 4096, x.keys.rkey + 256, WindowUse::kRead, in));
    });
    ASSERT_TRUE(eventually([&] { return sink.ready_count() == 1; }));
    EXPECT_EQ(sink.bad.size(), 1u);
    ASSERT_TRUE(eventually(
        [&] { return b.nic->state(offload) == QpState::kError && a.nic->state(x.qpn) == QpState::kError; }));
    b.nic->owner(offload).run([&] { b.nic->close_window(offload, in); });
    must(b.nic->destroy_queue_pair(offload));
}

TEST_P(UdpNic, QueuePairsAreDestroyedDuringTrafficAndOthersContinue) {
    End steady_x(*a.nic, *a.cq), steady_y(*b.nic, *b.cq);
    join_udp(a, steady_x.qpn, b, steady_y.qpn);
    for (std::uint32_t round = 0; round < 20; ++round) {
        WindowSink sink;
        sink.let_go_on_error = b.nic.get();
        const QpNumber offload = must(b.nic->create_offload_queue_pair(sink));
        {
            End x(*a.nic, *a.cq);
            join_udp(a, x.qpn, b, offload, 8, 4096);
            const auto there = reinterpret_cast<std::uint64_t>(x.payload.data());
            b.nic->owner(offload).run([&] {
                for (int i = 0; i < 4; ++i) {
                    Window out{};
                    ASSERT_TRUE(
                        b.nic->open_window(offload, there, 40'000, x.keys.rkey, WindowUse::kWrite, out));
                    b.nic->close_window(offload, out);
                }
            });
            const SendTicket t = x.send.try_reserve();
            SendTicket filled = t;
            x.send.fill_send(filled, x.data(0, 64));
            x.send.publish(filled);
            x.send.ring_bell();
            if (round % 2 == 0) must(b.nic->destroy_queue_pair(offload));
        }
        if (round % 2 == 1) must(b.nic->destroy_queue_pair(offload));
        ASSERT_EQ(steady_x.post_and_wait([&](SendTicket& t) {
            steady_x.send.fill_write(
                t,
                mlx5::make_remote(reinterpret_cast<std::uint64_t>(steady_y.payload.data()),
                                  steady_y.keys.rkey),
                steady_x.data(0, 5000));
        }),
                  mlx5::kSyndromeNone);
    }
}

TEST_P(UdpNic, AMessageKeepsItsMemoryUntilTheSinkReleasesIt) {
    WindowSink sink;
    const QpNumber offload = must(b.nic->create_offload_queue_pair(sink));
    End x(*a.nic, *a.cq);
    join_udp(a, x.qpn, b, offload, 8, 4096);
    fill(std::span(x.payload).first(4096), 9);
    ASSERT_EQ(x.post_and_wait([&](SendTicket& t) { x.send.fill_send(t, x.data(0, 4096)); }),
              mlx5::kSyndromeNone);
    ASSERT_TRUE(eventually([&] { return sink.count() == 1; }));
    auto destroyed = std::async(std::launch::async, [&] { return b.nic->destroy_queue_pair(offload); });
    EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
    b.nic->owner(offload).run([&] {
        const Segment& part = sink.messages[0].segments[0];
        EXPECT_EQ(std::memcmp(part.data, x.payload.data(), part.bytes), 0);
        b.nic->release(offload, sink.messages[0].token);
    });
    must(destroyed.get());
}

TEST_P(UdpNic, AQueuePairDisconnectedWhileItConnectsStaysDisconnected) {
    WindowSink sink;
    const QpNumber offload = must(b.nic->create_offload_queue_pair(sink));
    End x(*a.nic, *a.cq);
    std::promise<void> asked, go_on;
    Acceptor acceptor;
    acceptor.answer = [&](const ConnectRequest&) {
        asked.set_value();
        go_on.get_future().wait();
        ConnectReply reply;
        reply.accept = true;
        reply.qp = offload;
        reply.messages = 4;
        reply.message_bytes = 64;
        return reply;
    };
    must(b.nic->listen(kService, acceptor));
    auto connected = std::async(
        std::launch::async, [&] { return a.nic->connect(x.qpn, b.nic->address(), kService, {}, 10'000); });
    asked.get_future().wait();
    a.nic->disconnect(x.qpn);
    go_on.set_value();
    EXPECT_FALSE(connected.get().ok());
    EXPECT_EQ(a.nic->state(x.qpn), QpState::kError);
    ASSERT_TRUE(eventually([&] { return b.nic->state(offload) == QpState::kError; }));
    b.nic->unlisten(kService);
    must(b.nic->destroy_queue_pair(offload));
}

TEST_P(UdpNic, ANicClosedWhileItListensGetsNoMoreRequests) {
    End x(*a.nic, *a.cq);
    Acceptor acceptor;
    std::atomic<std::uint32_t> asked{0};
    acceptor.answer = [&](const ConnectRequest&) {
        ++asked;
        return ConnectReply{};
    };
    must(b.nic->listen(kService, acceptor));
    EXPECT_EQ(a.nic->connect(x.qpn, b.nic->address(), kService, {}, 10'000).error().code, Errc::kPermission);
    const std::string address = b.nic->address();
    b.cq.reset();
    b.nic.reset();
    EXPECT_EQ(a.nic->connect(x.qpn, address, kService, {}, 10'000).error().code, Errc::kNotFound);
    EXPECT_EQ(asked.load(), 1u);
}

TEST(UdpNicAlone, ConnectionsOfADeadPeerEndInBoundedTime) {
    Machine a(gnstor::test::loopback_address(2));
    End* x = nullptr;
    std::unique_ptr<End> kept;
    {
        Machine b(gnstor::test::loopback_address(3));
        End y(*b.nic, *b.cq);
        kept = std::make_unique<End>(*a.nic, *a.cq);
        x = kept.get();
        join_udp(a, x->qpn, b, y.qpn);
    }
    ASSERT_TRUE(eventually([&] { return a.nic->state(x->qpn) == QpState::kError; }));
    kept.reset();
}

TEST(UdpNicAlone, WrongAddressesServicesAndPeersAreRefusedWithAnErrorMessage) {
    const auto reactor = must(Reactor::start("m"));
    for (const char* address : {"", "node-a", "127.0.0.1:4791", "256.0.0.1", "fe80::zz"}) {
        const auto opened = UdpWire::open({.address = address, .port = kTestRocePort}, *reactor);
        ASSERT_FALSE(opened.ok()) << address;
        EXPECT_EQ(opened.error().code, Errc::kInvalidArgument) << opened.error().message;
    }
    const auto foreign = UdpWire::open({.address = "192.0.2.1", .port = kTestRocePort}, *reactor);
    ASSERT_FALSE(foreign.ok());
    EXPECT_EQ(foreign.error().code, Errc::kNotFound) << foreign.error().message;
    Machine a(gnstor::test::loopback_address(2));
    const auto second =
        UdpWire::open({.address = gnstor::test::loopback_address(2), .port = kTestRocePort}, *reactor);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Errc::kBusy) << second.error().message;
    End x(*a.nic, *a.cq);
    EXPECT_EQ(a.nic->connect(x.qpn, gnstor::test::loopback_address(9), "ssd-0", {}, 100).error().code,
              Errc::kInvalidArgument);
    EXPECT_FALSE(a.nic->connect(x.qpn, gnstor::test::loopback_address(9), kService, {}, 300).ok());
    EXPECT_EQ(a.nic->state(x.qpn), QpState::kReset) << "usable for another try";
}

}  // namespace
}  // namespace gnstor::rdma::test
