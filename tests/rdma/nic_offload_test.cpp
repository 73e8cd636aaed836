// nic_offload_test.cpp: messages by reference, windows, overruns, and what strict mode sees.
#include "rdma/nic_fixture.hpp"

namespace gnstor::rdma::test {

const TestWire kTestWire = TestWire::kLoop;

namespace {

TEST_F(NicTest, AMessageByReferenceCompletesInOrderAndOnlyWhenTheSinkReleasesIt) {
    KeepingSink sink;
    sink.let_go_on_error = b.get();
    const QpNumber offload = must(b->create_offload_queue_pair(sink));
    End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
    join(*a, x.qpn, *b, offload);
    SendTicket t[3];
    for (std::uint32_t i = 0; i < 3; ++i) {
        t[i] = x.send.try_reserve();
        x.payload[i] = static_cast<std::byte>(i + 1);
        x.send.fill_send(t[i], x.data(i, 1));
        x.send.publish(t[i]);
    }
    x.send.ring_bell();
    ASSERT_TRUE(eventually([&] { return sink.count() == 3; }));
    EXPECT_EQ(sink.messages[0].segments[0].data, x.payload.data()) << "payload goes by reference";
    const auto let_go = [&](std::size_t i) {
        b->owner(offload).run([&] { b->release(offload, sink.messages[i].token); });
    };
    let_go(2);
    let_go(1);
    EXPECT_EQ(x.send.refresh_completed(), 0u);
    let_go(0);
    EXPECT_TRUE(eventually([&] { return x.send.refresh_completed() == 3; }));
    let_go(0);  // a token that is gone does no harm
    // A region that a held message names cannot be deregistered; afterwards it can.
    SendTicket held = x.send.try_reserve();
    x.send.fill_send(held, x.data(5, 1));
    x.send.publish(held);
    x.send.ring_bell();
    ASSERT_TRUE(eventually([&] { return sink.count() == 4; }));
    std::atomic<bool> gone{false};
    std::thread remover([&] {
        must(a->deregister_memory(x.keys));
        gone = true;
    });
    EXPECT_FALSE(gone.load());
    let_go(3);
    remover.join();
    EXPECT_TRUE(eventually([&] { return x.send.refresh_completed() == 4; }));
    x.keys = must(a->register_memory(x.payload.data(), x.payload.size(), kLocalWrite));
    must(b->destroy_queue_pair(offload));
    EXPECT_EQ(sink.errors, 1u);
    EXPECT_EQ(a->counters().strict_violations, 0u);
}

TEST_F(NicTest, ResetWaitsForTheSinkAndForWindows) {
    KeepingSink sink;
    const QpNumber offload = must(b->create_offload_queue_pair(sink));
    End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
    join(*a, x.qpn, *b, offload);
    const auto window = must(b->open_window(offload, reinterpret_cast<std::uint64_t>(x.payload.data()) + 64,
                                            4096, x.keys.rkey, WindowUse::kWrite));
    EXPECT_EQ(window.data, x.payload.data() + 64);
    EXPECT_FALSE(b->open_window(offload, 64, 4096, x.keys.rkey, WindowUse::kWrite).ok());
    EXPECT_FALSE(b->open_window(offload, reinterpret_cast<std::uint64_t>(x.payload.data()), 4096,
                                x.keys.rkey + 256, WindowUse::kRead)
                     .ok());
    EXPECT_FALSE(b->open_window(offload, reinterpret_cast<std::uint64_t>(x.buffers.data()), 16,
                                x.buffer_keys.rkey, WindowUse::kWrite)
                     .ok());
    SendTicket t = x.send.try_reserve();
    x.send.fill_send(t, x.data(0, 64));
    x.send.publish(t);
    x.send.ring_bell();
    ASSERT_TRUE(eventually([&] { return sink.count() == 1; }));
    std::atomic<bool> done{false};
    std::thread resetter([&] {
        must(a->reset_queue_pair(x.qpn));
        done = true;
    });
    ASSERT_TRUE(eventually([&] { return b->state(offload) == QpState::kError; }));
    EXPECT_FALSE(b->open_window(offload, reinterpret_cast<std::uint64_t>(x.payload.data()), 16, x.keys.rkey,
                                WindowUse::kRead)
                     .ok());
    EXPECT_FALSE(done.load());
    b->close_window(offload, window);
    EXPECT_FALSE(done.load());
    b->owner(offload).run([&] { b->release(offload, sink.messages[0].token); });
    resetter.join();
    EXPECT_EQ(a->state(x.qpn), QpState::kReset);
    must(b->destroy_queue_pair(offload));
}

TEST_F(NicTest, RemotePeersCannotAccessMemoryBehindAnOffloadOrInvalidateItsKeys) {
    End& y = *ends.emplace_back(std::make_unique<End>(*b, *cq_b));
    const auto there = mlx5::make_remote(reinterpret_cast<std::uint64_t>(y.payload.data()), y.keys.rkey);
    y.payload[0] = std::byte{7};
    const auto syndrome_of = [&](auto fill) {
        KeepingSink sink;
        const QpNumber offload = must(b->create_offload_queue_pair(sink));
        End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
        join(*a, x.qpn, *b, offload);
        x.payload[0] = std::byte{9};
        const auto syndrome = x.post_and_wait([&](SendTicket& t) { fill(x, t); });
        must(b->destroy_queue_pair(offload));
        EXPECT_EQ(sink.count(), 0u);
        EXPECT_EQ(x.payload[0], std::byte{9});
        return syndrome;
    };
    EXPECT_EQ(syndrome_of([&](End& x, SendTicket& t) { x.send.fill_write(t, there, x.data(0, 16)); }),
              mlx5::kRemoteAccessError);
    EXPECT_EQ(syndrome_of([&](End& x, SendTicket& t) { x.send.fill_read(t, there, x.data(0, 16)); }),
              mlx5::kRemoteAccessError);
    EXPECT_EQ(syndrome_of(
                  [&](End& x, SendTicket& t) { x.send.fill_send_invalidate(t, y.keys.rkey, x.data(0, 16)); }),
              mlx5::kRemoteInvalidRequest);
    EXPECT_EQ(y.payload[0], std::byte{7});
    End& z = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
    join(*a, z.qpn, *b, y.qpn);
    EXPECT_EQ(z.post_and_wait([&](SendTicket& t) { z.send.fill_write(t, there, z.data(0, 16)); }),
              mlx5::kSyndromeNone)
        << "the key is as good as before";
}

TEST_F(NicTest, AFailedWindowReportsWhetherTheQueuePairTheConnectionOrTheKeyIsTheCause) {
    KeepingSink sink;
    const QpNumber offload = must(b->create_offload_queue_pair(sink));
    End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
    const auto payload = reinterpret_cast<std::uint64_t>(x.payload.data());
    const auto code_of = [&](QpNumber qp, std::uint64_t address, std::uint32_t rkey) {
        const auto window = b->open_window(qp, address, 64, rkey, WindowUse::kWrite);
        if (window.ok()) b->close_window(qp, window.value());
        return window.ok() ? std::optional<Errc>() : std::optional<Errc>(window.error().code);
    };
    EXPECT_EQ(code_of(offload + 1, payload, x.keys.rkey), Errc::kNotFound);
    EXPECT_EQ(code_of(offload, payload, x.keys.rkey), Errc::kState) << "not connected yet";
    join(*a, x.qpn, *b, offload);
    EXPECT_EQ(code_of(offload, payload, x.keys.rkey), std::nullopt);
    EXPECT_EQ(code_of(offload, payload, x.keys.rkey + 256), Errc::kPermission) << "key";
    EXPECT_EQ(code_of(offload, 64, x.keys.rkey), Errc::kPermission) << "bounds";
    EXPECT_EQ(code_of(offload, reinterpret_cast<std::uint64_t>(x.buffers.data()), x.buffer_keys.rkey),
              Errc::kPermission)
        << "rights";
    b->disconnect(offload);
    EXPECT_EQ(code_of(offload, payload, x.keys.rkey), Errc::kState) << "in error";
    must(b->destroy_queue_pair(offload));
}

TEST_F(NicTest, AnOffloadAnswersIntoReceivesBehindItsWindow) {
    KeepingSink sink;
    const QpNumber offload = must(b->create_offload_queue_pair(sink));
    End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
    join(*a, x.qpn, *b, offload);
    EXPECT_EQ(&b->owner(offload), reactor_b.get());
    EXPECT_EQ(&dynamic_cast<SoftNic&>(*a).owner(x.qpn), reactor_b.get())
        << "both ends are executed where the offload end lives";
    const auto window = must(b->open_window(offload, reinterpret_cast<std::uint64_t>(x.payload.data()), 4096,
                                            x.keys.rkey, WindowUse::kWrite));
    std::memset(window.data, 0x5A, 4096);
    b->close_window(offload, window);
    const std::uint32_t response[4] = {1, 2, 3, 0xABCD};
    b->owner(offload).run([&] { b->send(offload, response, sizeof response); });
    const auto got = wait_arrivals(*cq_a, {&x.receive, 1}, 1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].dw3, 0xABCDu);
    EXPECT_EQ(x.payload[4095], std::byte{0x5A});
    must(b->destroy_queue_pair(offload));
}

TEST_F(NicTest, SeveralEnginesAnswerIntoOneCompletionQueueAndAskForItsEntriesAhead) {
    constexpr std::uint32_t kMessages = 256;
    const auto reactor_c = must(Reactor::start("c"));
    Reactor* const rc[] = {reactor_c.get()};
    auto c = must(SoftNic::open(wire, "node-c", {}, rc));
    ReceiveCq shared(*a, 9);
    EndOptions end;
    end.receive_log2 = 8;
    KeepingSink sinks[2];
    SoftNic* const nics[] = {b.get(), c.get()};
    QpNumber offloads[2];
    std::vector<ReceiveQueueRef> receives;
    for (std::uint32_t i = 0; i < 2; ++i) {
        offloads[i] = must(nics[i]->create_offload_queue_pair(sinks[i]));
        End& x = *ends.emplace_back(std::make_unique<End>(*a, shared, end));
        receives.push_back(x.receive);
        join(*a, x.qpn, *nics[i], offloads[i]);
    }
    std::atomic<std::uint32_t> begun{0};
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < 2; ++i)
        threads.emplace_back([&, i] {
            nics[i]->owner(offloads[i]).run([&] {
                ++begun;
                EXPECT_TRUE(eventually([&] { return begun == 2; }));
                for (std::uint32_t m = 0; m < kMessages; ++m) {
                    nics[i]->prefetch_send(offloads[i]);
                    const std::uint32_t response[4] = {m, 0, 0, i};
                    nics[i]->send(offloads[i], response, sizeof response);
                }
            });
        });
    for (std::thread& t : threads) t.join();
    std::uint32_t next[2] = {};
    for (const Received& r : wait_arrivals(shared, {receives.data(), 2}, 2 * kMessages)) {
        ASSERT_LT(r.dw3, 2u);
        std::uint32_t number = 0;
        std::memcpy(&number, r.message.data(), sizeof number);
        EXPECT_EQ(number, next[r.dw3]++) << "of node " << r.dw3;
    }
    EXPECT_EQ(next[0] + next[1], 2 * kMessages);
    for (std::uint32_t i = 0; i < 2; ++i) must(nics[i]->destroy_queue_pair(offloads[i]));
    ends.clear();
    c.reset();
}

// Windows are counted apart for the engine's thread and for all others. The thread of an engine that is gone
// is one of the others, also where the new engine lies in the old one's memory.
TEST(NicEngines, AThreadOfAnEndedEngineIsNotMistakenForThatOfTheNextOne) {
    constexpr std::uint32_t kWindows = 20'000;
    const auto old_thread = must(Reactor::start("old"));
    const auto new_thread = must(Reactor::start("new"));
    Reactor* const first[] = {old_thread.get()};
    Reactor* const second[] = {new_thread.get()};
    LoopWire wire;
    for (std::uint32_t round = 0; round < 8; ++round) {
        auto gone = must(SoftNic::open(wire, "gone", {}, first));
        // Two runs: there was a whole round of polls between them.
        for (std::uint32_t i = 0; i < 2; ++i) old_thread->run([] {});
        gone.reset();
        NicOptions options;
        options.quiesce_timeout_ms = 2'000;
        auto nic = must(SoftNic::open(wire, "host", options, second));
        auto target = must(SoftNic::open(wire, "target", options, second));
        auto cq = std::make_unique<ReceiveCq>(*nic, 4);
        KeepingSink sink;
        const QpNumber offload = must(target->create_offload_queue_pair(sink));
        auto end = std::make_unique<End>(*nic, *cq);
        join(*nic, end->qpn, *target, offload);
        const auto address = reinterpret_cast<std::uint64_t>(end->payload.data());
        std::atomic<std::uint32_t> begun{0};
        const auto open_and_close = [&] {
            ++begun;
            EXPECT_TRUE(eventually([&] { return begun == 2; }));
            Window window{};
            for (std::uint32_t i = 0; i < kWindows; ++i)
                if (target->open_window(offload, address, 64, end->keys.rkey, WindowUse::kWrite, window))
                    target->close_window(offload, window);
        };
        std::thread other([&] { old_thread->run(open_and_close); });
        new_thread->run(open_and_close);
        other.join();
        const auto destroyed = target->destroy_queue_pair(offload);
        ASSERT_TRUE(destroyed.ok()) << destroyed.error().message;
        end.reset();
        cq.reset();
    }
}

TEST_F(NicTest, AReceiveQueueThatOverrunsItsCompletionQueueGoesToError) {
    ReceiveCq small(*b, 2);
    End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
    auto y = std::make_unique<End>(*b, small);
    join(*a, x.qpn, *b, y->qpn);
    for (int i = 0; i < 4; ++i)
        ASSERT_EQ(x.post_and_wait([&](SendTicket& t) { x.send.fill_send(t, x.data(0, 16)); }),
                  mlx5::kSyndromeNone);
    EXPECT_EQ(x.post_and_wait([&](SendTicket& t) { x.send.fill_send(t, x.data(0, 16)); }),
              mlx5::kRemoteOperationError);
    EXPECT_EQ(b->counters().strict_violations, 1u);
    ends.clear();
    y.reset();
}

TEST_F(NicTest, StrictModeDetectsAPayloadThatChangesTooEarly) {
    KeepingSink sink;
    sink.let_go_on_error = b.get();
    const QpNumber offload = must(b->create_offload_queue_pair(sink));
    End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
    join(*a, x.qpn, *b, offload);
    SendTicket t = x.send.try_reserve();
    x.send.fill_send(t, x.data(0, 64));
    x.send.publish(t);
    x.send.ring_bell();
    ASSERT_TRUE(eventually([&] { return sink.count() == 1; }));
    b->owner(offload).run(
        [&] { x.payload[3] ^= std::byte{1}; });  // in the engine's thread: a lane would race with it
    EXPECT_TRUE(eventually([&] { return a->counters().strict_violations == 1; }));
    EXPECT_TRUE(eventually([&] { return a->state(x.qpn) == QpState::kError; }));
    must(b->destroy_queue_pair(offload));
}

TEST_F(NicTest, StrictModeDetectsADoorbellThatItsRecordDoesNotCover) {
    const auto [x, y] = connected_pair();
    simt::store_mmio64_release(x->send.bell, mlx5::bell_value(mlx5::make_control(3, mlx5::kSend, x->qpn, 2)));
    EXPECT_TRUE(eventually([&] { return a->counters().strict_violations == 1; }));
    EXPECT_TRUE(eventually([&, q = y] { return b->state(q->qpn) == QpState::kError; }));
}

}  // namespace
}  // namespace gnstor::rdma::test
