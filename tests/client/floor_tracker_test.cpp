// floor_tracker_test.cpp: the floor against a plain list of what is not resolved, round after round of the
// ring, and with lanes that go on while the host looks.
#include "client/floor_tracker.hpp"

#include <gtest/gtest.h>
#include <gnstor/base/hash.hpp>

#include "support/count.hpp"
#include "support/seed.hpp"

#include <array>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace gnstor::client::floor_tracker_test {

using gnor::kResolvedBits;
using gnor::kResolvedWords;

/// An opening's memory, and who looks at it.
struct Ring {
    std::uint64_t taken = 0;
    std::vector<std::uint64_t> words = std::vector<std::uint64_t>(kResolvedWords);
    FloorTracker tracker;

    Ring() { words[0] = gnor::kFirstResolvedWord; }
    void resolve(std::uint64_t first, std::uint64_t count = 1) {
        gnor::mark_resolved(words.data(), first, count);
    }
    std::uint64_t look() {
        return tracker
            .advance(
                [this](std::uint64_t& last) -> Result<void> {
                    last = simt::load_relaxed<simt::Scope::kDevice>(&taken);
                    return {};
                },
                [this](std::uint64_t first, std::span<std::uint64_t> to) -> Result<void> {
                    for (std::size_t i = 0; i < to.size(); ++i)
                        to[i] = simt::load_relaxed<simt::Scope::kDevice>(&words.at(first + i));
                    return {};
                })
            .value();
    }
};

TEST(FloorTracker, TheFloorIsTheSequenceBelowTheFirstUnresolvedOne) {
    std::uint64_t looks = 0;
    for (std::uint64_t round = 0; round < 4; ++round) {
        SplitMix64 random(gnstor::test::run_seed() * 10 + round);
        Ring ring;
        std::set<std::uint64_t> open;
        // Close to the end of each round of the ring, where words are of two rounds.
        for (std::uint64_t lap = 0; lap < 4; ++lap) {
            const std::uint64_t skip = kResolvedBits - 2000 - ring.taken % kResolvedBits;
            ring.resolve(ring.taken + 1, skip);
            ring.taken += skip;
            ASSERT_EQ(ring.look(), ring.taken);
            for (int step = 0; step < 4000; ++step) {
                if (open.size() < 200 && random.below(2) == 0) {
                    const std::uint64_t count = 1 + random.below(4);
                    for (std::uint64_t i = 0; i < count; ++i) open.insert(++ring.taken);
                }
                if (!open.empty() && random.below(5) < 3) {
                    auto it = open.begin();
                    std::advance(it, static_cast<long>(random.below(open.size())));
                    ring.resolve(*it);
                    open.erase(it);
                }
                if (random.below(3) != 0) continue;
                ASSERT_EQ(ring.look(), open.empty() ? ring.taken : *open.begin() - 1) << "lap " << lap;
                ++looks;
            }
            for (const std::uint64_t s : open) ring.resolve(s);
            open.clear();
            ASSERT_EQ(ring.look(), ring.taken);
        }
        EXPECT_FALSE(ring.tracker.overrun());
    }
    gnstor::test::count("client_floor_looks", looks);
}

TEST(FloorTracker, OnlyOneValueOfAWordMeansThatAllItsSequencesAreResolved) {
    Ring ring;
    const auto expect_all = [&] {
        for (const std::uint64_t w : {std::uint64_t{0}, std::uint64_t{1}, kResolvedWords - 1})
            EXPECT_EQ(ring.words[w], gnor::all_resolved(w, ring.taken)) << "word " << w;
    };
    for (const std::uint64_t more :
         {std::uint64_t{3}, std::uint64_t{27}, std::uint64_t{1}, std::uint64_t{1}, kResolvedBits - 33,
          std::uint64_t{1}, std::uint64_t{40}, kResolvedBits, kResolvedBits, std::uint64_t{5}}) {
        ring.resolve(ring.taken + 1, more);
        ring.taken += more;
        expect_all();
    }
}

TEST(FloorTracker, AnUnresolvedWriteHoldsTheFloorHoweverManySequencesFollow) {
    Ring ring;
    ring.resolve(1, 6);
    ring.taken = 7;
    ASSERT_EQ(ring.look(), 6u);
    ring.resolve(8, kResolvedBits - 1);  // all but 7
    ring.taken = 7 + kResolvedBits - 1;
    EXPECT_EQ(ring.look(), 6u);
    EXPECT_FALSE(ring.tracker.overrun()) << "sequence 6 and a whole ring above it fit";
    ring.taken += 1;  // on the bit of 7, and not resolved either
    EXPECT_EQ(ring.look(), 6u);
    EXPECT_TRUE(ring.tracker.overrun());
    EXPECT_EQ(ring.look(), 6u) << "the bits of the reused word must not count for the old sequence";
    ring.resolve(7);
    EXPECT_EQ(ring.look(), 6u);
    ring.resolve(ring.taken);
    EXPECT_EQ(ring.look(), ring.taken) << "all sequences are resolved";
    EXPECT_FALSE(ring.tracker.overrun());
}

TEST(FloorTracker, ATrackerPolledTooRarelyFindsTheFloorAgainWhileLanesContinueToWrite) {
    Ring ring;
    ring.taken = kResolvedBits + 100'000;
    ring.resolve(1, ring.taken - 50);
    EXPECT_EQ(ring.look(), 0u);
    EXPECT_TRUE(ring.tracker.overrun());
    // There are always 50 that are under way.
    for (int i = 0; i < 2; ++i) {
        ring.resolve(ring.taken - 49, 1000);
        ring.taken += 1000;
        (void)ring.look();
    }
    EXPECT_FALSE(ring.tracker.overrun());
    EXPECT_EQ(ring.look(), ring.taken - 50);
}

/// Threads take and resolve as lanes do. Each says which of its sequences it holds open, after it took it and
/// until just before it resolves it: what stands there before a look and after it was open all the while, and
/// no floor may have passed it.
TEST(FloorTracker, NeverPassesAWriteInFlightWhileLanesContinueToWrite) {
    constexpr std::size_t kThreads = 3;
    constexpr std::uint64_t kOperations = 60'000;
    Ring ring;
    std::array<std::atomic<std::uint64_t>, kThreads> open{};  // 0: none that is sure
    std::atomic<std::size_t> running{kThreads};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < kOperations; ++i) {
                const std::uint64_t mine =
                    simt::fetch_add<simt::Scope::kDevice>(&ring.taken, std::uint64_t{1}) + 1;
                open[t].store(mine);
                if (i % 64 == 0) std::this_thread::yield();
                open[t].store(0);
                ring.resolve(mine);
            }
            --running;
        });
    std::uint64_t moved = 0, before = 0, seen = 0;
    while (running != 0) {
        std::array<std::uint64_t, kThreads> held;
        for (std::size_t t = 0; t < kThreads; ++t) held[t] = open[t].load();
        const std::uint64_t floor = ring.look();
        EXPECT_GE(floor, before);
        for (std::size_t t = 0; t < kThreads; ++t) {
            if (held[t] == 0 || open[t].load() != held[t]) continue;
            ++seen;
            EXPECT_LT(floor, held[t]);
        }
        moved += floor > before ? 1 : 0;
        before = floor;
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ring.look(), kThreads * kOperations);
    EXPECT_FALSE(ring.tracker.overrun());
    EXPECT_GT(moved, 0u);
    gnstor::test::count("client_floor_held_looks", seen);
}

}  // namespace gnstor::client::floor_tracker_test
