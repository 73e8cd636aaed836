// not_sent_test.cpp: what a call says at its deadline: whether anything of it is under way then. kNotSent:
// the buffer is free and the call may be made again; kTimedOut: a drive may have it, and how it ends is
// unknown.
#include <gtest/gtest.h>

#include "gnor/rig.hpp"

namespace gnstor::test {
namespace {

class NotSent : public ::testing::Test {
  protected:
    static RigOptions shallow() {
        RigOptions o;
        o.depth = 4;
        return o;
    }
    /// Takes all credits of the drive `slot`: it answers nothing until serve_again().
    void use_up(std::uint32_t slot) {
        rig.drives[slot]->set_rule([](const auto&, const auto&) { return Decision{Decision::kNever}; });
        std::uint32_t block = 1024;
        while (rig.replicas_of(block).slot[0] != slot) block += 16;
        for (std::uint32_t i = 0; i < rig.options.depth; ++i) {
            const Token token = v.read_async(simt::Lane{}, ch, block, 1, stuck, late());
            ASSERT_TRUE(token.in_flight());
            tokens.push_back(token);
        }
        const Deadline end = late();
        while (rig.drives[slot]->kept() < rig.options.depth && !end.passed()) ch.poll(kMe);
    }
    void serve_again() {
        for (auto& d : rig.drives) d->set_rule({});
        for (auto& d : rig.drives) d->answer_kept();
        for (const Token& token : tokens) EXPECT_EQ(ch.wait(kMe, token, late()), Status::kSuccess);
        tokens.clear();
    }
    std::uint64_t served() {
        std::uint64_t n = 0;
        for (auto& d : rig.drives) n += d->served();
        return n;
    }
    ~NotSent() override {
        EXPECT_EQ(ch.free(kMe, stuck), Status::kSuccess);
        rig.expect_clean();
    }

    Rig rig{shallow()};
    VolumeRef v = rig.volume();
    ChannelRef ch = rig.channel();
    void* stuck = ch.alloc(kMe, 4096);
    std::vector<Token> tokens;
};

TEST_F(NotSent, IsTheStatusOfACallThatFoundNoCreditAndItsBufferIsFree) {
    const auto replicas = rig.replicas_of(0);
    use_up(replicas.slot[0]);
    void* const buffer = ch.alloc(kMe, 4096);
    EXPECT_EQ(v.read(kMe, ch, 0, 1, buffer, soon()), Status::kNotSent);
    EXPECT_EQ(v.write(kMe, ch, 0, 1, buffer, soon()), Status::kNotSent);
    EXPECT_EQ(v.read_async(simt::Lane{}, ch, 0, 1, buffer, soon()).status, Status::kNotSent);
    EXPECT_EQ(v.try_read_async(simt::Lane{}, ch, 0, 1, buffer).status, Status::kTooManyPending);
    EXPECT_EQ(served(), 0u);
    EXPECT_EQ(rig.channels[0]->counters().value().quarantined, 0u);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    serve_again();
}

TEST_F(NotSent, IsNotTheStatusOfAWriteThatOneReplicaReceived) {
    const auto replicas = rig.replicas_of(0);
    use_up(replicas.slot[1]);
    void* const buffer = ch.alloc(kMe, 4096);
    rig.drives[replicas.slot[0]]->set_rule(
        [](const auto&, const auto&) { return Decision{Decision::kNever}; });
    const auto write = [&](Deadline until) { return v.write(kMe, ch, 0, 1, buffer, until); };
    EXPECT_EQ(sent_in(kShort, write), Status::kTimedOut);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse);
    // One, beside those that used the other drive up: what said that nothing was sent has sent nothing.
    rig.wait_kept(rig.options.depth + 1);
    serve_again();
    rig.channels[0]->quiesce(late()).value();
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
}

TEST_F(NotSent, IsTheStatusOfACallWhoseDeadlineHadAlreadyPassed) {
    void* const buffer = ch.alloc(kMe, 4096);
    EXPECT_EQ(v.read(kMe, ch, 0, 1, buffer, Deadline{0}), Status::kNotSent);
    EXPECT_EQ(v.write(kMe, ch, 0, 40, buffer, Deadline{0}), Status::kNotSent);
    EXPECT_EQ(v.flush(kMe, ch, Deadline{0}), Status::kNotSent);
    EXPECT_EQ(served(), 0u);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
}

// Some requests of one call are answered, one has no credit, one is with a drive that does not answer.
TEST_F(NotSent, IsReportedPerRequestAndTheWorstStatusForTheCall) {
    std::uint32_t served_by[4];
    for (std::uint32_t slot = 0; slot < 4; ++slot)
        for (served_by[slot] = 0; rig.replicas_of(served_by[slot]).slot[0] != slot;) served_by[slot] += 16;
    use_up(0);
    rig.drives[1]->set_rule([](const auto&, const auto&) { return Decision{Decision::kNever}; });
    auto* const buffer = static_cast<std::byte*>(ch.alloc(kMe, 4 * 4096));
    IoRequest requests[4];
    for (std::uint32_t i = 0; i < 4; ++i)
        requests[i] = IoRequest{served_by[3 - i], 1, buffer + i * 4096, 0, 0};
    Status statuses[4] = {};
    EXPECT_EQ(v.read_many(kMe, ch, requests, 2, statuses, late()), Status::kSuccess);
    // Long enough for the drives that answer, on a busy machine too.
    EXPECT_EQ(v.read_many(kMe, ch, requests, 4, statuses, Deadline::in_ns(5 * kSecond)), Status::kTimedOut);
    EXPECT_EQ(statuses[0], Status::kSuccess);
    EXPECT_EQ(statuses[1], Status::kSuccess);
    EXPECT_EQ(statuses[2], Status::kTimedOut);
    EXPECT_EQ(statuses[3], Status::kNotSent);
    EXPECT_EQ(rig.channels[0]->counters().value().quarantined, 1u);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse);
    const Deadline end = late();
    while (rig.drives[1]->kept() == 0 && !end.passed()) ch.poll(kMe);
    serve_again();
    rig.channels[0]->quiesce(late()).value();
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
}

}  // namespace
}  // namespace gnstor::test
