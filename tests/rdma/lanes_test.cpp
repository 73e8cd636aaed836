// lanes_test.cpp: lanes drive the software NIC: many lanes on shared send queues, one shared receive queue of
// completions, an offload that answers each message. Every lane is a one-lane warp in a thread of its own.
// Queues are tiny, so that all of them wrap often.
#include "rdma/rig.hpp"

#include <gnstor/base/hash.hpp>

#include <functional>
#include <thread>

namespace gnstor::rdma::test {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(GN_TEST_WARPS)
constexpr std::uint32_t kRoundsPerLane = 3'000;
#else
constexpr std::uint32_t kRoundsPerLane = 20'000;
#endif
constexpr std::uint32_t kLanes = 6;
constexpr std::uint32_t kQueuePairs = 2;
constexpr std::uint32_t kCapsuleBytes = 64;

/// Answers each message: checks the capsule, writes a stamp into the sender's window, sends 16 bytes with the
/// tag in DW3. Lets go of messages late and out of order.
struct AnsweringSink : MessageSink, Poller {
    SoftNic* nic = nullptr;
    std::uint32_t rkey = 0;
    std::uint64_t windows_base = 0;
    std::uint64_t messages = 0;
    std::uint64_t broken_capsules = 0;
    SplitMix64 dice{1};
    std::vector<InboundMessage> kept;

    void on_message(const InboundMessage& m) override {
        ++messages;
        std::uint32_t capsule[kCapsuleBytes / 4];
        auto* to = reinterpret_cast<std::byte*>(capsule);
        for (std::uint32_t i = 0; i < m.segment_count; ++i) {
            std::memcpy(to, m.segments[i].data, m.segments[i].bytes);
            to += m.segments[i].bytes;
        }
        for (std::uint32_t i = 2; i < kCapsuleBytes / 4; ++i)
            if (capsule[i] != capsule[0] * 31 + i) ++broken_capsules;
        const std::uint32_t lane = capsule[1];
        auto window = nic->open_window(m.qp, windows_base + lane * 64, 64, rkey, WindowUse::kWrite);
        if (window.ok()) {
            std::memcpy(window.value().data, &capsule[0], 4);
            nic->close_window(m.qp, window.value());
        }
        const std::uint32_t response[4] = {capsule[0], m.bytes, 0, lane};
        nic->send(m.qp, response, sizeof response);
        kept.push_back(m);
    }
    std::uint32_t poll() override {
        if (kept.empty() || dice.below(2) == 0) return static_cast<std::uint32_t>(kept.size());
        const std::size_t at = dice.below(kept.size());
        nic->release(kept[at].qp, kept[at].token);
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(at));
        return 1;
    }
    void on_error(QpNumber qp) override {
        for (const InboundMessage& m : kept) nic->release(qp, m.token);
        kept.clear();
    }
};

struct Load {
    bool scatter;
    bool strict;
    std::uint64_t seed;
};

void run_load(const Load& load) {
    auto reactor_a = must(Reactor::start("host"));
    auto reactor_b = must(Reactor::start("target"));
    Reactor* const ra[] = {reactor_a.get()};
    Reactor* const rb[] = {reactor_b.get()};
    LoopWire wire;
    NicOptions options;
    options.strict = load.strict;
    options.seed = load.seed;
    auto a = must(SoftNic::open(wire, "host", options, ra));
    auto b = must(SoftNic::open(wire, "target", options, rb));
    {
        ReceiveCq cq(*a, 4);
        std::vector<std::unique_ptr<End>> ends;
        std::vector<ReceiveQueueRef> receives;
        std::deque<AnsweringSink> sinks(kQueuePairs);
        std::vector<QpNumber> offloads;
        std::vector<std::uint32_t> windows(kLanes * 16);
        const MemoryKeys window_keys =
            must(a->register_memory(windows.data(), windows.size() * 4, kLocalWrite | kRemoteWrite));
        EndOptions o;
        o.send_log2 = 2;
        o.receive_log2 = 3;
        o.scatter = load.scatter;
        for (std::uint32_t q = 0; q < kQueuePairs; ++q) {
            ends.push_back(std::make_unique<End>(*a, cq, o));
            receives.push_back(ends.back()->receive);
            sinks[q].nic = b.get();
            sinks[q].rkey = window_keys.rkey;
            sinks[q].windows_base = reinterpret_cast<std::uint64_t>(windows.data());
            sinks[q].dice = SplitMix64(load.seed + q);
            sinks[q].kept.reserve(64);
            offloads.push_back(must(b->create_offload_queue_pair(sinks[q])));
            reactor_b->add(sinks[q]);
            join(*a, ends.back()->qpn, *b, offloads.back());
        }
        const ReceiveSet set{receives.data(), kQueuePairs};
        std::vector<std::uint32_t> answers(kLanes * 16);  // one word a lane, far apart: the tag last answered
        std::atomic<std::uint64_t> wrong{0}, arrived{0};

        const auto lane_body = [&](std::uint32_t lane) {
            SplitMix64 dice(load.seed * 977 + lane);
            const auto me = simt::self(lone_lane());
            for (std::uint32_t round = 1; round <= kRoundsPerLane; ++round) {
                End& end = *ends[dice.below(kQueuePairs)];
                SendTicket ticket;
                const auto poll_once = [&] {
                    arrived += poll(me, cq.ref, set, [&](const Arrival& got) {
                                   if (got.is_error() || got.queue >= kQueuePairs || got.dw3 >= kLanes ||
                                       got.word(1) != kCapsuleBytes || got.bytes() != 16)
                                       ++wrong;
                                   else
                                       simt::store_release<simt::Scope::kDevice>(&answers[got.dw3 * 16],
                                                                                 got.word(0));
                               }).arrived;
                };
                // At most receive_entries messages may be out on a queue pair: 6 lanes, one each, and 8
                // receives.
                if (!eventually([&] {
                        ticket = try_reserve(me, end.send, true);
                        if (!ticket.granted()) poll_once();
                        return ticket.granted() || end.send.broken();
                    }) ||
                    !ticket.granted()) {
                    ++wrong;
                    return;
                }
                // The capsule belongs to the send entry: same slot, free when the entry is.
                const std::size_t at = std::size_t{end.send.slot(ticket.index)} * kCapsuleBytes;
                auto* const capsule = reinterpret_cast<std::uint32_t*>(end.payload.data() + at);
                const auto tag = static_cast<std::uint32_t>(dice.next() | 1);
                capsule[0] = tag;
                capsule[1] = lane;
                for (std::uint32_t i = 2; i < kCapsuleBytes / 4; ++i) capsule[i] = tag * 31 + i;
                if (dice.below(2) == 0)
                    end.send.fill_send(ticket, end.data(at, kCapsuleBytes));
                else
                    end.send.fill_send(ticket, end.data(at, 16), end.data(at + 16, 40), end.data(at + 56, 8));
                publish_and_ring(me, end.send, ticket);
                if (!eventually([&] {
                        if (simt::load_acquire<simt::Scope::kDevice>(&answers[lane * 16]) == tag) return true;
                        poll_once();
                        return false;
                    })) {
                    ++wrong;
                    return;
                }
                if (windows[lane * 16] != tag) ++wrong;  // the answer implies the window's data
            }
        };
        std::vector<std::thread> threads;
        for (std::uint32_t lane = 0; lane < kLanes; ++lane) threads.emplace_back(lane_body, lane);
        for (std::thread& t : threads) t.join();
        std::uint64_t messages = 0, bad = 0;
        for (std::uint32_t q = 0; q < kQueuePairs; ++q) {
            must(b->destroy_queue_pair(offloads[q]));
            reactor_b->remove(sinks[q]);
            messages += sinks[q].messages;
            bad += sinks[q].broken_capsules;
        }
        const std::uint64_t total = std::uint64_t{kLanes} * kRoundsPerLane;
        EXPECT_EQ(wrong.load(), 0u) << "seed " << load.seed;
        EXPECT_EQ(bad, 0u) << "seed " << load.seed;
        EXPECT_EQ(messages, total);
        EXPECT_EQ(arrived.load(), total);
        EXPECT_EQ(a->counters().strict_violations + b->counters().strict_violations, 0u)
            << "seed " << load.seed;
        std::uint64_t least = ~0ull;
        for (const auto& end : ends) least = std::min(least, end->send_state->reserved / end->send.entries());
        const std::uint64_t cq_laps = total / cq.ref.entries();
        std::printf(
            "lanes: %llu messages, send queues wrapped at least %llu times, completions %llu times, %llu "
            "bells (scatter %d, "
            "strict %d, seed %llu)\n",
            static_cast<unsigned long long>(total), static_cast<unsigned long long>(least),
            static_cast<unsigned long long>(cq_laps), static_cast<unsigned long long>(a->counters().bells),
            load.scatter, load.strict, static_cast<unsigned long long>(load.seed));
        EXPECT_GE(least, 1000u) << "the floor of this test: every queue wraps a thousand times";
        EXPECT_GE(cq_laps, 1000u);
        ends.clear();
        must(a->deregister_memory(window_keys));
    }
}

TEST(Lanes, PingPongThroughSharedQueuesInline) {
    run_load({true, false, seed_from_environment(1)});
}
TEST(Lanes, PingPongThroughSharedQueuesInBuffers) {
    run_load({false, false, seed_from_environment(2)});
}
TEST(Lanes, PingPongUnderStrictModeInline) {
    run_load({true, true, seed_from_environment(3)});
}
TEST(Lanes, PingPongUnderStrictModeInBuffers) {
    run_load({false, true, seed_from_environment(4)});
}

}  // namespace
}  // namespace gnstor::rdma::test
