// turns_test.cpp: what two lanes do to each other's slots, credits and pool blocks at every place where they
// can meet (turns.hpp), and who gets them back. Where atomics do not yield (no GN_TEST_WARPS) only what can
// be seen between whole steps is tested.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "gnor/pool_plan.hpp"
#include "gnor/rig.hpp"
#include "gnor/turns.hpp"

namespace gnstor::test {
namespace {

/// A command slot with two answers missing and a pool buffer, on a channel whose NIC has nothing to do.
class SlotRig {
  public:
    std::uint32_t begin(gnor::SlotState state) {
        index = gnor::take_slot(kMe, c, true, 0);
        gnor::CommandSlot& slot = c.slot(index);
        slot.pool_first = gnor::take_pool_run(c, 1, 0);
        slot.opcode = static_cast<std::uint8_t>(nvme::IoOpcode::kRead);
        slot.sectors = 0;
        slot.blocks = 1;
        slot.target[0] = 0;
        slot.target[1] = 1;
        slot.control |= 3u;
        cid = gnor::command_id(c, index);
        if (state == gnor::SlotState::kAbandoned) {
            EXPECT_TRUE(gnor::leave_slot(c, index));
        }
        answered = 0;
        return index;
    }
    void answer(std::uint32_t queue) { answered += gnor::settle(c, queue, cid, Status::kSuccess) ? 1 : 0; }
    /// In quarantine: nobody else gets the slot or its buffer.
    void expect_held() {
        EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 1u);
        EXPECT_EQ(free_blocks(), rig.options.pool_bytes / 4096 - 1);
        EXPECT_EQ(rig.channels[0]->counters().value().quarantined, 1u);
    }
    void expect_free() {
        EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 0u);
        EXPECT_EQ(free_blocks(), rig.options.pool_bytes / 4096);
        EXPECT_EQ(rig.channels[0]->counters().value().quarantined, 0u);
    }

    Rig rig{};
    gnor::ChannelState& c = rig.channel().state();
    std::uint32_t index = 0, answered = 0;
    std::uint16_t cid = 0;

  private:
    std::uint32_t free_blocks() { return rig.channels[0]->usage().value().pool_blocks_free; }
};

TEST(Slots, ACompletionIsAcceptedOnceAndOnlyFromTheCommandsOwnDrive) {
    SlotRig s;
    s.begin(gnor::SlotState::kOwned);
    EXPECT_FALSE(gnor::settle(s.c, 2, s.cid, Status::kSuccess)) << "of a drive that was not asked";
    const auto other = static_cast<std::uint16_t>(s.cid ^ (1u << s.c.slot_bits));
    EXPECT_FALSE(gnor::settle(s.c, 0, other, Status::kSuccess)) << "of another generation";
    s.answer(0);
    s.answer(0);
    EXPECT_EQ(s.answered, 1u) << "twice";
    s.answer(1);
    EXPECT_EQ(s.answered, 2u);
    EXPECT_FALSE(gnor::leave_slot(s.c, s.index));
    s.expect_free();
    const std::uint16_t before = s.cid;
    s.begin(gnor::SlotState::kOwned);
    while (s.index != (before & (s.c.command_slots - 1u))) s.begin(gnor::SlotState::kOwned);
    EXPECT_NE(s.cid, before) << "the slot's next command must not take the earlier one's late answer";
    EXPECT_FALSE(gnor::settle(s.c, 0, before, Status::kSuccess));
}

TEST(Channels, DescribeWhoHoldsResourcesAndWhichCommandsAreUnanswered) {
    SlotRig s;
    const auto says = [&](const std::string& words) {
        const std::string text = s.rig.channels[0]->describe().value();
        return text.find(words) != std::string::npos;
    };
    EXPECT_TRUE(says("64 of 64 command slots free") || says("128 of 128 command slots free"));
    EXPECT_TRUE(says("no group is polling"));
    s.begin(gnor::SlotState::kOwned);
    EXPECT_TRUE(says("1 waited for, 0 abandoned"));
    EXPECT_TRUE(says("queue 1: 0 of 32 credits in use, 1 answers missing"));
    EXPECT_TRUE(says("queue 2: 0 of 32 credits in use, 0 answers missing"));
    gnor::leave_slot(s.c, s.index);
    EXPECT_TRUE(says("0 waited for, 1 abandoned"));
    ASSERT_EQ(gnor::take_credits(s.c, s.c.queue(2), 3), 3u);
    s.c.completions.lock = 1;
    s.c.queue(2).send.ringing = 1;
    EXPECT_TRUE(says("a group is polling"));
    EXPECT_TRUE(says("queue 2: 3 of 32 credits in use"));
    EXPECT_TRUE(says("a lane is ringing"));
}

TEST(Slots, InQuarantineKeepTheirPoolBufferUntilTheLastAnswer) {
    SlotRig s;
    s.begin(gnor::SlotState::kAbandoned);
    s.expect_held();
    s.answer(1);
    s.expect_held();
    s.answer(0);
    s.expect_free();
}

/// Credits of each queue that are out.
class Credits : public ::testing::Test {
  protected:
    void expect_out(std::uint32_t slot, std::uint32_t credits, const char* when) {
        EXPECT_EQ(c.queue(slot).outstanding, credits) << "slot " << slot << ", " << when;
    }
    void expect_none_out(const char* when) {
        for (std::uint32_t slot = 0; slot < rig.options.ssds; ++slot) expect_out(slot, 0, when);
    }
    Rig rig{[] {
        RigOptions o;
        o.ssds = 2;
        o.depth = 4;
        return o;
    }()};
    VolumeRef v = rig.volume();
    ChannelRef ch = rig.channel();
    gnor::ChannelState& c = ch.state();
    void* const buffer = ch.alloc(kMe, 4096);
    const Deadline late = Deadline::in_ns(kLong);
};

TEST_F(Credits, AreReturnedExactlyOncePerAnswer) {
    ASSERT_EQ(v.read(kMe, ch, 0, 1, buffer, late), Status::kSuccess);
    expect_none_out("after a read");
    ASSERT_FALSE(HasFailure());
    ASSERT_EQ(v.write(kMe, ch, 0, 1, buffer, late), Status::kSuccess);
    expect_none_out("after a write");
    // A command that is answered twice, while another one is under way.
    const std::uint32_t slot = rig.replicas_of(0).slot[0];
    rig.drives[slot]->set_rule([](const auto&, const auto&) { return Decision{Decision::kNever}; });
    const Token running = v.read_async(simt::Lane{}, ch, 0, 1, buffer, late);
    while (rig.drives[slot]->kept() == 0 && !late.passed()) (void)ch.poll(kMe);
    rig.drives[slot]->set_rule([](const auto&, const auto&) { return Decision{Decision::kTwice}; });
    EXPECT_EQ(v.read(kMe, ch, 0, 1, buffer, late), Status::kSuccess);
    while (rig.channels[0]->counters().value().stale == 0 && !late.passed()) (void)ch.poll(kMe);
    expect_out(slot, 1, "after a second answer to a command");
    rig.drives[slot]->set_rule({});
    rig.drives[slot]->answer_kept();
    EXPECT_EQ(ch.wait(kMe, running, late), Status::kSuccess);
    expect_none_out("after all answers");
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Credits, TakenByATryOfSeveralCommandsThatFindsTooFewAreReturned) {
    const std::uint32_t full = rig.replicas_of(0).slot[0], other = 1 - full;
    rig.drives[full]->set_rule([](const auto&, const auto&) { return Decision{Decision::kNever}; });
    std::vector<Token> tokens;
    for (std::uint32_t i = 0; i + 1 < rig.options.depth; ++i)
        tokens.push_back(v.read_async(simt::Lane{}, ch, 0, 1, buffer, late));
    // The first of two commands finds what it needs of both queues, the second does not.
    void* const two = ch.alloc(kMe, 32 * 4096);
    for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(v.try_write_async(simt::Lane{}, ch, 0, 32, two).status, Status::kTooManyPending);
        expect_out(full, rig.options.depth - 1, "after a try in vain");
        expect_out(other, 0, "after a try in vain");
    }
    while (rig.drives[full]->kept() != tokens.size() && !late.passed()) (void)ch.poll(kMe);
    rig.drives[full]->set_rule({});
    rig.drives[full]->answer_kept();
    for (const Token& token : tokens) EXPECT_EQ(ch.wait(kMe, token, late), Status::kSuccess);
    expect_none_out("after all answers");
    for (void* at : {buffer, two}) EXPECT_EQ(ch.free(kMe, at), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Credits, TakenByATryThatFindsTooFewAreReturned) {
    const std::uint32_t full = rig.replicas_of(0).slot[0], other = 1 - full;
    rig.drives[full]->set_rule([](const auto&, const auto&) { return Decision{Decision::kNever}; });
    std::vector<Token> tokens;
    for (std::uint32_t i = 0; i < rig.options.depth; ++i)
        tokens.push_back(v.read_async(simt::Lane{}, ch, 0, 1, buffer, late));
    for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(v.try_write_async(simt::Lane{}, ch, 0, 1, buffer).status, Status::kTooManyPending);
        EXPECT_EQ(v.try_read_async(simt::Lane{}, ch, 0, 1, buffer).status, Status::kTooManyPending);
        expect_out(full, rig.options.depth, "after a try in vain");
        expect_out(other, 0, "after a try in vain");
    }
    while (rig.drives[full]->kept() != rig.options.depth && !late.passed()) (void)ch.poll(kMe);
    rig.drives[full]->set_rule({});
    rig.drives[full]->answer_kept();
    for (const Token& token : tokens) EXPECT_EQ(ch.wait(kMe, token, late), Status::kSuccess);
    expect_none_out("after all answers");
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

#if defined(GN_TEST_WARPS)
TEST(Turns, OfTwoLanesGiveTheRightToGatherCreditsToOneAndTakeItBack) {
    Rig rig;
    gnor::ChannelState& c = rig.channel().state();
    using AllOrNothingLock = gnor::AllOrNothingLock<simt::Scope::kDevice>;
    std::unique_ptr<AllOrNothingLock> a, b;
    bool one = false, other = false;
    at_every_atomic(
        [&] {
            a = std::make_unique<AllOrNothingLock>(c);
            b = std::make_unique<AllOrNothingLock>(c);
            one = other = false;
        },
        [&] { one = a->try_begin(); }, [&] { other = b->try_begin(); },
        [&] {
            EXPECT_TRUE(one || other) << "no lane got the right to gather credits";
            EXPECT_FALSE(one && other) << "two lanes got the right to gather credits";
            a->end();
            b->end();
            EXPECT_EQ(c.gathering, 0u) << "the right to gather credits was not returned";
        });
}

TEST(Turns, OfTwoLanesGiveNoCreditTwice) {
    Rig rig;
    gnor::ChannelState& c = rig.channel().state();
    gnor::QueueLane& queue = c.queue(0);
    std::uint32_t one = 0, other = 0;
    at_every_atomic([&] { one = other = 0; }, [&] { one = gnor::take_credits(c, queue, c.depth - 1); },
                    [&] { other = gnor::take_credits(c, queue, 3); },
                    [&] {
                        EXPECT_EQ(one + other, c.depth) << "all credits must go to the lane that came first";
                        EXPECT_EQ(queue.outstanding, c.depth);
                        gnor::give_credits(queue, one + other);
                        EXPECT_EQ(queue.outstanding, 0u);
                    });
}

TEST(Turns, OfADeadlineAndTheAnswersFreeACommandSlotOnce) {
    SlotRig s;
    const auto begin = [&] { s.begin(gnor::SlotState::kOwned); };
    const auto leave = [&] { (void)gnor::leave_slot(s.c, s.index); };
    const auto answer_one = [&] { s.answer(0); };
    const auto answer_both = [&] {
        s.answer(0);
        s.answer(1);
    };
    at_every_atomic(begin, leave, answer_both, [&] { s.expect_free(); });
    at_every_atomic(begin, answer_both, leave, [&] { s.expect_free(); });
    at_every_atomic(begin, leave, answer_one, [&] {
        s.expect_held();
        s.answer(1);
        s.expect_free();
    });
}

TEST(Turns, OfTwoAnswersFreeAnAbandonedCommandSlotOnce) {
    SlotRig s;
    const auto begin = [&] { s.begin(gnor::SlotState::kAbandoned); };
    at_every_atomic(
        begin, [&] { s.answer(0); }, [&] { s.answer(1); }, [&] { s.expect_free(); });
    at_every_atomic(
        begin, [&] { s.answer(0); }, [&] { s.answer(0); },
        [&] {
            EXPECT_EQ(s.answered, 1u) << "one answer, delivered twice";
            s.expect_held();
            s.answer(1);
            s.expect_free();
        });
}

/// The bitmaps of a pool of two MiB, all free.
struct PoolMemory {
    gnor::PoolPlan plan = gnor::PoolPlan::of({2u << 20, 0});
    std::vector<std::uint64_t> words = std::vector<std::uint64_t>(plan.words);
    std::vector<bool> used = std::vector<bool>(plan.blocks);

    PoolMemory() { EXPECT_TRUE(levels().give(0, plan.blocks)); }
    gnor::LevelsRef levels() { return gnor::LevelsRef(&plan.levels, &plan.steps[0], words.data()); }
    std::uint32_t take(std::uint32_t blocks) {
        const std::uint32_t first = levels().take(blocks, 0);
        EXPECT_NE(first, gnor::kNone) << blocks;
        for (std::uint32_t b = first; first != gnor::kNone && b < first + blocks; ++b) {
            EXPECT_FALSE(used[b]) << "block " << b << " has two owners";
            used[b] = true;
        }
        return first;
    }
    void give(std::uint32_t first, std::uint32_t blocks) {
        for (std::uint32_t b = first; b < first + blocks; ++b) used[b] = false;
        EXPECT_TRUE(levels().give(first, blocks)) << "block " << first << " was free";
    }
    void expect_whole() {
        EXPECT_EQ(levels().count_free(), plan.blocks) << "blocks were lost or are free twice";
        (void)levels().merge_all();
        EXPECT_EQ(levels().count_free_units(2), 2u) << "completely free blocks were not merged";
        EXPECT_EQ(static_cast<std::uint32_t>(words[plan.steps[0].moves_at]), 0u) << "a move never ended";
    }
};

TEST(Turns, OfALaneThatTakesFromAGroupThatIsBeingMergedLeaveItOneOwner) {
    std::unique_ptr<PoolMemory> pool;
    std::uint32_t last = 0, beside = 0, taken = 0;
    const auto begin = [&] {
        pool = std::make_unique<PoolMemory>();
        std::vector<std::uint32_t> group;
        for (std::uint32_t i = 0; i < 16; ++i) group.push_back(pool->take(1));
        beside = pool->take(1);  // of another group: so that the first is worth merging
        last = group.back();
        group.pop_back();
        for (const std::uint32_t block : group) pool->give(block, 1);
    };
    at_every_atomic(
        begin, [&] { pool->give(last, 1); }, [&] { taken = pool->take(1); },
        [&] {
            pool->give(taken, 1);
            pool->give(beside, 1);
            pool->expect_whole();
        });
}

TEST(Turns, OfTwoLanesSplitAndMergeThePoolWithoutLosingABlock) {
    std::unique_ptr<PoolMemory> pool;
    const std::uint32_t sizes[] = {1, 5, 16, 20};
    std::uint32_t one = 0, other = 0;
    const auto fresh = [&] { pool = std::make_unique<PoolMemory>(); };
    for (const std::uint32_t mine : sizes)
        for (const std::uint32_t theirs : sizes) {
            const auto take = [&] { one = pool->take(mine); };
            const auto take_too = [&] { other = pool->take(theirs); };
            at_every_atomic(fresh, take, take_too, [&] {
                pool->give(one, mine);
                pool->give(other, theirs);
                pool->expect_whole();
            });
            const auto held = [&] {
                fresh();
                take();
                take_too();
            };
            at_every_atomic(
                held, [&] { pool->give(one, mine); }, [&] { pool->give(other, theirs); },
                [&] { pool->expect_whole(); });
            const auto mine_held = [&] {
                fresh();
                take();
            };
            at_every_atomic(
                mine_held, [&] { pool->give(one, mine); }, take_too,
                [&] {
                    pool->give(other, theirs);
                    pool->expect_whole();
                });
        }
}
#endif

}  // namespace
}  // namespace gnstor::test
