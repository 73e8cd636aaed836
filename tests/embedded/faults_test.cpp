// faults_test.cpp: queue pairs killed under lanes, answers that come late or never, and the way back:
// deadlines, quarantine, first error, reclaim.
#include <algorithm>

#include "embedded/bench.hpp"

namespace gnstor::test::faults_test {

using nvme::Status;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint32_t kKills = 4;
constexpr std::uint32_t kHolds = 8;
#else
constexpr std::uint32_t kKills = 16;
constexpr std::uint32_t kHolds = 30;
#endif

const auto kMe = simt::self(simt::Lane{});

simt::Deadline soon() {
    return simt::Deadline::in_ns(2'000'000);
}

/// 16 warps on two channels, with blocks of their own all over the SSDs.
class Faults : public ::testing::Test {
  protected:
    static constexpr std::uint32_t kWarps = 16, kBlocksEach = 32, kRounds = 60;

    static BenchOptions options() {
        BenchOptions o;
        o.depth = 8;
        o.blocks = kWarps * kBlocksEach;
        o.chunk_bytes = 4096;
        return o;
    }
    ThroughFaults kernel(std::uint32_t launch) {
        return {b.common, acknowledged.data(), tried.data(), kBlocksEach, launch * kRounds,
                kRounds,  &progress,           failed};
    }
    Result<simt::Launch> start(std::uint32_t launch) {
        simt::LaunchOptions workers;
        workers.cpu_workers = 6;
        return simt::launch_async(simt::LanesKind::kCpu, kWarps, 1, kernel(launch), workers);
    }
    std::uint64_t done() const { return simt::load_relaxed<simt::Scope::kSystem>(&progress); }
    void wait_for(const simt::Deadline& deadline, std::uint64_t operations, simt::Launch& run) const {
        while (done() < operations && !run.done() && !deadline.passed()) std::this_thread::yield();
    }
    std::uint64_t failures() const { return failed[0] + failed[1] + failed[2]; }
    /// Every replica of every block holds what was acknowledged, or something that was tried after it.
    void expect_nothing_lost() {
        EXPECT_EQ(b.report().mismatches, 0u) << "GN_SEED=" << run_seed();
        const std::uint64_t visited = for_each_replica(
            *b.reader, "v", [&](std::uint32_t block, std::uint32_t slot, const std::uint64_t* w) {
                const std::uint64_t round = w[0] & 0xFFFFFFFFu;
                EXPECT_TRUE(is_whole(w, b.common.seed, block)) << "slot " << slot << " block " << block;
                EXPECT_GE(round, acknowledged[block]) << "lost on slot " << slot << ", block " << block;
                EXPECT_LE(round, tried[block]) << "slot " << slot << " block " << block;
            });
        EXPECT_EQ(visited, b.options.blocks * 2);
        count("array_replicas_compared", visited);
    }

    ArrayBench b{options(), kWarps, ThroughFaults::kStride};
    std::vector<std::uint32_t> acknowledged = std::vector<std::uint32_t>(kWarps * kBlocksEach);
    std::vector<std::uint32_t> tried = acknowledged;
    std::uint64_t progress = 0;
    std::uint64_t failed[3] = {};
};

TEST_F(Faults, AQueuePairKilledUnderLanesIsReportedReclaimedAndNothingAcknowledgedIsLost) {
    SplitMix64 random(run_seed() + 5);
    std::uint32_t launch = 0;
    std::uint64_t noticed = 0;
    std::uint32_t kills = 0;
    const auto end = late();
    while (kills < kKills && !end.passed()) {
        gnor::Channel& channel = b.client->channel(static_cast<std::uint32_t>(random.below(2)));
        const auto slot = static_cast<std::uint32_t>(random.below(4));
        const std::uint64_t before = done(), failures_before = failures();
        auto run = start(launch++);
        GN_ASSERT_OK(run);
        wait_for(late(), before + random.below(kWarps * kRounds / 2), *run);
        b.rig.nic->disconnect(channel.queue_pair(slot));
        // Where this thread stood still, the lanes have little left to notice it by: that is not one of them.
        const bool under_lanes = done() < before + kWarps * kRounds * 3 / 4;
        GN_ASSERT_OK(run->wait(late()));
        kills += under_lanes ? 1 : 0;
        const auto first = channel.first_error();
        GN_ASSERT_OK(first);
        if (failures() != failures_before) {
            noticed += under_lanes ? 1 : 0;
            ASSERT_TRUE(first->has_value());
            EXPECT_EQ((*first)->queue, slot);
            EXPECT_EQ((*first)->status, static_cast<std::uint32_t>(Status::kQueueError));
        }
        GN_ASSERT_OK(b.client->reclaim());
        GN_ASSERT_OK(channel.clear_first_error());
        b.expect_clean();
        const std::uint64_t settled = failures();
        auto again = start(launch++);
        GN_ASSERT_OK(again);
        GN_ASSERT_OK(again->wait(late()));
        EXPECT_EQ(failures(), settled) << "a reclaimed channel must work, GN_SEED=" << run_seed();
    }
    EXPECT_EQ(failed[1] + failed[2], 0u) << "last status " << std::hex << b.report().last_status;
    EXPECT_EQ(kills, kKills);
    EXPECT_GE(noticed, kKills / 2);
    expect_nothing_lost();
    count("array_queue_pairs_killed", kills);
    count("array_kills_noticed", noticed);
    b.expect_clean();
}

TEST_F(Faults, AllQueuePairsOfAChannelMayDieAtOnce) {
    auto run = start(0);
    GN_ASSERT_OK(run);
    wait_for(late(), kWarps * kRounds / 4, *run);
    for (std::uint32_t slot = 0; slot < 4; ++slot)
        b.rig.nic->disconnect(b.client->channel(0).queue_pair(slot));
    GN_ASSERT_OK(run->wait(late()));
    GN_ASSERT_OK(b.client->reclaim());
    const std::uint64_t settled = failures();
    GN_ASSERT_OK(b.client->reclaim());  // nothing to do: nothing breaks
    auto again = start(1);
    GN_ASSERT_OK(again);
    GN_ASSERT_OK(again->wait(late()));
    EXPECT_EQ(failures(), settled);
    expect_nothing_lost();
    b.expect_clean();
}

TEST_F(Faults, LateAnswersEndWaitsAtTheirDeadlineAndFreeEverythingWhenTheyCome) {
    std::uint64_t timeouts = 0;
    for (std::uint32_t round = 0; round < kHolds; ++round) {
        Hold hold(*b.rig.node->nic_reactors().front());
        const std::uint64_t before = failed[1];
        b.common.timeout_ns = 500'000;
        ThroughFaults k = kernel(round);
        k.rounds = 2;
        b.launch(kWarps, 1, k, 6);
        EXPECT_GT(failed[1], before);
        timeouts = failed[1];
        EXPECT_EQ(failed[2], 0u) << "last status " << std::hex << b.report().last_status;
        std::uint64_t quarantined = 0;
        for (std::uint32_t i = 0; i < 2; ++i)
            quarantined += b.client->channel(i).counters().value().quarantined;
        EXPECT_GT(quarantined, 0u);
        hold.release();
        b.expect_clean();
    }
    b.common.timeout_ns = kLongNs;
    const std::uint64_t settled = failures();
    auto again = start(kHolds);
    GN_ASSERT_OK(again);
    GN_ASSERT_OK(again->wait(late()));
    EXPECT_EQ(failures(), settled);
    expect_nothing_lost();
    count("array_timeouts", timeouts);
}

TEST_F(Faults, AfterReclaimNoBufferIsTouchedByWhatTimedOut) {
    const VolumeRef v = b.volume->ref();
    gnor::Channel& channel = b.client->channel(0);
    const ChannelRef ch = channel.ref();
    std::vector<std::uint64_t> data(kWordsPerBlock * 256);
    fill_tagged(kMe, data.data(), 1, 0, 256, tag_of(0, 0));
    ASSERT_EQ(v.write(kMe, ch, 0, 256, data.data(), late()), Status::kSuccess);
    std::uint64_t timed_out = 0;
    for (std::uint32_t round = 0; round < kHolds; ++round) {
        std::vector<std::uint64_t*> buffers;
        std::vector<Token> tokens;
        Hold hold(*b.rig.node->nic_reactors().front());
        for (std::uint32_t i = 0; i < 24; ++i) {
            auto* buffer = static_cast<std::uint64_t*>(ch.alloc(kMe, 4096));
            ASSERT_NE(buffer, nullptr);
            const Token token = v.try_read_async(simt::Lane{}, ch, i * 7 % 256, 1, buffer);
            buffers.push_back(buffer);
            if (token.in_flight()) tokens.push_back(token);
        }
        for (const Token& token : tokens) {
            const Status status = ch.wait(kMe, token, soon());
            EXPECT_EQ(status, Status::kTimedOut);
            timed_out += status == Status::kTimedOut ? 1 : 0;
        }
        hold.release();
        GN_ASSERT_OK(b.client->reclaim());
        for (auto* buffer : buffers) std::fill_n(buffer, kWordsPerBlock, 0xC0FFEEull);
        EXPECT_EQ(channel.counters().value().quarantined, 0u);
        // Through other queue pairs of the same NIC and engine.
        std::vector<std::uint64_t> back(data.size());
        ASSERT_EQ(b.volume->ref().read(kMe, b.client->channel(1).ref(), 0, 256, back.data(), late()),
                  Status::kSuccess);
        ASSERT_EQ(v.read(kMe, ch, 0, 256, back.data(), late()), Status::kSuccess);
        EXPECT_EQ(back, data);
        for (auto* buffer : buffers) {
            EXPECT_TRUE(std::all_of(buffer, buffer + kWordsPerBlock, [](auto w) { return w == 0xC0FFEEull; }))
                << "the buffer changed after reclaim, round " << round;
            EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
        }
        b.expect_clean();
    }
    count("array_timeouts", timed_out);
}

TEST_F(Faults, AnExpiredAssociationIsRestoredByReclaim) {
    constexpr std::uint32_t kKeepAliveMs = 1000;
    auto client = b.rig.connect("brief", 2, 8, simt::LanesKind::kCpu, kKeepAliveMs);
    auto volume = b.rig.volume(*client, "brief", 64);
    std::vector<std::uint64_t> data(64 * kWordsPerBlock), back(data.size());
    std::uint64_t lost = 0;
    for (std::uint32_t round = 0; round < 3; ++round) {
        {
            Hold hold(*b.rig.node->nic_reactors().front());
            const std::uint64_t over = daemon::boottime_ms() + 2 * kKeepAliveMs;
            while (daemon::boottime_ms() < over) std::this_thread::yield();
        }
        fill_tagged(kMe, data.data(), 1, 0, 64, tag_of(0, round));
        const ChannelRef ch = client->channel(round % 2).ref();
        // The next one may be lost at any moment, where a busy machine delays the thread that renews it.
        const auto write_and_read = [&] {
            const Status written = volume->ref().write(kMe, ch, 0, 64, data.data(), late());
            return nvme::ok(written) ? volume->ref().read(kMe, ch, 0, 64, back.data(), late()) : written;
        };
        Status status = write_and_read();
        lost += nvme::ok(status) ? 0 : 1;
        const auto deadline = late();
        while (!nvme::ok(status) && !deadline.passed()) {
            const auto reclaimed = client->reclaim();
            if (!reclaimed.ok()) std::printf("  %s\n", reclaimed.error().message.c_str());
            status = write_and_read();
        }
        ASSERT_EQ(status, Status::kSuccess);
        EXPECT_EQ(back, data);
    }
    std::printf("  %llu of %u writes met a lost association\n", static_cast<unsigned long long>(lost), 3u);
    // One of the other channels' may be lost at that moment, too.
    auto reclaimed = client->reclaim();
    for (const auto end = late(); !reclaimed.ok() && !end.passed();) reclaimed = client->reclaim();
    GN_ASSERT_OK(reclaimed);
    volume.reset();
    b.rig.expect_clean(*client);
}

TEST_F(Faults, WithAStoppedEngineHostTransfersAndQuiesceTimeOutInsteadOfHanging) {
    Hold hold(*b.rig.node->nic_reactors().front());
    const ChannelRef ch = b.client->channel(0).ref();
    std::vector<std::uint64_t> data(kWordsPerBlock);
    const VolumeRef v = b.volume->ref();
    const auto expect_timed_out = [](auto call) { EXPECT_EQ(sent_in(200'000'000, call), Status::kTimedOut); };
    expect_timed_out([&](auto until) { return v.write(kMe, ch, 0, 1, data.data(), until); });
    expect_timed_out([&](auto until) { return v.flush(kMe, ch, until); });
    expect_timed_out([&](auto until) { return v.trim(kMe, ch, 0, 1, until); });
    const auto quiet = b.client->quiesce(5);
    ASSERT_FALSE(quiet.ok());
    EXPECT_EQ(quiet.error().code, Errc::kTimedOut);
    hold.release();
    b.expect_clean();
}

}  // namespace gnstor::test::faults_test
