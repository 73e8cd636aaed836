// nic_test.cpp: what the software NIC promises, one at a time: verbs, every error path, reset, connections,
// windows.
#include "rdma/rig.hpp"

#include <functional>
#include <thread>

namespace gnstor::rdma::test {
namespace {

/// Keeps what it is told; lets go when asked to.
struct KeepingSink : MessageSink {
    void on_message(const InboundMessage& message) override {
        const std::lock_guard lock(mutex);
        messages.push_back(message);
        for (std::uint32_t i = 0; i < message.segment_count; ++i)
            bytes.insert(bytes.end(), message.segments[i].data,
                         message.segments[i].data + message.segments[i].bytes);
    }
    void on_error(QpNumber) override {
        const std::lock_guard lock(mutex);
        ++errors;
        if (let_go_on_error != nullptr)
            for (const InboundMessage& m : messages) let_go_on_error->release(m.qp, m.token);
    }
    std::size_t count() {
        const std::lock_guard lock(mutex);
        return messages.size();
    }
    std::mutex mutex;
    std::vector<InboundMessage> messages;
    std::vector<std::byte> bytes;
    std::uint32_t errors = 0;
    SoftNic* let_go_on_error = nullptr;
};

class NicTest : public ::testing::Test {
  protected:
    void SetUp() override {
        reactor_a = must(Reactor::start("a"));
        reactor_b = must(Reactor::start("b"));
        Reactor* const ra[] = {reactor_a.get()};
        Reactor* const rb[] = {reactor_b.get()};
        NicOptions options;
        options.strict = strict;
        options.seed = seed_from_environment(7);
        a = must(SoftNic::open(wire, "node-a", options, ra));
        b = must(SoftNic::open(wire, "node-b", options, rb));
        cq_a = std::make_unique<ReceiveCq>(*a, 6);
        cq_b = std::make_unique<ReceiveCq>(*b, 6);
    }
    void TearDown() override {
        ends.clear();
        cq_a.reset();
        cq_b.reset();
        a.reset();
        b.reset();
    }
    std::pair<End*, End*> connected_pair(EndOptions oa = {}, EndOptions ob = {}) {
        End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a, oa));
        End& y = *ends.emplace_back(std::make_unique<End>(*b, *cq_b, ob));
        join(*a, x.qpn, *b, y.qpn);
        return {&x, &y};
    }
    bool strict = true;
    std::unique_ptr<Reactor> reactor_a, reactor_b;
    LoopWire wire;
    std::unique_ptr<SoftNic> a, b;
    std::unique_ptr<ReceiveCq> cq_a, cq_b;
    std::vector<std::unique_ptr<End>> ends;

    std::vector<Received> wait_arrivals(ReceiveCq& cq, const ReceiveSet& set, std::size_t wanted) {
        std::vector<Received> all;
        EXPECT_TRUE(eventually([&] {
            for (Received& r : reap(cq, set)) all.push_back(std::move(r));
            return all.size() >= wanted;
        }));
        return all;
    }
};

TEST_F(NicTest, ASendOfThreeSegmentsArrivesWholeInlineAndInBuffers) {
    for (const bool scatter : {true, false}) {
        EndOptions ob;
        ob.scatter = scatter;
        const auto [x, y] = connected_pair({}, ob);
        for (std::size_t i = 0; i < 64; ++i) x->payload[i] = static_cast<std::byte>(i * 7 + 1);
        for (const std::uint32_t part : {4u, 16u}) {
            EXPECT_EQ(x->post_and_wait([&](SendTicket& t) {
                x->send.fill_send(t, x->data(0, part), x->data(part, 4), x->data(part + 4, 8));
            }),
                      mlx5::kSyndromeNone);
            const auto got = wait_arrivals(*cq_b, {&y->receive, 1}, 1);
            ASSERT_EQ(got.size(), 1u);
            EXPECT_EQ(got[0].opcode, mlx5::kCqeSend);
            EXPECT_EQ(got[0].bytes, part + 12);
            EXPECT_EQ(got[0].inline_data, scatter);
            EXPECT_EQ(std::memcmp(got[0].message.data(), x->payload.data(), part + 12), 0);
            std::uint32_t dw3;
            std::memcpy(&dw3, x->payload.data() + 12, 4);
            EXPECT_EQ(got[0].dw3, dw3);
        }
    }
    EXPECT_EQ(a->counters().strict_violations + b->counters().strict_violations, 0u);
}

TEST_F(NicTest, WritePrecedesTheSendBehindItAndReadFetches) {
    const auto [x, y] = connected_pair();
    for (std::size_t i = 0; i < 8192; ++i) x->payload[i] = static_cast<std::byte>(i * 31);
    const auto there = reinterpret_cast<std::uint64_t>(y->payload.data());
    SendTicket t1 = x->send.try_reserve(), t2 = x->send.try_reserve();
    ASSERT_TRUE(t1.granted() && t2.granted());
    x->send.fill_write(t1, mlx5::make_remote(there + 100, y->keys.rkey), x->data(0, 4096),
                       x->data(4096, 4096));
    x->send.fill_send(t2, x->data(0, 16));
    x->send.publish(t2);  // out of order: must not go out before the first
    x->send.ring_bell();
    EXPECT_EQ(be32(simt::load_acquire<simt::Scope::kSystem>(x->send.doorbell_record + 1)), 0u);
    x->send.publish(t1);
    x->send.ring_bell();
    ASSERT_EQ(wait_arrivals(*cq_b, {&y->receive, 1}, 1).size(), 1u);
    EXPECT_EQ(std::memcmp(y->payload.data() + 100, x->payload.data(), 8192), 0);
    EXPECT_EQ(x->post_and_wait([&](SendTicket& t) {
        x->send.fill_read(t, mlx5::make_remote(there + 100, y->keys.rkey), x->data(20'000, 100),
                          x->data(30'000, 8092));
    }),
              mlx5::kSyndromeNone);
    EXPECT_EQ(std::memcmp(x->payload.data() + 20'000, y->payload.data() + 100, 100), 0);
    EXPECT_EQ(std::memcmp(x->payload.data() + 30'000, y->payload.data() + 200, 8092), 0);
}

TEST_F(NicTest, SendWithInvalidateTakesTheKeyAway) {
    const auto [x, y] = connected_pair();
    const auto there = reinterpret_cast<std::uint64_t>(y->payload.data());
    EXPECT_EQ(x->post_and_wait(
                  [&](SendTicket& t) { x->send.fill_send_invalidate(t, y->keys.rkey, x->data(0, 16)); }),
              mlx5::kSyndromeNone);
    const auto got = wait_arrivals(*cq_b, {&y->receive, 1}, 1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].opcode, mlx5::kCqeSendInvalidate);
    EXPECT_EQ(got[0].invalidated, y->keys.rkey);
    EXPECT_EQ(x->post_and_wait([&](SendTicket& t) {
        x->send.fill_write(t, mlx5::make_remote(there, y->keys.rkey), x->data(0, 16));
    }),
              mlx5::kRemoteAccessError);
}

/// One way to fail: what is posted, the syndrome at the sender, and whether the peer's receive fails too.
struct Fault {
    const char* name;
    mlx5::Syndrome syndrome;
    std::function<void(End&, End&, SendTicket&)> fill;
    std::uint8_t receive_syndrome = mlx5::kFlushed;
    EndOptions peer{};
    std::uint32_t violations = 0;
};

TEST_F(NicTest, EveryFaultGivesItsSyndromeAndTakesBothEndsToErrorWithFlush) {
    EndOptions no_receives;
    no_receives.post = false;
    const auto there = [](End& y, std::uint64_t offset = 0) {
        return reinterpret_cast<std::uint64_t>(y.payload.data()) + offset;
    };
    const Fault faults[] = {
        {"unknown lkey", mlx5::kLocalProtectionError,
         [](End& x, End&, SendTicket& t) {
             x.send.fill_send(
                 t, mlx5::make_data(reinterpret_cast<std::uint64_t>(x.payload.data()), 16, x.keys.lkey + 1));
         }},
        {"local range out of bounds", mlx5::kLocalProtectionError,
         [](End& x, End&, SendTicket& t) { x.send.fill_send(t, x.data(x.payload.size() - 8, 16)); }},
        {"local range below the region", mlx5::kLocalProtectionError,
         [](End& x, End&, SendTicket& t) {
             x.send.fill_send(
                 t, mlx5::make_data(reinterpret_cast<std::uint64_t>(x.payload.data()) - 1, 16, x.keys.lkey));
         }},
        {"empty segment", mlx5::kLocalLengthError,
         [](End& x, End&, SendTicket& t) { x.send.fill_send(t, x.data(0, 0)); }},
        {"unknown rkey", mlx5::kRemoteAccessError,
         [&](End& x, End& y, SendTicket& t) {
             x.send.fill_write(t, mlx5::make_remote(there(y), 0x77777777), x.data(0, 16));
         }},
        {"remote range out of bounds", mlx5::kRemoteAccessError,
         [&](End& x, End& y, SendTicket& t) {
             x.send.fill_write(t, mlx5::make_remote(there(y, y.payload.size() - 15), y.keys.rkey),
                               x.data(0, 16));
         }},
        {"remote address that wraps", mlx5::kRemoteAccessError,
         [&](End& x, End& y, SendTicket& t) {
             x.send.fill_read(t, mlx5::make_remote(~0ull - 7, y.keys.rkey), x.data(0, 16));
         }},
        {"write without the right", mlx5::kRemoteAccessError,
         [&](End& x, End& y, SendTicket& t) {
             x.send.fill_write(
                 t, mlx5::make_remote(reinterpret_cast<std::uint64_t>(y.buffers.data()), y.buffer_keys.rkey),
                 x.data(0, 16));
         }},
        {"read without the right", mlx5::kRemoteAccessError,
         [&](End& x, End& y, SendTicket& t) {
             x.send.fill_read(
                 t, mlx5::make_remote(reinterpret_cast<std::uint64_t>(y.buffers.data()), y.buffer_keys.rkey),
                 x.data(0, 16));
         }},
        {"no receive", mlx5::kRnrRetryExceeded,
         [](End& x, End&, SendTicket& t) { x.send.fill_send(t, x.data(0, 16)); }, mlx5::kSyndromeNone,
         no_receives, 1},
        {"message longer than the receive", mlx5::kRemoteInvalidRequest,
         [](End& x, End&, SendTicket& t) { x.send.fill_send(t, x.data(0, 65)); }, mlx5::kLocalLengthError},
        {"invalidate of an unknown key", mlx5::kRemoteInvalidRequest,
         [](End& x, End&, SendTicket& t) { x.send.fill_send_invalidate(t, 0x4444, x.data(0, 16)); },
         mlx5::kLocalQpOperationError},
        {"unknown opcode", mlx5::kLocalQpOperationError,
         [](End& x, End&, SendTicket& t) {
             x.send.fill_nop(t);
             x.send_ring[x.send.slot(t.index)].control.opmod_idx_opcode =
                 be32(static_cast<std::uint32_t>(t.index) << 8 | 0x3F);
         }},
        {"wrong index",
         mlx5::kLocalQpOperationError,
         [](End& x, End&, SendTicket& t) {
             x.send.fill_nop(t);
             x.send_ring[x.send.slot(t.index)].control.opmod_idx_opcode =
                 be32((static_cast<std::uint32_t>(t.index) + 1) << 8);
         },
         mlx5::kFlushed,
         {},
         1},
        {"wrong queue pair number",
         mlx5::kLocalQpOperationError,
         [](End& x, End&, SendTicket& t) {
             x.send.fill_nop(t);
             x.send_ring[x.send.slot(t.index)].control.qpn_ds = be32(((x.qpn ^ 1) << 8) | 1);
         },
         mlx5::kFlushed,
         {},
         1},
        {"size of zero",
         mlx5::kLocalQpOperationError,
         [](End& x, End&, SendTicket& t) {
             x.send.fill_nop(t);
             x.send_ring[x.send.slot(t.index)].control.qpn_ds = be32(x.qpn << 8);
         },
         mlx5::kFlushed,
         {},
         1},
        {"size of five",
         mlx5::kLocalQpOperationError,
         [](End& x, End&, SendTicket& t) {
             x.send.fill_nop(t);
             x.send_ring[x.send.slot(t.index)].control.qpn_ds = be32((x.qpn << 8) | 5);
         },
         mlx5::kFlushed,
         {},
         1},
    };
    for (const Fault& fault : faults) {
        SCOPED_TRACE(fault.name);
        const std::uint64_t before = a->counters().strict_violations + b->counters().strict_violations;
        const auto [x, y] = connected_pair({}, fault.peer);
        EXPECT_EQ(x->post_and_wait([&](SendTicket& t) { fault.fill(*x, *y, t); }), fault.syndrome);
        EXPECT_TRUE(eventually([&, p = x, q = y] {
            return a->state(p->qpn) == QpState::kError && b->state(q->qpn) == QpState::kError;
        }));
        // All receives come back, each once, with the syndrome.
        if (fault.peer.post) {
            const auto back = wait_arrivals(*cq_b, {&y->receive, 1}, 16);
            ASSERT_EQ(back.size(), 16u);
            EXPECT_EQ(back[0].syndrome, fault.receive_syndrome);
            for (std::size_t i = 1; i < back.size(); ++i) EXPECT_EQ(back[i].syndrome, mlx5::kFlushed);
        }
        const auto mine = wait_arrivals(*cq_a, {&x->receive, 1}, 16);
        for (const Received& r : mine) EXPECT_EQ(r.syndrome, mlx5::kFlushed);
        // What is posted later is flushed.
        const std::uint64_t done = x->send.refresh_completed();
        SendTicket late{done, SendOutcome::kGranted, 0};
        x->send_state->reserved = done + 1;
        x->send.fill_nop(late);
        x->send.publish(late);
        x->send.ring_bell();
        EXPECT_TRUE(eventually([&, p = x] { return p->send.refresh_completed() == done + 1; }));
        EXPECT_EQ(mlx5::cqe_syndrome(x->send_completion[0].timestamp_low), mlx5::kFlushed);
        EXPECT_EQ(a->counters().strict_violations + b->counters().strict_violations - before,
                  fault.violations);
        ends.clear();
    }
}

TEST_F(NicTest, ReceivesAreUsableAgainAfterAResetAndReconnect) {
    const auto [x, y] = connected_pair();
    for (int round = 0; round < 20; ++round) {
        ASSERT_EQ(x->post_and_wait([&, p = x](SendTicket& t) { p->send.fill_send(t, p->data(0, 24)); }),
                  mlx5::kSyndromeNone);
        ASSERT_EQ(wait_arrivals(*cq_b, {&y->receive, 1}, 1).size(), 1u);
        must(a->reset_queue_pair(x->qpn));
        EXPECT_TRUE(eventually([&, q = y] { return b->state(q->qpn) == QpState::kError; }));
        EXPECT_EQ(wait_arrivals(*cq_b, {&y->receive, 1}, 16).size(), 16u);
        must(b->reset_queue_pair(y->qpn));
        EXPECT_EQ(wait_arrivals(*cq_a, {&x->receive, 1}, 16).size(), 16u);
        x->start_anew();
        y->start_anew();
        join(*a, x->qpn, *b, y->qpn);
    }
    EXPECT_EQ(a->counters().strict_violations + b->counters().strict_violations, 0u);
}

TEST_F(NicTest, AMessageByReferenceCompletesOnlyWhenTheSinkLetsGoAndInOrder) {
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

TEST_F(NicTest, AnOffloadAnswersIntoReceivesBehindItsWindow) {
    KeepingSink sink;
    const QpNumber offload = must(b->create_offload_queue_pair(sink));
    End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
    join(*a, x.qpn, *b, offload);
    EXPECT_EQ(&b->owner(offload), reactor_b.get());
    EXPECT_EQ(&a->owner(x.qpn), reactor_b.get()) << "both ends are executed where the offload end lives";
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

TEST_F(NicTest, StrictModeSeesAPayloadThatChangesTooEarly) {
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

TEST_F(NicTest, StrictModeSeesABellThatTheRecordDoesNotCover) {
    const auto [x, y] = connected_pair();
    simt::store_mmio64_release(x->send.bell, mlx5::bell_value(mlx5::make_control(3, mlx5::kSend, x->qpn, 2)));
    EXPECT_TRUE(eventually([&] { return a->counters().strict_violations == 1; }));
    EXPECT_TRUE(eventually([&, q = y] { return b->state(q->qpn) == QpState::kError; }));
}

TEST_F(NicTest, ConnectCarriesPrivateDataBothWaysAndSaysWhyItFails) {
    End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
    End& y = *ends.emplace_back(std::make_unique<End>(*b, *cq_b));
    Acceptor acceptor;
    const std::byte hello[] = {std::byte{1}, std::byte{2}, std::byte{3}};
    acceptor.answer = [&](const ConnectRequest& request) {
        EXPECT_EQ(request.peer, "node-a");
        EXPECT_EQ(request.private_data.size(), 3u);
        EXPECT_EQ(request.private_data[2], std::byte{3});
        ConnectReply reply;
        reply.reject_reason = 6;
        return reply;
    };
    EXPECT_EQ(a->connect(x.qpn, "node-b", "svc", hello, 1000).error().code, Errc::kNotFound);
    must(b->listen("svc", acceptor));
    EXPECT_EQ(b->listen("svc", acceptor).error().code, Errc::kExists);
    const auto rejected = a->connect(x.qpn, "node-b", "svc", hello, 10'000);
    ASSERT_FALSE(rejected.ok());
    EXPECT_EQ(rejected.error().code, Errc::kPermission);
    EXPECT_NE(rejected.error().message.find("reason 6"), std::string::npos);
    acceptor.answer = [&](const ConnectRequest&) {
        ConnectReply reply;
        reply.accept = true;
        reply.qp = y.qpn;
        reply.private_data = {std::byte{9}};
        return reply;
    };
    const auto accepted = a->connect(x.qpn, "node-b", "svc", hello, 10'000);
    ASSERT_TRUE(accepted.ok());
    EXPECT_EQ(accepted.value().at(0), std::byte{9});
    EXPECT_EQ(a->connect(x.qpn, "node-b", "svc", hello, 10'000).error().code, Errc::kState)
        << "it is connected";
    b->unlisten("svc");
    EXPECT_EQ(a->state(x.qpn), QpState::kReadyToSend);
    a->disconnect(x.qpn);
    EXPECT_EQ(b->state(y.qpn), QpState::kError);
}

TEST_F(NicTest, AConnectThatTimesOutLeavesNobodyHalfConnected) {
    End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a));
    End& y = *ends.emplace_back(std::make_unique<End>(*b, *cq_b));
    std::atomic<bool> go{false};
    Acceptor acceptor;
    acceptor.answer = [&](const ConnectRequest&) {
        EXPECT_TRUE(eventually([&] { return go.load(); }));
        ConnectReply reply;
        reply.accept = true;
        reply.qp = y.qpn;
        return reply;
    };
    must(b->listen("slow", acceptor));
    const auto late = a->connect(x.qpn, "node-b", "slow", {}, 20);
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, Errc::kTimedOut);
    go = true;
    EXPECT_TRUE(eventually([&] { return b->state(y.qpn) == QpState::kError; }))
        << "accepted too late: no peer will come";
    EXPECT_EQ(a->state(x.qpn), QpState::kReset);
    b->unlisten("slow");
}

TEST_F(NicTest, BadArgumentsAreRefusedWithReasons) {
    EXPECT_EQ(a->register_memory(nullptr, 10, 0).error().code, Errc::kInvalidArgument);
    std::byte here[8];
    EXPECT_EQ(a->register_memory(here, 0, 0).error().code, Errc::kInvalidArgument);
    EXPECT_EQ(a->register_memory(here, 8, 64).error().code, Errc::kInvalidArgument);
    EXPECT_EQ(a->deregister_memory({1, 1}).error().code, Errc::kNotFound);
    EXPECT_EQ(a->create_completion_queue({cq_a->ring.get(), 3, cq_a->record.get(), false}).error().code,
              Errc::kInvalidArgument);
    EXPECT_EQ(a->create_completion_queue({cq_a->ring.get(), 4, nullptr, false}).error().code,
              Errc::kInvalidArgument);
    EXPECT_EQ(a->destroy_completion_queue(77).error().code, Errc::kNotFound);
    EXPECT_EQ(a->destroy_queue_pair(0xABCDEF).error().code, Errc::kNotFound);
    EXPECT_EQ(a->create_queue_pair({}).error().code, Errc::kInvalidArgument);
    Reactor* const none[] = {reactor_a.get()};
    EXPECT_EQ(SoftNic::open(wire, "node-a", {}, none).error().code, Errc::kExists);
    EXPECT_EQ(SoftNic::open(wire, "node-c", {}, {}).error().code, Errc::kInvalidArgument);
    const auto [x, y] = connected_pair();
    EXPECT_EQ(a->destroy_completion_queue(x->send_cq).error().code, Errc::kBusy);
}

TEST_F(NicTest, AnIdleNicWith128QueuePairsUsesUnderTwoPercentOfACore) {
    std::vector<std::unique_ptr<End>> many;
    ReceiveCq big_a(*a, 12), big_b(*b, 12);
    for (int i = 0; i < 128; ++i) {
        many.push_back(std::make_unique<End>(*a, big_a));
        many.push_back(std::make_unique<End>(*b, big_b));
        join(*a, many[many.size() - 2]->qpn, *b, many.back()->qpn);
    }
    // CPU time, not wall time, is compared: it grows only while the thread runs.
    const auto cpu = [&] { return reactor_a->cpu_time_ns() + reactor_b->cpu_time_ns(); };
    const auto settle = simt::Deadline::in_ns(300'000'000);
    EXPECT_TRUE(eventually([&] { return settle.passed(); }));
    const std::uint64_t wall0 = simt::now_ns(), cpu0 = cpu();
    const auto window = simt::Deadline::in_ns(1'000'000'000);
    EXPECT_TRUE(eventually([&] { return window.passed(); }));
    const double share = static_cast<double>(cpu() - cpu0) / static_cast<double>(simt::now_ns() - wall0);
    std::printf("idle: 256 queue pairs on 2 engines use %.2f %% of a core\n", share * 100);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    EXPECT_LT(share, 0.02);
#endif
    many.clear();
}

}  // namespace
}  // namespace gnstor::rdma::test
