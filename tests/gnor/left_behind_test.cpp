// left_behind_test.cpp: kernels that ended with requests under way. The host gives their callbacks and pool
// buffers up: none runs afterwards, no slot is lost, nothing that a drive may still touch is given to others,
// and the channel serves as if nothing had been.
#include <gtest/gtest.h>

#include "gnor/left_runs.hpp"

namespace gnstor::test {
namespace {

class LeftBehind : public ::testing::Test {
  protected:
    void rule_everywhere(Decision::Kind kind) {
        for (auto& d : rig.drives)
            d->set_rule([kind](const auto&, const auto&) { return Decision{kind, {}, 0}; });
    }
    std::byte* pool(std::uint32_t blocks) { return static_cast<std::byte*>(ch.alloc(kMe, blocks * 4096ull)); }
    void send(std::uint32_t block, std::uint32_t blocks, void* buffer) {
        // Without a trip of polling, in which the callback of the one before might run.
        ASSERT_EQ(v.try_read_async(simt::Lane{}, ch, block, blocks, buffer, Stray{&calls}), Status::kSuccess);
    }
    /// As lanes that know none of the handlers: answers are filed, callbacks stay due.
    template <class Done>
    void poll_until(Done done) {
        const Deadline end = late();
        while (!done() && !end.passed()) ch.with<>().poll(kMe);
    }
    std::uint64_t filed() { return rig.channels[0]->counters().value().completions; }
    std::uint64_t kept() {
        std::uint64_t n = 0;
        for (auto& d : rig.drives) n += d->kept();
        return n;
    }
    gnor::Channel::Usage usage() { return rig.channels[0]->usage().value(); }
    std::uint32_t drop() { return rig.channels[0]->drop_callbacks().value(); }
    void reclaim_all() {
        for (std::uint32_t slot = 0; slot < 4; ++slot) {
            rig.channels[0]->reclaim(slot).value();
            rig.connect(0, slot);
        }
    }
    /// All of its slots and credits serve again.
    void expect_useful() {
        auto* const buffer = pool(64);
        for (std::uint32_t round = 0; round < 3; ++round) {
            std::vector<Token> tokens;
            for (std::uint32_t i = 0; i < 32; ++i)
                tokens.push_back(v.read_async(simt::Lane{}, ch, i * 64, 64, buffer, late()));
            for (const Token& token : tokens) EXPECT_EQ(ch.wait(kMe, token, late()), Status::kSuccess);
        }
        EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
        EXPECT_EQ(calls, 0u);
        rig.expect_clean();
    }

    Rig rig{};
    VolumeRef v = rig.volume();
    ChannelRef ch = rig.channel();
    std::uint64_t calls = 0;  // atomic
};

TEST_F(LeftBehind, DueCallbacksAreCancelledAndTheirCommandEntriesAndBuffersFreed) {
    auto* const buffer = pool(64);
    send(0, 1, buffer);
    send(0, 64, buffer);
    poll_until([&] { return filed() == 5; });
    EXPECT_EQ(usage().slots_taken, 5u);
    EXPECT_EQ(usage().requests_with_callbacks, 2u);
    EXPECT_EQ(drop(), 2u);
    EXPECT_EQ(usage().slots_taken, 0u);
    EXPECT_EQ(usage().requests_with_callbacks, 0u);
    EXPECT_EQ(drop(), 0u);
    ch.poll(kMe);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    expect_useful();
}

TEST_F(LeftBehind, UnansweredCallbacksAreCancelledAndTheirBuffersHeldUntilTheAnswersCome) {
    auto* const one = pool(1);
    auto* const many = pool(64);
    rule_everywhere(Decision::kNever);
    send(0, 1, one);
    rig.drives[rig.replicas_of(16).slot[0]]->set_rule({});  // a part of the second one is answered
    send(0, 64, many);
    std::uint64_t missing = 1;
    for (std::uint32_t block = 0; block < 64; block += 16)
        missing += rig.replicas_of(block).slot[0] != rig.replicas_of(16).slot[0] ? 1 : 0;
    poll_until([&] { return kept() == missing && filed() == 5 - missing; });
    EXPECT_EQ(usage().requests_with_callbacks, 2u);
    EXPECT_EQ(drop(), 2u);
    EXPECT_EQ(usage().slots_taken, missing);
    EXPECT_EQ(rig.channels[0]->counters().value().quarantined, missing);
    EXPECT_EQ(ch.free(kMe, one), Status::kBufferInUse);
    EXPECT_EQ(ch.free(kMe, many), Status::kBufferInUse);
    const auto left = rig.channels[0]->free_left_buffers().value();
    EXPECT_EQ(left.in_use, 2u);
    EXPECT_EQ(left.freed, 0u);
    rule_everywhere(Decision::kServe);
    for (auto& d : rig.drives) d->answer_kept();
    rig.channels[0]->quiesce(late()).value();
    EXPECT_EQ(ch.free(kMe, one), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, many), Status::kSuccess);
    expect_useful();
}

TEST_F(LeftBehind, UnansweredCallbacksAlsoEndByReclaim) {
    auto* const buffer = pool(64);
    rule_everywhere(Decision::kNever);
    send(0, 64, buffer);
    ASSERT_EQ(v.write_async(simt::Lane{}, ch, 640, 64, buffer, Stray{&calls}, late()), Status::kSuccess);
    EXPECT_EQ(drop(), 2u);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse);
    rule_everywhere(Decision::kServe);
    reclaim_all();
    EXPECT_EQ(usage().slots_taken, 0u);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    expect_useful();
}

// Reclaimed first, they are due with kQueueError, and hold their slots until somebody runs or drops them.
TEST_F(LeftBehind, CallbacksOfFailedOrReclaimedQueuePairsAreCancelled) {
    for (const bool reclaimed : {false, true}) {
        auto* const buffer = pool(64);
        rule_everywhere(Decision::kBreak);
        send(0, 64, buffer);
        poll_until([&] { return gnor::is_broken(ch.state(), rig.replicas_of(0).slot[0]); });
        rule_everywhere(Decision::kServe);
        if (reclaimed) {
            reclaim_all();
            EXPECT_EQ(usage().slots_taken, 4u);
        }
        EXPECT_EQ(usage().requests_with_callbacks, 1u);
        EXPECT_EQ(drop(), 1u);
        if (!reclaimed) {
            EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse);
            reclaim_all();
        }
        EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
        expect_useful();
    }
}

TEST_F(LeftBehind, TokensAndCallbacksAreNotConfused) {
    auto* const buffer = pool(64);
    const Token token = v.read_async(simt::Lane{}, ch, 0, 64, buffer, late());
    send(0, 1, buffer);
    poll_until([&] { return filed() == 5; });
    EXPECT_EQ(drop(), 1u);
    EXPECT_EQ(ch.wait(kMe, token, late()), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    expect_useful();
}

TEST_F(LeftBehind, UnusedBuffersAreFreedAndBuffersInUseAreKept) {
    for (const std::uint32_t blocks : {1u, 5u, 16u, 100u, 256u}) ASSERT_NE(pool(blocks), nullptr);
    auto* const used = pool(1);
    rule_everywhere(Decision::kNever);
    const auto read = [&](Deadline until) { return v.read(kMe, ch, 0, 1, used, until); };
    ASSERT_EQ(sent_in(kShort, read), Status::kTimedOut);
    auto left = rig.channels[0]->free_left_buffers().value();
    EXPECT_EQ(left.freed, 5u);
    EXPECT_EQ(left.in_use, 1u);
    EXPECT_EQ(usage().pool_blocks_free, usage().pool_blocks - 1);
    rule_everywhere(Decision::kServe);
    for (auto& d : rig.drives) d->answer_kept();
    rig.channels[0]->quiesce(late()).value();
    left = rig.channels[0]->free_left_buffers().value();
    EXPECT_EQ(left.freed, 1u);
    EXPECT_EQ(left.in_use, 0u);
    EXPECT_EQ(ch.free(kMe, used), Status::kBadArgument) << "the buffer was already freed";
    expect_useful();
}

TEST(LeftBehindByManyLanes, CallbacksAndBuffersAreReleasedAndTheChannelsContinueToServe) {
    RigOptions o = options_of(2, 8);
    o.chunk_shift = 1;
    Bench b(o, 1, 64);
    run_with_callbacks_left_behind(b, 5, [&b](const auto& kernel) { b.test_warps(4, 5, kernel); });
    b.expect_good(5 * 4 * 5 * 8);
}

TEST(LeftBehindByManyLanes, DroppedTokensKeepTheirBuffersUntilTheirAnswersCome) {
    EXPECT_GT(run_with_dropped_tokens(options_of(2, 8), 8, 4), 0u);
}

TEST(WithoutAnswers, WithAStoppedNicEveryCallEndsAtItsDeadlineAndWorksAgainWhenTheNicResumes) {
    EXPECT_GT(run_without_any_answer(options_of(1, 8), 12, 2, Silent::kNic), 0u);
}

TEST(WithoutAnswers, WithUnresponsiveDrivesEveryCallEndsAtItsDeadlineAndReclaimResetsTheChannel) {
    EXPECT_GT(run_without_any_answer(options_of(2, 8), 12, 2, Silent::kDrives), 0u);
}

TEST(SeveralKernels, RunningConcurrentlyShareOneSetOfChannels) {
    run_kernels_side_by_side(options_of(2, 8), 2, 4, 1);
}

}  // namespace
}  // namespace gnstor::test
