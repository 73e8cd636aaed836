// broken_callbacks_test.cpp: callbacks of requests whose queue pair broke: each runs once, with kQueueError,
// without a reclaim and not before the answers that may still come.
#include <gtest/gtest.h>

#include <algorithm>

#include "gnor/bench.hpp"
#include "support/count.hpp"

namespace gnstor::test {
namespace {

using nvme::IoFields;
using nvme::IoOpcode;

struct Calls {
    std::uint32_t count = 0;  // atomics
    std::uint32_t status = 0;
    static void note(void* argument, Status status) {
        auto* calls = static_cast<Calls*>(argument);
        simt::store_relaxed<simt::Scope::kDevice>(&calls->status, static_cast<std::uint32_t>(status));
        simt::fetch_add<simt::Scope::kDevice>(&calls->count, 1u);
    }
    [[nodiscard]] std::uint32_t made() const { return simt::load_acquire<simt::Scope::kDevice>(&count); }
    [[nodiscard]] Status last() const { return static_cast<Status>(status); }
};

ModelDrive::Rule always(Decision::Kind kind) {
    return [kind](const nvme::Command&, const IoFields&) { return Decision{kind, {}, 0}; };
}

class BrokenCallbacks : public ::testing::Test {
  protected:
    void poll_until(const Calls& calls, Deadline until) {
        while (calls.made() == 0 && !until.passed()) ch.poll(kMe);
    }
    void poll_until_broken(std::uint32_t slot) {
        const Deadline until = late();
        while (!gnor::is_broken(ch.state(), slot) && !until.passed()) ch.poll(kMe);
    }
    void mend(std::uint32_t slot) {
        rig.drives[slot]->set_rule({});
        rig.channels[0]->reclaim(slot).value();
        rig.connect(0, slot);
    }
    std::byte* pool(std::uint64_t bytes) { return static_cast<std::byte*>(ch.alloc(kMe, bytes)); }

    Rig rig{};
    VolumeRef v = rig.volume();
    ChannelRef ch = rig.channel();
};

TEST_F(BrokenCallbacks, ACallbackOfAReadRunsWithoutReclaim) {
    auto* buffer = pool(4096);
    const std::uint32_t slot = rig.replicas_of(0).slot[0];
    rig.drives[slot]->set_rule(always(Decision::kBreak));
    Calls calls;
    ASSERT_EQ(v.read_async(simt::Lane{}, ch, 0, 1, buffer, &Calls::note, &calls, late()), Status::kSuccess);
    poll_until(calls, late());
    EXPECT_EQ(calls.made(), 1u);
    EXPECT_EQ(calls.last(), Status::kQueueError);
    EXPECT_EQ(rig.channels[0]->counters().value().quarantined, 1u);
    mend(slot);
    EXPECT_EQ(calls.made(), 1u);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(BrokenCallbacks, ACallbackOfAWriteRunsOnceTheHealthyReplicaHasAnsweredAndNotBefore) {
    auto* buffer = pool(4096);
    const auto replicas = rig.replicas_of(0);
    for (const std::uint32_t broken : {0u, 1u}) {
        ModelDrive& healthy = *rig.drives[replicas.slot[1 - broken]];
        healthy.set_rule(always(Decision::kNever));
        rig.drives[replicas.slot[broken]]->set_rule(always(Decision::kBreak));
        Calls calls;
        ASSERT_EQ(v.write_async(simt::Lane{}, ch, 0, 1, buffer, &Calls::note, &calls, late()),
                  Status::kSuccess);
        poll_until_broken(replicas.slot[broken]);
        poll_until(calls, soon());
        EXPECT_EQ(calls.made(), 0u) << "an answer is still to come";
        healthy.set_rule({});
        healthy.answer_kept();
        poll_until(calls, late());
        EXPECT_EQ(calls.made(), 1u);
        EXPECT_EQ(calls.last(), Status::kQueueError);
        mend(replicas.slot[broken]);
    }
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(BrokenCallbacks, ACallbackOfALongRequestRunsAtItsEndAlsoIfTheQueuePairWasReclaimed) {
    constexpr std::uint32_t kChunks = 4;
    auto* buffer = pool(kChunks * 65536);
    auto* other = pool(4096);
    std::uint64_t rounds = 0;
    for (std::uint32_t broken = 0; broken < 4; ++broken)
        for (const bool reclaimed : {false, true}) {
            bool touched = false, kept = false;
            for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
                const bool hit = rig.replicas_of(chunk * 16).slot[0] == broken;
                touched |= hit;
                kept |= !hit;
            }
            if (!touched || !kept) continue;
            for (auto& d : rig.drives) d->set_rule(always(Decision::kNever));
            rig.drives[broken]->set_rule(always(Decision::kBreak));
            Calls calls;
            ASSERT_EQ(v.read_async(simt::Lane{}, ch, 0, kChunks * 16, buffer, &Calls::note, &calls, late()),
                      Status::kSuccess);
            poll_until_broken(broken);
            poll_until(calls, soon());
            EXPECT_EQ(calls.made(), 0u) << "answers are still to come";
            for (auto& d : rig.drives) d->set_rule({});
            if (reclaimed) {
                mend(broken);
                // Slots that are free go round: the request's own first one must not be among them.
                for (std::uint32_t i = 0; i < 256; ++i)
                    ASSERT_EQ(v.read(kMe, ch, 0, 1, other, late()), Status::kSuccess);
            }
            EXPECT_EQ(calls.made(), 0u);
            for (auto& d : rig.drives) d->answer_kept();
            poll_until(calls, late());
            EXPECT_EQ(calls.made(), 1u);
            EXPECT_EQ(calls.last(), Status::kQueueError);
            if (!reclaimed) mend(broken);
            EXPECT_EQ(calls.made(), 1u);
            ++rounds;
        }
    EXPECT_GE(rounds, 4u);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, other), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(BrokenCallbacks, ACallbackAttachedAfterTheQueuePairFailedRunsToo) {
    auto* buffer = pool(4096);
    const std::uint32_t slot = rig.replicas_of(0).slot[0];
    rig.drives[slot]->set_rule(always(Decision::kBreak));
    const Token token = v.read_async(simt::Lane{}, ch, 0, 1, buffer, late());
    ASSERT_TRUE(token.in_flight());
    poll_until_broken(slot);
    for (std::uint32_t i = 0; i < 100; ++i) ch.poll(kMe);
    Calls calls;
    gnor::attach_callback(ch.state(), token.head, PointerCallback{&Calls::note, &calls});
    poll_until(calls, late());
    EXPECT_EQ(calls.made(), 1u);
    EXPECT_EQ(calls.last(), Status::kQueueError);
    mend(slot);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

/// Each lane sends reads and writes with callbacks until its queue pairs break, and waits for all of them by
/// polling alone.
struct SendsThroughABreak {
    static constexpr std::uint32_t kRequests = 24;
    Common common;
    Calls* calls;         ///< one a lane
    std::uint32_t* sent;  ///< likewise
    GN_HD void operator()(simt::Lane lane) const {
        const ChannelRef ch = common.channels.mine(lane);
        const auto me = simt::self(lane);
        const std::uint32_t rank = lane.warp_rank() * 32 + me.lane();
        auto* buffer = static_cast<std::byte*>(ch.alloc(me, 4096));
        const Deadline until = Deadline::in_ns(common.timeout_ns);
        for (std::uint32_t i = 0; i < kRequests && buffer != nullptr; ++i) {
            const std::uint32_t block = (rank * kRequests + i) * 16;
            const Status status = i % 2 == 0 ? common.volume.read_async(lane, ch, block, 1, buffer,
                                                                        &Calls::note, calls + rank, until)
                                             : common.volume.write_async(lane, ch, block, 1, buffer,
                                                                         &Calls::note, calls + rank, until);
            if (nvme::ok(status)) ++sent[rank];
        }
        std::uint32_t backoff = 0;
        while (calls[rank].made() != sent[rank] && !until.passed())
            if (ch.poll(me) == 0) simt::pause(backoff);
    }
};

TEST(BrokenCallbacksOfManyLanes, RunOnceEachWhileTheQueuePairStaysBroken) {
    std::uint64_t called = 0, broken = 0;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        RigOptions o = options_of(1);
        o.seed = seed_from_environment(seed);
        Bench b(o, 1, 4096);
        constexpr std::uint32_t kWarps = 6, kLanes = 4;
        std::vector<Calls> calls(kWarps * 32);
        std::vector<std::uint32_t> sent(calls.size());
        b.rig.drives[seed % 4]->set_rule([n = 0u](const nvme::Command&, const IoFields&) mutable {
            return Decision{++n == 20 ? Decision::kBreak : Decision::kServe, {}, n % 5};
        });
        b.test_warps(kWarps, kLanes, SendsThroughABreak{b.common, calls.data(), sent.data()});
        for (std::size_t i = 0; i < calls.size(); ++i) {
            EXPECT_EQ(calls[i].made(), sent[i]) << "lane " << i << ", seed " << o.seed;
            called += calls[i].made();
        }
        broken += b.rig.channels[0]->counters().value().quarantined;
    }
    count("gnor_broken_callbacks", called);
    std::printf("  %llu commands were owed by broken queue pairs\n", static_cast<unsigned long long>(broken));
    EXPECT_GT(broken, 0u);
}

}  // namespace
}  // namespace gnstor::test
