// lanes_test.cpp: lanes drive the software NIC: several lanes, each a one-lane warp in a thread of its own,
// on shared send queues and one shared receive completion queue. Queues are tiny, so that all of them wrap
// often.
#include "rdma/answering.hpp"

#include <thread>

namespace gnstor::rdma::test {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(GN_TEST_WARPS)
constexpr std::uint32_t kRoundsPerLane = 6'000;
#else
constexpr std::uint32_t kRoundsPerLane = 20'000;
#endif
constexpr std::uint32_t kLanes = 6;  // one message each, and a trip of the poller: 16 receives are enough

void lane_body(AnsweredNet& net, std::uint32_t lane) {
    SplitMix64 dice(net.options.seed * 977 + lane);
    const auto me = simt::self(single_lane());
    for (std::uint32_t round = 1; round <= kRoundsPerLane; ++round) {
        const auto queue = static_cast<std::uint32_t>(dice.below(net.options.queue_pairs));
        const SendQueueRef& send = net.ends[queue]->send;
        SendTicket ticket;
        const bool granted = eventually([&] {
            ticket = try_reserve(me, send, true);
            if (!ticket.granted()) net.poll_once(me);
            return ticket.granted() || send.broken();
        });
        if (!granted || !ticket.granted()) {
            ++net.wrong;
            return;
        }
        const auto tag = static_cast<std::uint32_t>(dice.next() | 1);
        net.fill(queue, ticket, lane, tag, dice.below(2) == 0);
        publish_and_ring(me, send, ticket);
        if (!eventually([&] {
                if (net.answered(lane, tag)) return true;
                net.poll_once(me);
                return false;
            })) {
            ++net.wrong;
            return;
        }
    }
}

void run_load(bool scatter, bool strict, std::uint64_t seed) {
    NetOptions o;
    o.lanes = kLanes;
    o.receive_log2 = 4;
    o.cq_log2 = 5;
    o.scatter = scatter;
    o.strict = strict;
    o.seed = seed_from_environment(seed);
    AnsweredNet net(o);
    std::vector<std::thread> threads;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane)
        threads.emplace_back([&net, lane] { lane_body(net, lane); });
    for (std::thread& t : threads) t.join();
    net.close();
    net.expect_right(std::uint64_t{kLanes} * kRoundsPerLane, 1000, 1000);
}

TEST(Lanes, PingPongThroughSharedQueuesInline) {
    run_load(true, false, 1);
}
TEST(Lanes, PingPongThroughSharedQueuesInBuffers) {
    run_load(false, false, 2);
}
TEST(Lanes, PingPongUnderStrictModeInline) {
    run_load(true, true, 3);
}
TEST(Lanes, PingPongUnderStrictModeInBuffers) {
    run_load(false, true, 4);
}

}  // namespace
}  // namespace gnstor::rdma::test
