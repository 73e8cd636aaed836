// misuse_test.cpp: what users do wrong is said clearly: options that make no sense, buffers that are nobody's
// or still in use, tokens that nobody waits for, memory taken back under a command, requests that can never
// fit.
#include <gtest/gtest.h>

#include <array>

#include "gnor/bench.hpp"
#include "support/count.hpp"

namespace gnstor::test::misuse_test {

struct CountsRuns {
    std::uint32_t* runs;
    GN_HD
    void operator()(Status) const { ++*runs; }
};

// ---- options

TEST(Options, OutOfRangeAreRefusedWithTheAllowedValues) {
    Rig rig;
    const auto expect = [&](const char* says, auto edit) {
        gnor::ChannelOptions o;
        edit(o);
        const auto made = gnor::Channel::create(*rig.nic, o);
        ASSERT_FALSE(made.ok()) << says;
        EXPECT_EQ(made.error().code, Errc::kInvalidArgument) << says;
        EXPECT_NE(made.error().message.find(says), std::string::npos) << made.error().message;
    };
    using O = gnor::ChannelOptions;
    expect("depth 0: give a power of two of 2 to 1024", [](O& o) { o.depth = 0; });
    expect("depth 2048: give a power of two of 2 to 1024", [](O& o) { o.depth = 2048; });
    expect("depth 33", [](O& o) { o.depth = 33; });
    expect("depth 3:", [](O& o) { o.depth = 3; });
    expect("at most 4096 commands; lower the depth", [](O& o) { o.ssds = 8, o.depth = 1024; });
    expect("a channel cannot have 0 SSDs; give 1 to 64", [](O& o) { o.ssds = 0; });
    expect("a channel cannot have 65 SSDs", [](O& o) { o.ssds = 65; });
    expect("pool of 0 bytes: give a multiple of 256 KiB", [](O& o) { o.pool_bytes = 0; });
    expect("pool of 4096 bytes", [](O& o) { o.pool_bytes = 4096; });
    expect("give a multiple of 256 KiB", [](O& o) { o.pool_bytes = ~0ull; });
    expect("give a multiple of 256 KiB", [](O& o) { o.pool_bytes = 1ull << 60; });
    expect("that grows to", [](O& o) { o.pool_bytes_max = 256u << 10; });
    expect("that grows to", [](O& o) { o.pool_bytes_max = 1ull << 60; });
    expect("times; give a larger initial size", [](O& o) {
        o.pool_bytes = 256u << 10;
        o.pool_bytes_max = 32ull << 30;
    });
    expect("the smallest level of a pool is 4096 bytes", [](O& o) { o.pool_levels = {}; });
    expect("the smallest level of a pool is 4096 bytes", [](O& o) { o.pool_levels = {512, 4096, 0, 0}; });
    expect("does not follow a level of 4096 bytes", [](O& o) { o.pool_levels = {4096, 4096, 0, 0}; });
    expect("does not follow a level of 4096 bytes", [](O& o) { o.pool_levels = {4096, 12288, 0, 0}; });
    expect("does not follow a level of 4096 bytes", [](O& o) { o.pool_levels = {4096, 1u << 20, 0, 0}; });
    expect("does not follow a level of 1048576 bytes", [](O& o) {
        o.pool_levels = {4096, 65536, 1u << 20, 1u << 25};
    });
    expect("ends the list of levels", [](O& o) { o.pool_levels = {4096, 0, 65536, 0}; });
}

// ---- buffers

class CheckedBuffers : public ::testing::Test {
  protected:
    static RigOptions checked() {
        RigOptions o;
        o.check_buffers = true;
        o.pool_bytes_max = 8ull << 20;
        return o;
    }
    void answer(Decision::Kind kind) {
        for (auto& d : rig.drives)
            d->set_rule([kind](const auto&, const auto&) { return Decision{kind, {}, 0}; });
    }
    Rig rig{checked()};
    VolumeRef v = rig.volume();
    ChannelRef ch = rig.channel();
};

TEST_F(CheckedBuffers, UnallocatedPoolMemoryIsRefused) {
    auto* const buffer = static_cast<std::byte*>(ch.alloc(kMe, 8192));
    auto* const base = reinterpret_cast<std::byte*>(ch.state().pool_base);
    auto* const other = base + (buffer == base + (2u << 20) ? 3u << 20 : 2u << 20);
    EXPECT_EQ(v.read(kMe, ch, 0, 2, buffer, late()), Status::kSuccess);
    EXPECT_EQ(v.read(kMe, ch, 0, 1, buffer + 4096, late()), Status::kSuccess);
    constexpr Status kNo = Status::kNotAllocated;
    EXPECT_EQ(v.read(kMe, ch, 0, 3, buffer, late()), kNo) << "longer than it is";
    EXPECT_EQ(v.read(kMe, ch, 0, 2, buffer + 4096, late()), kNo);
    EXPECT_EQ(v.write(kMe, ch, 0, 1, other, late()), kNo);
    EXPECT_EQ(v.read(kMe, ch, 0, 1, base + (5u << 20), late()), kNo)
        << "an address above the pool's present size must be refused";
    EXPECT_EQ(v.read_async(simt::Lane{}, ch, 0, 1, other, late()).status, kNo);
    EXPECT_EQ(v.try_write_async(simt::Lane{}, ch, 0, 1, other).status, kNo);
    EXPECT_EQ(v.read_sectors(kMe, ch, 0, 0, 1, other, late()), kNo);
    const IoRequest requests[2] = {{0, 1, buffer, 0, 0}, {0, 1, other, 0, 0}};
    std::array<Status, 2> statuses{};
    EXPECT_EQ(v.read_many(kMe, ch, requests, 2, statuses.data(), late()), kNo);
    EXPECT_EQ(statuses[0], Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    EXPECT_EQ(v.read(kMe, ch, 0, 1, buffer, late()), kNo) << "freed";
    std::byte own[4096];
    EXPECT_EQ(v.read(kMe, ch, 0, 1, own, late()), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(CheckedBuffers, ABufferIsNotFreedWhileAPendingCommandUsesIt) {
    auto* const buffer = static_cast<std::byte*>(ch.alloc(kMe, 65536));
    answer(Decision::kNever);
    const Token token = v.read_async(simt::Lane{}, ch, 0, 1, buffer + 3 * 4096, late());
    ASSERT_TRUE(token.in_flight());
    EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse);
    const Deadline end = late();
    std::size_t kept = 0;
    while (kept == 0 && !end.passed())
        for (auto& d : rig.drives) kept += d->kept();
    answer(Decision::kServe);
    for (auto& d : rig.drives) d->answer_kept();
    EXPECT_EQ(ch.wait(kMe, token, late()), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(CheckedBuffers, AreHeldOnceByATimedOutCommandAndFreeAfterItsAnswer) {
    auto* const buffer = static_cast<std::byte*>(ch.alloc(kMe, 65536));
    answer(Decision::kNever);
    const auto write = [&](Deadline until) { return v.write(kMe, ch, 0, 1, buffer, until); };
    EXPECT_EQ(sent_in(kShort, write), Status::kTimedOut);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse);
    answer(Decision::kServe);
    for (auto& d : rig.drives) d->answer_kept();
    rig.channels[0]->quiesce(late()).value();
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(CheckedBuffers, ServeEveryKindOfCommandLikeUncheckedOnes) {
    RigOptions o = options_of(2, 4);
    o.check_buffers = true;
    Bench b(o, 40, kWarpStride + 20 * 4096);
    b.launch(40, 1, WarpsWriteAndRead{b.common, 4, 32, false});
    b.launch(10, 4, LanesAlone{b.common, 4, 0});
    b.launch(8, 1, WarpsMany{b.common, 40});
    b.expect_good(40 * 8 + 40 * 24);
    b.rig.expect_clean();
}

TEST(RegisteredMemory, IsNotDeregisteredWhileACommandUsesIt) {
    Rig rig;
    auto memory = simt::PinnedMemory::map(65536, simt::LanesKind::kCpu).value();
    rig.channels[0]->register_buffer(memory.data(), memory.size()).value();
    for (auto& d : rig.drives)
        d->set_rule([](const auto&, const auto&) { return Decision{Decision::kNever, {}, 0}; });
    auto* const inside = reinterpret_cast<std::byte*>(memory.data()) + 8192;
    const auto read = [&](Deadline until) {
        return rig.volume().read(kMe, rig.channel(), 0, 1, inside, until);
    };
    EXPECT_EQ(sent_in(kShort, read), Status::kTimedOut);
    const auto refused = rig.channels[0]->unregister_buffer(memory.data());
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kBusy);
    EXPECT_NE(refused.error().message.find("1 commands in flight"), std::string::npos)
        << refused.error().message;
    for (auto& d : rig.drives) d->set_rule({});
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
        rig.channels[0]->reclaim(slot).value();
        rig.connect(0, slot);
    }
    EXPECT_TRUE(rig.channels[0]->unregister_buffer(memory.data()).ok());
    rig.expect_clean();
}

// ---- tokens

TEST(Tokens, WithoutAWaiterAreFoundAndCancelledWithOrWithoutTheirAnswers) {
    Rig rig;
    const VolumeRef v = rig.volume();
    const ChannelRef ch = rig.channel();
    void* const buffer = ch.alloc(kMe, 4096);
    const Token answered = v.write_async(simt::Lane{}, ch, 0, 1, buffer, late());
    rig.channels[0]->quiesce(late()).value();
    EXPECT_EQ(rig.channels[0]->usage().value().commands_with_tokens, 1u) << "answered, and still held";
    for (auto& d : rig.drives)
        d->set_rule([](const auto&, const auto&) { return Decision{Decision::kNever, {}, 0}; });
    const Token running = v.read_async(simt::Lane{}, ch, 0, 1, buffer, late());
    EXPECT_EQ(rig.channels[0]->drop_tokens().value(), 2u);
    EXPECT_EQ(ch.wait(kMe, answered, late()), Status::kStaleToken);
    EXPECT_EQ(ch.wait(kMe, running, late()), Status::kStaleToken);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse) << "the answer may still come into it";
    EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 1u);
    const Deadline end = late();
    std::size_t kept = 0;
    while (kept == 0 && !end.passed())
        for (auto& d : rig.drives) kept += d->kept();
    for (auto& d : rig.drives) d->set_rule({});
    for (auto& d : rig.drives) d->answer_kept();
    rig.channels[0]->quiesce(late()).value();
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

// A request whose answer came before its callback was attached is due, and is nobody's token.
TEST(Tokens, CancelledByTheHostDoNotAffectAnsweredRequestsWithCallbacks) {
    Rig rig;
    const VolumeRef v = rig.volume();
    const ChannelRef ch = rig.channel();
    void* const buffer = ch.alloc(kMe, 4096);
    const Token sent = v.write_async(simt::Lane{}, ch, 0, 1, buffer, late());
    rig.channels[0]->quiesce(late()).value();
    std::uint32_t runs = 0;
    gnor::attach_callback(ch.state(), sent.head, CountsRuns{&runs});
    EXPECT_EQ(rig.channels[0]->usage().value().commands_with_tokens, 0u);
    EXPECT_EQ(rig.channels[0]->drop_tokens().value(), 0u);
    EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 1u)
        << "the command entry must be taken until the callback has run";
    ch.poll(kMe);
    EXPECT_EQ(runs, 1u);
    ch.poll(kMe);
    EXPECT_EQ(runs, 1u) << "once";
    EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 0u);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

// ---- batches

/// A member of a block that is larger than its batch: refused, and never told of a request.
struct SubmitsInALargeBlock {
    Common common;
    Batch<32, CountsRuns>* batch;
    std::uint32_t* runs;
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const ChannelRef ch = common.channels.mine(lane);
        batch->init(group, lane);
        auto* const buffer = ch.alloc(simt::self(lane), 4096);
        const IoRequest request{lane.thread, 1, buffer, 0, 0};
        const Status sent = batch->submit(group, lane, common.volume, ch, nvme::IoOpcode::kWrite, &request,
                                          CountsRuns{runs + lane.thread});
        common.expect(sent, Status::kBadArgument);
        batch->commit(group, lane, ch);
        batch->poll(group, ch);
        if (batch->dispatch(group, lane, ch).finished) add(&common.report->failures, 1);
        batch->abandon(group, lane, ch);
        common.expect(ch.free(simt::self(lane), buffer));
    }
};

TEST(Batches, InBlocksWithMoreThreadsThanCommandEntriesSendNothing) {
    Bench b(options_of(1), 1, 64);
    auto memory = simt::DeviceMemory::allocate(sizeof(Batch<32, CountsRuns>), simt::LanesKind::kCpu).value();
    auto* const batch = memory.lane_as<Batch<32, CountsRuns>>();
    std::array<std::uint32_t, 48> runs{};
    b.test_warps(3, 16, SubmitsInALargeBlock{b.common, batch, runs.data()}, 3);
    b.launch(1, 33, SubmitsInALargeBlock{b.common, batch, runs.data()});
    b.expect_good((48 + 33) * 2);
    for (const std::uint32_t one : runs) EXPECT_EQ(one, 0u);
    for (auto& d : b.rig.drives) EXPECT_EQ(d->served(), 0u);
    b.rig.expect_clean();
}

// ---- requests of several commands

RigOptions narrow(std::uint32_t ssds, std::uint32_t replicas) {
    RigOptions o = options_of(1, 8);
    o.ssds = ssds;
    o.replicas = replicas;
    o.chunk_shift = 0;
    return o;
}

TEST(Tries, ReportWhetherARequestCanNeverFitOrMayFitLater) {
    Rig rig(narrow(2, 2));
    const VolumeRef v = rig.volume();
    const ChannelRef ch = rig.channel();
    auto* const buffer = ch.alloc(kMe, 128 * 4096);
    // Depth 8: a write takes a credit of both queues for each block.
    EXPECT_EQ(v.try_write_async(simt::Lane{}, ch, 0, 9, buffer).status, Status::kBadArgument);
    EXPECT_EQ(v.try_write_async(simt::Lane{}, ch, 0, 65, buffer).status, Status::kBadArgument) << "slots";
    EXPECT_EQ(v.try_read_async(simt::Lane{}, ch, 0, 100, buffer).status, Status::kBadArgument);
    const Token all = v.try_write_async(simt::Lane{}, ch, 0, 8, buffer);
    ASSERT_TRUE(all.in_flight());
    for (const std::uint32_t blocks : {1u, 8u}) {
        const Status full = v.try_write_async(simt::Lane{}, ch, 0, blocks, buffer).status;
        if (!nvme::ok(full)) {
            EXPECT_EQ(full, Status::kTooManyPending) << blocks;
        }
    }
    EXPECT_EQ(v.try_write_async(simt::Lane{}, ch, 0, 9, buffer).status, Status::kBadArgument) << "also now";
    EXPECT_EQ(ch.wait(kMe, all, late()), Status::kSuccess);
    // A waiting call gets credits as they come back; only slots it needs all at once.
    EXPECT_EQ(ch.wait(kMe, v.write_async(simt::Lane{}, ch, 0, 40, buffer, late()), late()), Status::kSuccess);
    EXPECT_EQ(v.write_async(simt::Lane{}, ch, 0, 65, buffer, late()).status, Status::kBadArgument);
    (void)rig.channels[0]->drop_tokens().value();
    rig.channels[0]->quiesce(late()).value();
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

// As if another lane were half way through taking what it needs: other tries let it through; small ones, and
// calls that wait, pass by.
TEST(Tries, OfSeveralCommandsDoNotDisturbALaneThatHoldsSomeCredits) {
    Rig rig(narrow(2, 1));
    const VolumeRef v = rig.volume();
    const ChannelRef ch = rig.channel();
    auto* const buffer = ch.alloc(kMe, 4 * 4096);
    gnor::AllOrNothingLock<simt::Scope::kDevice> other(ch.state());
    ASSERT_TRUE(other.try_begin());
    gnor::AllOrNothingLock<simt::Scope::kDevice> in_vain(ch.state());
    EXPECT_FALSE(in_vain.try_begin());
    in_vain.end();  // it has nothing to give back
    EXPECT_EQ(v.try_read_async(simt::Lane{}, ch, 0, 2, buffer).status, Status::kTooManyPending);
    EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 0u);
    EXPECT_EQ(ch.wait(kMe, v.read_async(simt::Lane{}, ch, 0, 2, buffer, late()), late()), Status::kSuccess);
    EXPECT_EQ(ch.wait(kMe, v.try_read_async(simt::Lane{}, ch, 0, 1, buffer), late()), Status::kSuccess);
    other.end();
    EXPECT_EQ(ch.wait(kMe, v.try_read_async(simt::Lane{}, ch, 0, 2, buffer), late()), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

/// Lanes alone, in step, take slots and credits for requests that need more than half of all.
struct LanesTakeChains {
    Common common;
    std::uint32_t rounds;
    std::uint32_t blocks;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const auto me = simt::self(lane);
        auto& c = common.channels.mine(lane).state();
        const ChannelRef channel = common.channels.mine(lane);
        auto* const buffer = static_cast<std::byte*>(channel.alloc(me, blocks * 4096ull));
        for (std::uint32_t round = 0; round < rounds; ++round) {
            group.sync();
            const IoRequest request{lane.thread * blocks, blocks, buffer, 0, 0};
            gnor::Cursor cursor = common.volume.cursor_for(nvme::IoOpcode::kRead, &request, 1);
            cursor.must_be_registered = true;
            const gnor::Operation op = common.volume.operation();
            const std::uint32_t head = gnor::take_everything(me, c, op, cursor, lane.thread);
            const bool one = group.any(head != gnor::kNone);
            gnor::take_back(c, head);
            if (group.is_leader()) common.expect(one ? Status::kSuccess : Status::kTooManyPending);
        }
        common.expect(channel.free(me, buffer));
    }
};

// All resources are there at the beginning of each round: of those that take theirs at the same moment, one
// must get all. Each with half of it, given back in vain, would go on for ever.
TEST(Tries, OfSingleLanesDoNotBlockEachOtherWithPartialRequests) {
    Bench b(narrow(1, 1), 1, 64);
    b.test_warps(1, 4, LanesTakeChains{b.common, 1500, 6});
    b.expect_good(1500);
    b.rig.expect_clean();
    count("gnor_lone_chains_taken", 1500);
}

}  // namespace gnstor::test::misuse_test
