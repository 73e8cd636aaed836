// warps_test.cpp: warps of many lanes drive the software NIC with the group forms: members reserve together,
// one rings for all, a whole warp polls. Lanes leave at different times.
#include "rdma/answering.hpp"

#include "support/test_warp.hpp"

namespace gnstor::rdma::test {
namespace {

/// Rounds of one lane: not all the same, so that lanes leave early.
std::uint32_t rounds_of(std::uint32_t lane, std::uint32_t most) {
    return most - lane % 3;
}

void lane_body(AnsweredNet& net, simt::Lane lane, std::uint32_t most) {
    const auto id = static_cast<std::uint32_t>(lane.grid_rank());
    SplitMix64 dice(net.options.seed * 131 + id);
    const std::uint32_t rounds = rounds_of(id, most);
    const auto deadline = simt::Deadline::in_ns(200'000'000'000u);
    bool out = false;
    std::uint32_t tag = 0;
    std::uint32_t backoff = 0;
    auto queue = static_cast<std::uint32_t>(dice.below(net.options.queue_pairs));
    for (std::uint32_t round = 0; round < rounds;) {
        const auto group = simt::warp(lane);  // whoever has rounds left
        const bool wants = !out && dice.below(4) != 0;
        const SendQueueRef& send = net.ends[queue]->send;
        SendTicket ticket = try_reserve(group, send, wants);
        if (ticket.granted()) {
            tag = static_cast<std::uint32_t>(dice.next() | 1);
            net.fill(queue, ticket, id, tag, dice.below(2) == 0);
            out = true;
        }
        publish_and_ring(group, send, ticket);
        net.poll_once(group);
        if (out && net.answered(id, tag)) {
            out = false;
            ++round;
            backoff = 0;
            queue = static_cast<std::uint32_t>(dice.below(net.options.queue_pairs));
        }
        simt::pause(backoff);
        if (deadline.passed() || send.broken()) {
            ++net.wrong;
            return;
        }
    }
}

void run_load(std::uint32_t warps, std::uint32_t lanes, std::uint32_t receive_log2, bool scatter,
              std::uint32_t rounds, std::uint64_t seed) {
    NetOptions o;
    o.lanes = warps * lanes;
    o.receive_log2 =
        receive_log2;  // for every lane's answer, and again for a trip of the poller (poller.hpp)
    o.cq_log2 = receive_log2 + 1;
    o.scatter = scatter;
    o.seed = seed_from_environment(seed);
    AnsweredNet net(o);
    simt::TestWarpOptions w;
    w.warps = warps;
    w.lanes = lanes;
    w.seed = o.seed;
    const auto ran = simt::run_test_warps(w, [&](simt::Lane lane) { lane_body(net, lane, rounds); });
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    net.close();
    std::uint64_t total = 0;
    for (std::uint32_t lane = 0; lane < o.lanes; ++lane) total += rounds_of(lane, rounds);
    net.expect_right(total, 100, 20);
}

TEST(Warps, OneLaneEach) {
    run_load(4, 1, 3, true, 1000, 11);
}
TEST(Warps, OneOf32LanesInline) {
    run_load(1, 32, 6, true, 100, 12);
}
TEST(Warps, OneOf32LanesInBuffers) {
    run_load(1, 32, 6, false, 100, 13);
}
TEST(Warps, ThreeOf5LanesInBuffers) {
    run_load(3, 5, 5, false, 200, 14);
}

}  // namespace
}  // namespace gnstor::rdma::test
