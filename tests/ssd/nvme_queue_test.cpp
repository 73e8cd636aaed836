// The queue pair between a host thread and a drive thread: nothing lost, nothing twice, never overrun, whole
// entries.
#include <gnstor/base/hash.hpp>

#include "scratch.hpp"
#include "ssd/queues/nvme_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>
#include <vector>

namespace gnstor::ssd {
namespace {

nvme::Command numbered(std::uint64_t n) {
    nvme::Command c{};
    c.command_id = static_cast<std::uint16_t>(n);
    c.cdw2 = static_cast<std::uint32_t>(n);
    c.cdw3 = static_cast<std::uint32_t>(n >> 32);
    c.metadata = ~n;
    c.cdw15 = static_cast<std::uint32_t>(n * 7);
    return c;
}

TEST(NvmeQueue, HoldsExactlyDepthMinusOneCommands) {
    NvmeQueue q(1, 8, 3, Priority::kHigh, false);
    EXPECT_FALSE(q.has_work());
    for (int i = 0; i < 7; ++i) EXPECT_TRUE(q.submit(numbered(static_cast<std::uint64_t>(i))));
    EXPECT_FALSE(q.submit(numbered(7)));
    nvme::Command c;
    for (int i = 0; i < 7; ++i) {
        ASSERT_TRUE(q.fetch(c));
        EXPECT_EQ(c.command_id, i);
    }
    EXPECT_FALSE(q.fetch(c));
    EXPECT_FALSE(q.submit(numbered(8))) << "room comes with completions that were reaped, not with fetching";
    nvme::Completion done{};
    q.complete(done);
    EXPECT_FALSE(q.submit(numbered(8)));
    EXPECT_TRUE(q.reap(done));
    EXPECT_TRUE(q.submit(numbered(8)));
}

TEST(NvmeQueue, ThePhaseFlipsWithEveryLapAndStaleEntriesAreIgnored) {
    NvmeQueue q(5, 2, 0, Priority::kLow, false);
    nvme::Completion done{};
    for (std::uint32_t i = 0; i < 100; ++i) {
        EXPECT_FALSE(q.reap(done));
        ASSERT_TRUE(q.submit(numbered(i)));
        nvme::Command c;
        ASSERT_TRUE(q.fetch(c));
        EXPECT_FALSE(q.reap(done));
        nvme::Completion answer{};
        answer.dw0 = i;
        answer.command_id = c.command_id;
        answer.set_result(nvme::Status::kAccessDenied);
        q.complete(answer);
        ASSERT_TRUE(q.reap(done));
        EXPECT_EQ(done.dw0, i);
        EXPECT_EQ(done.sq_id, 5);
        EXPECT_EQ(done.sq_head, (i + 1) % 2);
        EXPECT_EQ(done.status & 1u, (i / 2) % 2 == 0 ? 1u : 0u);
        EXPECT_EQ(done.result(), nvme::Status::kAccessDenied);
    }
}

TEST(NvmeQueue, CompletionsMayComeInAnyOrder) {
    NvmeQueue q(1, 4, 0, Priority::kUrgent, false);
    nvme::Command c[3];
    for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(q.submit(numbered(i)));
    for (auto& each : c) ASSERT_TRUE(q.fetch(each));
    for (const int i : {2, 0, 1}) {
        nvme::Completion done{};
        done.command_id = c[i].command_id;
        q.complete(done);
    }
    for (const int i : {2, 0, 1}) {
        nvme::Completion done;
        ASSERT_TRUE(q.reap(done));
        EXPECT_EQ(done.command_id, i);
    }
}

/// One producer, one consumer, both as fast as they go: every command whole, once, in order; every completion
/// once.
std::uint64_t run_two_threads(std::uint32_t depth, std::uint64_t commands, std::uint64_t seed) {
    NvmeQueue q(1, depth, 9, Priority::kMedium, false);
    std::atomic<bool> bad{false};
    // The payload behind a command is plain memory that only the queue orders: ThreadSanitizer sees a missing
    // edge. One slot a command id, and an id is used again only after its completion was reaped.
    std::vector<std::uint64_t> payload(1u << 16, 0);
    std::thread drive([&] {
        SplitMix64 random(seed);
        std::deque<nvme::Command> held;
        std::uint64_t fetched = 0;
        std::uint64_t completed = 0;
        while (completed < commands) {
            nvme::Command c;
            const std::uint64_t burst = random.below(depth) + 1;
            for (std::uint64_t i = 0; i < burst && q.fetch(c); ++i) {
                const nvme::Command expected = numbered(fetched);
                if (c.metadata != expected.metadata || c.cdw15 != expected.cdw15) bad = true;
                if (payload[c.command_id] != fetched) bad = true;
                payload[c.command_id] = ~fetched;
                held.push_back(c);
                ++fetched;
            }
            if (held.size() >= depth) bad = true;
            if (held.empty()) std::this_thread::yield();
            for (std::uint64_t i = random.below(held.size() + 1); i > 0; --i) {
                const bool last = (random.next() & 1) != 0;
                const nvme::Command d = last ? held.back() : held.front();
                if (last)
                    held.pop_back();
                else
                    held.pop_front();
                nvme::Completion done{};
                done.dw0 = d.cdw2;
                done.dw1 = d.cdw3;
                done.command_id = d.command_id;
                done.set_result(nvme::Status::kSuccess);
                q.complete(done);
                ++completed;
            }
        }
    });
    std::uint64_t sent = 0;
    std::uint64_t reaped = 0;
    std::uint64_t sum = 0;
    std::vector<bool> outstanding(1u << 16, false);
    while (reaped < commands) {
        bool moved = false;
        while (sent < commands && !outstanding[sent & 0xFFFF]) {
            payload[sent & 0xFFFF] = sent;
            if (!q.submit(numbered(sent))) break;
            outstanding[sent & 0xFFFF] = true;
            ++sent;
            moved = true;
        }
        nvme::Completion done;
        while (q.reap(done)) {
            if (!outstanding[done.command_id]) bad = true;
            outstanding[done.command_id] = false;
            if (payload[done.command_id] != ~(done.dw0 | (std::uint64_t{done.dw1} << 32))) bad = true;
            sum += done.dw0;
            ++reaped;
            moved = true;
        }
        if (!moved) std::this_thread::yield();
    }
    drive.join();
    EXPECT_FALSE(bad.load()) << "seed " << seed << " depth " << depth;
    EXPECT_EQ(sum, commands * (commands - 1) / 2) << "seed " << seed << " depth " << depth;
    return reaped;
}

TEST(NvmeQueue, TwoThreadsLoseNothingOverManyWraps) {
    const std::uint64_t seed = testing::seed_or(1);
    std::uint64_t total = 0;
    for (const std::uint32_t depth : {2u, 4u, 64u, 1024u}) {
        total += run_two_threads(depth, depth == 2 ? 200'000 : 800'000, seed + depth);
    }
    std::printf("nvme queue: %llu commands through two threads, seed %llu (floor 2000000)\n",
                static_cast<unsigned long long>(total), static_cast<unsigned long long>(seed));
    std::printf("GN_COUNT ssd_queue_commands=%llu\n", static_cast<unsigned long long>(total));
    EXPECT_GE(total, 2'000'000u);
}

}  // namespace
}  // namespace gnstor::ssd
