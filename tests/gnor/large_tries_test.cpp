// large_tries_test.cpp: requests of several commands that are sent now or not at all, or until a deadline.
// What does not fit beside others fits after them; what is told of those that were sent in part; bells of
// those that nobody commits.
#include <gtest/gtest.h>

#include <thread>

#include "gnor/bench.hpp"

namespace gnstor::test::large_tries_test {

/// Each member of a warp has requests of `blocks` commands each, all of them at once.
struct LargeBatches {
    Common common;
    Batch<32>* batch;
    std::uint32_t blocks;
    std::uint32_t rounds;
    bool may_break = false;  ///< queue pairs: then kQueueError is a result, and the buffer may be held

    GN_HD
    void check(Status status, Status otherwise) const {
        common.expect(may_break && status == otherwise ? Status::kSuccess : status);
    }
    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const auto me = simt::self(lane);
        const ChannelRef channel = common.channels.mine(lane);
        batch->init(group, lane);
        auto* const buffer = static_cast<std::byte*>(channel.alloc(me, blocks * std::uint64_t{4096}));
        const Deadline deadline = common.deadline();
        std::uint32_t done = 0;
        while (group.any(done < rounds) && !group.any(deadline.passed())) {
            const bool want = done < rounds && !batch->is_pending(lane);
            const IoRequest request{lane.thread * blocks, blocks, buffer, 0, 0};
            const Status sent = batch->submit(group, lane, common.volume, channel, nvme::IoOpcode::kWrite,
                                              want ? &request : nullptr);
            if (want && sent != Status::kSuccess && sent != Status::kTooManyPending) {
                check(sent, Status::kQueueError);
                ++done;
            }
            batch->commit(group, lane, channel);
            batch->poll(group, channel);
            const BatchResult result = batch->dispatch(group, lane, channel);
            if (!result.finished) continue;
            check(result.status, Status::kQueueError);
            ++done;
        }
        if (done != rounds) common.expect(Status::kTimedOut);
        check(channel.free(me, buffer), Status::kBufferInUse);
    }
};

class LargeTries : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Width, LargeTries, ::testing::Values(2u, 7u, 12u));

RigOptions narrow(std::uint32_t ssds, std::uint32_t replicas) {
    RigOptions o = options_of(1, 8);
    o.ssds = ssds;
    o.replicas = replicas;
    o.chunk_shift = 0;
    return o;
}

// Credits: 8 for all. Members that take theirs in step have 8 / width each, and none has enough.
TEST_P(LargeTries, MembersOfAWarpDoNotBlockEachOther) {
    for (const std::uint32_t replicas : {1u, 2u}) {
        Bench b(narrow(replicas, replicas), 1, 64);
        b.common.timeout_ns = kLong;
        auto batch = simt::DeviceMemory::allocate(sizeof(Batch<32>), simt::LanesKind::kCpu).value();
        b.test_warps(1, GetParam(), LargeBatches{b.common, batch.lane_as<Batch<32>>(), 8, 2});
        b.expect_good(GetParam() * 3);
        b.rig.expect_clean();
    }
}

TEST(LargeTry, ARequestSentInPartAtItsDeadlineIsReportedAsInFlight) {
    Rig rig(narrow(1, 1));
    const VolumeRef v = rig.volume();
    const ChannelRef ch = rig.channel();
    rig.drives[0]->set_rule([](const auto&, const auto&) { return Decision{Decision::kNever}; });
    void* const buffer = ch.alloc(kMe, 16 * 4096);
    const auto read = [&](Deadline until) {
        return v.read_async(simt::Lane{}, ch, 0, 16, buffer, until).status;
    };
    EXPECT_EQ(sent_in(kShort, read), Status::kTimedOut);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse);
    // Nothing of this one goes out: no credit is left.
    void* const other = ch.alloc(kMe, 4096);
    const Token second = v.read_async(simt::Lane{}, ch, 0, 1, other, Deadline::in_ns(kShort));
    EXPECT_EQ(second.status, Status::kNotSent);
    EXPECT_EQ(ch.free(kMe, other), Status::kSuccess);
    rig.wait_kept(8);
    rig.drives[0]->set_rule({});
    rig.drives[0]->answer_kept();
    rig.channels[0]->quiesce(Deadline::in_ns(kLong)).value();
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

// Command slots: 64. Earlier requests, answered and not waited for, hold 30 of them.
TEST(LargeTry, ALaneThatWaitsForCommandEntriesHoldsOnlyThoseOfUnansweredCommands) {
    Rig rig(narrow(1, 1));
    const VolumeRef v = rig.volume();
    const ChannelRef ch = rig.channel();
    const Deadline late = Deadline::in_ns(kLong);
    void* const buffer = ch.alloc(kMe, 64 * 4096);
    std::vector<Token> held;
    for (std::uint32_t i = 0; i < 30; ++i) held.push_back(v.read_async(simt::Lane{}, ch, i, 1, buffer, late));
    rig.channels[0]->quiesce(late).value();
    ASSERT_EQ(rig.channels[0]->usage().value().slots_taken, 30u);
    EXPECT_EQ(ch.wait(kMe, v.read_async(simt::Lane{}, ch, 100, 64, buffer, late), late), Status::kSuccess);
    // What the first of its commands said is not lost when it leaves the request before the last one is sent.
    rig.drives[0]->set_rule([](const auto&, const nvme::IoFields& f) {
        return f.block == 200 ? Decision{Decision::kRefuse, Status::kAccessDenied, 0} : Decision{};
    });
    const Token refused = v.read_async(simt::Lane{}, ch, 200, 64, buffer, late);
    ASSERT_TRUE(refused.in_flight());
    EXPECT_EQ(ch.wait(kMe, refused, late), Status::kAccessDenied);
    auto called = Status::kSuccess;
    const auto note = [](void* to, Status status) { *static_cast<Status*>(to) = status; };
    ASSERT_EQ(v.read_async(simt::Lane{}, ch, 200, 64, buffer, +note, &called, late), Status::kSuccess);
    rig.channels[0]->quiesce(late).value();
    EXPECT_EQ(called, Status::kAccessDenied);
    EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 30u);
    for (const Token& token : held) EXPECT_EQ(ch.wait(kMe, token, late), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

// A lane waits for credits of a drive that does not answer; lanes that only try have nothing to do with it.
TEST(LargeTry, ATryCallIsNotDelayedByALaneThatWaits) {
    Rig rig(narrow(2, 1));
    const VolumeRef v = rig.volume();
    const ChannelRef ch = rig.channel();
    std::uint32_t block = 1000;  // two neighbours on the drive that answers
    while (rig.replicas_of(block).slot[0] != 1 || rig.replicas_of(block + 1).slot[0] != 1) ++block;
    void* const buffer = ch.alloc(kMe, 64 * 4096);
    void* const other = ch.alloc(kMe, 2 * 4096);
    rig.drives[0]->set_rule([](const auto&, const auto&) { return Decision{Decision::kNever}; });
    const Deadline late = Deadline::in_ns(kLong);
    Token waiting;
    std::thread waiter([&] { waiting = v.read_async(simt::Lane{}, ch, 0, 64, buffer, late); });
    while (rig.drives[0]->kept() != 8 && !late.passed()) std::this_thread::yield();
    Token tried;
    const Deadline end = Deadline::in_ns(kLong);
    while (!tried.in_flight() && !end.passed()) {
        tried = v.try_read_async(simt::Lane{}, ch, block, 2, other);
        if (!tried.in_flight()) {
            EXPECT_EQ(tried.status, Status::kTooManyPending);
            std::this_thread::yield();
        }
    }
    EXPECT_EQ(tried.status, Status::kSuccess);
    EXPECT_EQ(ch.wait(kMe, tried, late), Status::kSuccess);
    rig.drives[0]->set_rule({});
    rig.drives[0]->answer_kept();
    waiter.join();
    EXPECT_EQ(ch.wait(kMe, waiting, late), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, other), Status::kSuccess);
    rig.expect_clean();
}

TEST(LargeTry, ABatchAbandonedBeforeItsCommitIsSent) {
    Rig rig(narrow(2, 2));
    const ChannelRef ch = rig.channel();
    void* const buffer = ch.alloc(kMe, 4096);
    auto memory = simt::DeviceMemory::allocate(sizeof(Batch<32>), simt::LanesKind::kCpu).value();
    Batch<32>& batch = *memory.lane_as<Batch<32>>();
    const simt::Lane lane{};
    batch.init(kMe, lane);
    const IoRequest request{0, 1, buffer, 0, 0};
    ASSERT_EQ(batch.submit(kMe, lane, rig.volume(), ch, nvme::IoOpcode::kWrite, &request), Status::kSuccess);
    batch.abandon(kMe, lane, ch);
    rig.channels[0]->quiesce(Deadline::in_ns(kLong)).value();
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

// One queue pair after the other breaks under a warp that reserves entries on all of them.
TEST_P(LargeTries, QueuePairsThatBreakUnderAWarpLoseNoCreditSlotOrEntry) {
    std::uint64_t broken = 0;
    for (const std::uint32_t replicas : {1u, 2u, 3u, 4u}) {
        Bench b(narrow(4, replicas), 1, 64);
        auto batch = simt::DeviceMemory::allocate(sizeof(Batch<32>), simt::LanesKind::kCpu).value();
        for (std::uint32_t slot = 0; slot < 4; ++slot) {
            std::uint32_t served = 0;
            b.rig.drives[slot]->set_rule([served, slot](const auto&, const auto&) mutable {
                return ++served == 3 + 2 * slot ? Decision{Decision::kBreak} : Decision{};
            });
        }
        b.test_warps(1, GetParam(), LargeBatches{b.common, batch.lane_as<Batch<32>>(), 3, 30, true});
        b.expect_good(GetParam() * 31);
        gnor::ChannelState& c = b.rig.channel().state();
        for (std::uint32_t slot = 0; slot < 4; ++slot) {
            const rdma::SendQueueState& send = c.queue(slot).send;
            EXPECT_EQ(send.published, send.reserved) << "slot " << slot << ", GN_SEED=" << b.common.seed;
            EXPECT_EQ(send.rung, send.reserved) << "slot " << slot << ", GN_SEED=" << b.common.seed;
            broken += gnor::is_broken(c, slot) ? 1 : 0;
            b.rig.drives[slot]->set_rule({});
            b.rig.channels[0]->reclaim(slot).value();
            b.rig.connect(0, slot);
        }
        b.rig.channels[0]->quiesce(Deadline::in_ns(kLong)).value();
        const auto usage = b.rig.channels[0]->usage().value();
        EXPECT_EQ(usage.slots_taken, 0u);
        EXPECT_EQ(b.rig.channels[0]->counters().value().quarantined, 0u);
        for (std::uint32_t slot = 0; slot < 4; ++slot) EXPECT_EQ(c.queue(slot).outstanding, 0u);
        void* const buffer = b.rig.channel().alloc(kMe, 4096);
        for (std::uint32_t block = 0; block < 64; ++block)
            ASSERT_EQ(b.common.volume.write(kMe, b.rig.channel(), block, 1, buffer, Deadline::in_ns(kLong)),
                      Status::kSuccess);
    }
    EXPECT_GE(broken, 4u);
    std::printf("  %llu queue pairs broke\n", static_cast<unsigned long long>(broken));
}

/// Lanes whose replicas lie in different orders take one credit of each queue, each for itself, at the same
/// moment, when all are there.
struct LanesTakeCredits {
    Common common;
    std::uint32_t rounds;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        gnor::ChannelState& c = common.channels.mine(lane).state();
        const std::uint32_t mine = lane.thread;
        for (auto& target : c.slot(mine).target) target = gnor::kNoTarget;
        for (std::uint32_t r = 0; r < c.queues; ++r)
            c.slot(mine).target[r] = static_cast<std::uint8_t>((mine + r) % c.queues);
        for (std::uint32_t round = 0; round < rounds; ++round) {
            group.sync();
            const bool got = gnor::take_all_credits(simt::self(lane), c, true, mine);
            const bool one = group.any(got);
            if (got)
                for (std::uint32_t q = 0; q < c.queues; ++q) gnor::give_credits(c.queue(q), 1);
            if (group.is_leader()) common.expect(one ? Status::kSuccess : Status::kTooManyPending);
        }
    }
};

TEST(LargeTry, OfLanesThatTakeCreditsAtTheSameTimeOneGetsAll) {
    RigOptions o = narrow(3, 3);
    o.depth = 2;
    Bench b(o, 1, 64);
    b.test_warps(1, 6, LanesTakeCredits{b.common, 3000});
    b.expect_good(3000);
    b.rig.expect_clean();
}

}  // namespace gnstor::test::large_tries_test
