// quarantine_test.cpp: pool buffers that a command may still touch are not taken back, until it cannot.
#include <gtest/gtest.h>

#include <algorithm>

#include "gnor/rig.hpp"

namespace gnstor::test {
namespace {

using nvme::IoFields;

class Quarantine : public ::testing::Test {
  protected:
    void rule_everywhere(Decision::Kind kind) {
        for (auto& d : rig.drives)
            d->set_rule([kind](const nvme::Command&, const IoFields&) { return Decision{kind, {}, 0}; });
    }
    void answer_all() {
        rule_everywhere(Decision::kServe);
        for (auto& d : rig.drives) d->answer_kept();
        rig.channels[0]->quiesce(late()).value();
    }
    void reclaim_all() {
        for (std::uint32_t s = 0; s < 4; ++s) {
            rig.channels[0]->reclaim(s).value();
            rig.connect(0, s);
        }
        rule_everywhere(Decision::kServe);
    }
    std::byte* pool(std::uint64_t bytes) { return static_cast<std::byte*>(ch.alloc(kMe, bytes)); }
    /// It is refused, stays refused, and nobody else gets any of it.
    void expect_held(std::byte* buffer, std::uint64_t bytes) {
        EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse);
        EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse);
        std::vector<std::byte*> others;
        while (std::byte* p = pool(4096)) others.push_back(p);
        for (std::byte* p : others) {
            EXPECT_TRUE(p + 4096 <= buffer || p >= buffer + bytes);
            EXPECT_EQ(ch.free(kMe, p), Status::kSuccess) << "a buffer that no command uses must be freed";
        }
        EXPECT_EQ(others.size(), (rig.options.pool_bytes - bytes) / 4096);
    }
    void expect_free_again(std::byte* buffer) {
        EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
        EXPECT_EQ(ch.free(kMe, buffer), Status::kBadArgument);
        rig.expect_clean();
    }

    Rig rig{};
    VolumeRef v = rig.volume();
    ChannelRef ch = rig.channel();
};

TEST_F(Quarantine, ABufferOfACallThatTimedOutIsHeldUntilTheAnswer) {
    auto* buffer = pool(4096);
    rule_everywhere(Decision::kNever);
    const auto read = [&](Deadline until) { return v.read(kMe, ch, 0, 1, buffer, until); };
    ASSERT_EQ(sent_in(kShort, read), Status::kTimedOut);
    expect_held(buffer, 4096);
    answer_all();
    expect_free_again(buffer);
}

TEST_F(Quarantine, ABufferIsHeldAsAWholeByCommandsAnywhereInIt) {
    auto* buffer = pool(64 * 4096);
    rule_everywhere(Decision::kNever);
    const auto write = [&](Deadline until) { return v.write(kMe, ch, 0, 1, buffer + 63 * 4096, until); };
    const auto read = [&](Deadline until) { return v.read(kMe, ch, 16, 2, buffer + 20 * 4096, until); };
    ASSERT_EQ(sent_in(kShort, write), Status::kTimedOut);
    ASSERT_EQ(sent_in(kShort, read), Status::kTimedOut);
    expect_held(buffer, 64 * 4096);
    // One of the two is over.
    rig.drives[rig.replicas_of(16).slot[0]]->answer_kept();
    answer_all();
    expect_free_again(buffer);
}

TEST_F(Quarantine, AReclaimFreesTheBuffersOfItsCommands) {
    auto* buffer = pool(2 * 4096);
    rule_everywhere(Decision::kNever);
    const auto write = [&](Deadline until) { return v.write(kMe, ch, 0, 2, buffer, until); };
    ASSERT_EQ(sent_in(kShort, write), Status::kTimedOut);
    expect_held(buffer, 2 * 4096);
    rig.channels[0]->reclaim(rig.replicas_of(0).slot[0]).value();
    expect_held(buffer, 2 * 4096);  // the other replica's command is under way
    reclaim_all();
    expect_free_again(buffer);
}

TEST_F(Quarantine, ADroppedTokensBufferIsHeldUntilItsRequestEnds) {
    auto* buffer = pool(4096);
    rule_everywhere(Decision::kNever);
    const Token token = v.read_async(simt::Lane{}, ch, 0, 1, buffer, late());
    ASSERT_EQ(ch.drop(token), Status::kSuccess);
    expect_held(buffer, 4096);
    answer_all();
    expect_free_again(buffer);
}

TEST_F(Quarantine, ABufferOnABrokenQueuePairIsHeldUntilReclaim) {
    auto* buffer = pool(4096);
    rule_everywhere(Decision::kBreak);
    ASSERT_EQ(v.read(kMe, ch, 0, 1, buffer, late()), Status::kQueueError);
    expect_held(buffer, 4096);
    reclaim_all();
    expect_free_again(buffer);
}

TEST_F(Quarantine, ThePoolBufferOfATimedOutCallIsNotReusedUntilTheAnswerOrReclaim) {
    std::vector<std::byte> own(2 * 4096);  // not registered: it passes through the pool
    for (const bool reclaimed : {false, true}) {
        rule_everywhere(Decision::kNever);
        const auto read = [&](Deadline until) { return v.read(kMe, ch, 0, 2, own.data(), until); };
        ASSERT_EQ(sent_in(kShort, read), Status::kTimedOut);
        ASSERT_EQ(rig.channels[0]->counters().value().quarantined, 1u);
        std::vector<std::byte*> others;
        while (std::byte* p = pool(4096)) others.push_back(p);
        EXPECT_EQ(others.size(), rig.options.pool_bytes / 4096 - 2) << "a drive may still write there";
        for (std::byte* p : others) EXPECT_EQ(ch.free(kMe, p), Status::kSuccess);
        if (reclaimed)
            reclaim_all();
        else
            answer_all();
        rig.expect_clean();
    }
}

TEST_F(Quarantine, ACallThatEndedLeavesItsBufferFree) {
    for (const std::uint32_t blocks : {1u, 40u}) {
        auto* buffer = pool(blocks * 4096);
        ASSERT_EQ(v.write(kMe, ch, 0, blocks, buffer, late()), Status::kSuccess);
        ASSERT_EQ(v.read(kMe, ch, 0, blocks, buffer, late()), Status::kSuccess);
        expect_free_again(buffer);
    }
}

}  // namespace
}  // namespace gnstor::test
