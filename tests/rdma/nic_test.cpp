// nic_test.cpp: what the software NIC promises of verbs: each of them, every error path, reset.
#include "rdma/nic_fixture.hpp"

namespace gnstor::rdma::test {
namespace {

/// A missing receive is asked for again and again (RNR NAK), as on any wire.
const bool kOverPackets = kTestWire == TestWire::kUdp;
/// Each call goes to another process.
const bool kByRequests = kTestWire == TestWire::kShm || kTestWire == TestWire::kShmNodes;

TEST_F(NicTest, ASendOfThreeSegmentsArrivesWholeInlineAndInBuffers) {
    for (const bool scatter : {true, false}) {
        EndOptions ob;
        ob.scatter = scatter;
        const auto pair = connected_pair({}, ob);
        const auto x = pair.first, y = pair.second;
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
    const auto pair = connected_pair();
    const auto x = pair.first, y = pair.second;
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

TEST_F(NicTest, SendWithInvalidateInvalidatesTheKey) {
    const auto pair = connected_pair();
    const auto x = pair.first, y = pair.second;
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
         no_receives, kOverPackets ? 0u : 1u},
        {"message longer than the receive", mlx5::kRemoteInvalidRequest,
         [](End& x, End&, SendTicket& t) { x.send.fill_send(t, x.data(0, 65)); }, mlx5::kLocalLengthError},
        {"invalidate of an unknown key",
         kOverPackets ? mlx5::kRemoteAccessError : mlx5::kRemoteInvalidRequest,
         [](End& x, End&, SendTicket& t) { x.send.fill_send_invalidate(t, 0x4444, x.data(0, 16)); },
         kOverPackets ? mlx5::kRemoteInvalidRequest : mlx5::kLocalQpOperationError},
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
        const auto pair = connected_pair({}, fault.peer);
        const auto x = pair.first, y = pair.second;
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
    const auto pair = connected_pair();
    const auto x = pair.first, y = pair.second;
    for (int round = 0; round < 20; ++round) {
        ASSERT_EQ(x->post_and_wait([&, p = x](SendTicket& t) { p->send.fill_send(t, p->data(0, 24)); }),
                  mlx5::kSyndromeNone);
        ASSERT_EQ(wait_arrivals(*cq_b, {&y->receive, 1}, 1).size(), 1u);
        must(a->reset_queue_pair(x->qpn));
        EXPECT_TRUE(eventually([&, q = y] { return b->state(q->qpn) == QpState::kError; }));
        EXPECT_EQ(wait_arrivals(*cq_b, {&y->receive, 1}, 16).size(), 16u);
        must(b->reset_queue_pair(y->qpn));
        EXPECT_EQ(wait_arrivals(*cq_a, {&x->receive, 1}, 16).size(), 16u);
        x->restart();
        y->restart();
        join(*a, x->qpn, *b, y->qpn);
    }
    EXPECT_EQ(a->counters().strict_violations + b->counters().strict_violations, 0u);
}

// The NIC remembers how many receives it has seen posted. Of an earlier connection it must not.
TEST_F(NicTest, ReceivesOfAnEarlierConnectionAreNotUsedByTheNext) {
    const auto pair = connected_pair();
    const auto x = pair.first, y = pair.second;
    for (int i = 0; i < 3; ++i)
        ASSERT_EQ(x->post_and_wait([&, p = x](SendTicket& t) { p->send.fill_send(t, p->data(0, 24)); }),
                  mlx5::kSyndromeNone);
    must(a->reset_queue_pair(x->qpn));
    EXPECT_TRUE(eventually([&, q = y] { return b->state(q->qpn) == QpState::kError; }));
    must(b->reset_queue_pair(y->qpn));
    (void)reap(*cq_a, {&x->receive, 1});
    x->restart();
    join(*a, x->qpn, *b, y->qpn);  // y has posted none
    const std::uint64_t rnr = b->counters().rnr;
    EXPECT_EQ(x->post_and_wait([&, p = x](SendTicket& t) { p->send.fill_send(t, p->data(0, 24)); }),
              mlx5::kRnrRetryExceeded);
    if (kOverPackets)
        EXPECT_GT(b->counters().rnr, rnr + 1);
    else
        EXPECT_EQ(b->counters().rnr, rnr + 1);
}

TEST_F(NicTest, AnInvalidatedKeyIsNotReusedSoon) {
    const NicMemory memory = must(NicMemory::map(*a, 4096));
    const MemoryKeys stale = must(a->register_memory(memory.data(), memory.size(), kRemoteWrite));
    must(a->deregister_memory(stale));
    const std::uint32_t kRegistrations = kByRequests ? 20'000 : 200'000;
    for (std::uint32_t i = 0; i < kRegistrations; ++i) {
        const MemoryKeys keys = must(a->register_memory(memory.data(), memory.size(), kRemoteWrite));
        ASSERT_NE(keys.rkey, stale.rkey) << "valid again after " << i << " registrations";
        must(a->deregister_memory(keys));
    }
    EXPECT_FALSE(a->deregister_memory(stale).ok());
}

TEST_F(NicTest, AllRegionsMayBeInUseAtOnceAndEachIsReusable) {
    const NicMemory memory = must(NicMemory::map(*a, 4096));
    std::vector<MemoryKeys> held;
    for (std::uint32_t round = 0; round < 3; ++round) {
        for (;;) {
            const auto keys = a->register_memory(memory.data(), memory.size(), kLocalWrite);
            if (!keys.ok()) break;
            held.push_back(*keys);
        }
        EXPECT_GE(held.size(), 1000u);
        const std::size_t all = held.size();
        for (std::size_t i = 0; i < all; i += 2) must(a->deregister_memory(held[i]));
        std::vector<MemoryKeys> left;
        for (std::size_t i = 1; i < all; i += 2) left.push_back(held[i]);
        held = std::move(left);
    }
    for (const MemoryKeys& keys : held) must(a->deregister_memory(keys));
}

}  // namespace
}  // namespace gnstor::rdma::test
