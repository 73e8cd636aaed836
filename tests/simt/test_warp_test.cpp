// Groups and atomics on test warps of many lanes; and that test warps notice kernels that break the rules.
#include "support/test_warp.hpp"

#include <gnstor/base/hash.hpp>
#include <gnstor/simt/atomic.hpp>
#include <gnstor/simt/time.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "support/count.hpp"
#include "support/seed.hpp"

namespace gnstor::simt {
namespace {

constexpr std::uint32_t kWidths[] = {1, 2, 7, 32};

/// Failures seen by lanes: gtest's own assertions are not for many threads at once. Orders nothing among
/// lanes.
class LaneChecks {
  public:
    void expect(bool holds) {
        checks_.fetch_add(1, std::memory_order_relaxed);
        if (!holds) failures_.fetch_add(1, std::memory_order_relaxed);
    }
    std::uint64_t checks() const { return checks_; }
    std::uint64_t failures() const { return failures_; }

  private:
    std::atomic<std::uint64_t> checks_{0}, failures_{0};
};

TestWarpCounters run(std::uint32_t warps, std::uint32_t lanes, std::uint64_t seed,
                     const std::function<void(Lane)>& kernel) {
    const auto result = run_test_warps({.warps = warps, .lanes = lanes, .seed = seed}, kernel);
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? *result : TestWarpCounters{};
}

std::string failure_of(std::uint32_t lanes, const std::function<void(Lane)>& kernel) {
    const auto result = run_test_warps({.warps = 1, .lanes = lanes, .seed = test::run_seed()}, kernel);
    return result.ok() ? "" : result.error().message;
}

TEST(TestWarp, CollectivesGiveEveryMemberTheSameAnswer) {
    for (const std::uint32_t w : kWidths) {
        LaneChecks checks;
        const auto counters = run(1, w, test::run_seed(), [&](Lane lane) {
            const std::uint32_t me = lane.index_in_warp;
            const MaskGroup g = warp(lane);
            checks.expect(g.size() == w && g.rank() == me && g.leader() == 0 && g.is_leader() == (me == 0));
            for (std::uint32_t i = 0; i < 40; ++i) {
                const LaneSet odd = g.ballot((me + i) % 2 == 1);
                std::uint32_t expected = 0;
                for (std::uint32_t l = 0; l < w; ++l) expected += (l + i) % 2;
                checks.expect(odd.count() == expected && odd.contains(me) == ((me + i) % 2 == 1));
                checks.expect(g.any(me == i % w) && g.all(me < w) && g.all(me != 0) == (w == 0));
                checks.expect(g.shfl(std::uint64_t{me} * 1000 + i, i % w) == std::uint64_t{i % w} * 1000 + i);
                checks.expect(g.shfl(static_cast<std::uint16_t>(me), w - 1) == w - 1);
                const LaneSet same = g.match(static_cast<std::uint8_t>(me % 3));
                checks.expect(same.contains(me) && same.count() == (w - me % 3 + 2) / 3 &&
                              same.lowest() == me % 3);
                checks.expect(g.sum(me + i) == w * (w - 1) / 2 + w * i && g.sum(0xFFFFFFFFu) == 0u - w);
                std::uint64_t all = 0;
                for (std::uint32_t l = 0; l < w; ++l) all |= std::uint64_t{1} << (l + i % 2 * 32);
                checks.expect(g.unite(std::uint64_t{1} << (me + i % 2 * 32)) == all);
                g.sync();
            }
        });
        EXPECT_EQ(checks.failures(), 0u) << "of " << checks.checks() << " at " << w << " lanes";
        EXPECT_GE(counters.meetings, 40u * 10u);
        test::count("simt_meetings", counters.meetings);
    }
}

TEST(TestWarp, SyncMakesEarlierWritesVisibleToTheGroup) {
    for (const std::uint32_t w : kWidths) {
        LaneChecks checks;
        std::vector<std::uint64_t> plain(w);  // not atomic: under ThreadSanitizer a missing order is a report
        run(1, w, test::run_seed(), [&](Lane lane) {
            const MaskGroup g = warp(lane);
            for (std::uint64_t i = 0; i < 50; ++i) {
                plain[lane.index_in_warp] = i * 100 + lane.index_in_warp;
                g.sync();
                const std::uint32_t next = (lane.index_in_warp + 1) % w;
                checks.expect(plain[next] == i * 100 + next);
                g.sync();
            }
        });
        EXPECT_EQ(checks.failures(), 0u);
    }
}

TEST(TestWarp, AReleaseMakesPlainMemoryVisibleToAnAcquirer) {
    struct Box {
        std::uint64_t payload = 0;
        std::uint32_t ready = 0;
    };
    for (const std::uint32_t w : kWidths) {
        LaneChecks checks;
        std::vector<Box> boxes(w);
        run(1, w, test::run_seed(), [&](Lane lane) {
            Box& mine = boxes[lane.index_in_warp];
            mine.payload = 7000 + lane.index_in_warp;
            store_release<Scope::kDevice>(&mine.ready, 1u);  // pairs with the acquire below
            const std::uint32_t from = (lane.index_in_warp + 1) % w;
            std::uint32_t backoff = 0;
            const Deadline deadline = Deadline::in_ns(60'000'000'000);
            while (load_acquire<Scope::kDevice>(&boxes[from].ready) == 0 && !deadline.passed())
                pause(backoff);
            checks.expect(boxes[from].payload == 7000 + from);
        });
        EXPECT_EQ(checks.failures(), 0u);
    }
}

/// Hands plain memory from lane to lane: `give` turns `*word` from 0 to 1 behind the
/// payload, `look` says what it holds. ThreadSanitizer tells where either orders less than it says.
template <class Give, class Look>
void expect_handed_over(const Give& give, const Look& look, const char* what) {
    LaneChecks checks;
    struct Box {
        std::uint64_t payload = 0;
        std::uint32_t ready = 0;
    };
    std::vector<Box> boxes(7);
    run(1, 7, test::run_seed(), [&](Lane lane) {
        Box& mine = boxes[lane.index_in_warp];
        mine.payload = 9000 + lane.index_in_warp;
        give(&mine.ready);
        const std::uint32_t from = (lane.index_in_warp + 1) % 7;
        std::uint32_t backoff = 0;
        const Deadline deadline = Deadline::in_ns(60'000'000'000);
        while (look(&boxes[from].ready) == 0 && !deadline.passed()) pause(backoff);
        checks.expect(boxes[from].payload == 9000 + from);
    });
    EXPECT_EQ(checks.failures(), 0u) << what;
}

TEST(TestWarp, AReadModifyWriteOrdersWhatItNames) {
    constexpr auto kDevice = Scope::kDevice;
    using Word = std::uint32_t*;
    const auto acquires = [](Word p) { return load_acquire<kDevice>(p); };
    expect_handed_over([](Word p) { fetch_or<kDevice, Order::kRelease>(p, 1u); }, acquires, "or");
    expect_handed_over([](Word p) { fetch_add<kDevice, Order::kRelease>(p, 1u); }, acquires, "add");
    expect_handed_over([](Word p) { exchange<kDevice, Order::kRelease>(p, 1u); }, acquires, "exchange");
    expect_handed_over([](Word p) { compare_exchange<kDevice, Order::kRelease>(p, 0u, 1u); }, acquires,
                       "compare-and-exchange");
    const auto releases = [](Word p) { store_release<kDevice>(p, 1u); };
    expect_handed_over(
        releases, [](Word p) { return fetch_or<kDevice, Order::kAcquire>(p, 0u); }, "or");
    expect_handed_over(
        releases, [](Word p) { return fetch_and<kDevice, Order::kAcquire>(p, 1u); }, "and");
    expect_handed_over(
        releases, [](Word p) { return fetch_add<kDevice, Order::kAcquire>(p, 0u); }, "add");
    expect_handed_over(
        releases, [](Word p) { return compare_exchange<kDevice, Order::kAcquire>(p, 1u, 1u); },
        "compare-and-exchange");
    // What names nothing orders both.
    expect_handed_over([](Word p) { fetch_add<kDevice>(p, 1u); },
                       [](Word p) { return fetch_or<kDevice>(p, 0u); }, "by default");
    // On a CPU, and so under ThreadSanitizer, by itself; on a GPU with the release that follows.
    expect_handed_over([](Word p) { fetch_or<kDevice, kReleasedLater>(p, 1u); }, acquires, "released later");
    expect_handed_over([](Word p) { store_released<kDevice>(p, 1u); }, acquires, "a released store");
}

TEST(TestWarp, ReadModifyWritesOfManyWarpsLoseNothing) {
    for (const std::uint32_t w : kWidths) {
        constexpr std::uint32_t kWarps = 3, kRounds = 60;
        std::uint64_t sum = 0, added = 0, by_cas = 0, plain_under_lock = 0;
        std::uint32_t bits = 0, cleared = 0xFFFFFFFFu, lock = 0, swapped = 0;
        const auto counters = run(kWarps, w, test::run_seed(), [&](Lane lane) {
            for (std::uint32_t i = 0; i < kRounds; ++i) {
                fetch_add<Scope::kDevice>(&sum, lane.grid_rank() + 1);
                add<Scope::kDevice>(&added, lane.grid_rank() + 1);
                fetch_or<Scope::kBlock>(&bits, 1u << lane.index_in_warp);
                fetch_and<Scope::kBlock>(&cleared, ~(1u << lane.index_in_warp));
                exchange<Scope::kSystem>(&swapped, lane.index_in_warp + 1);
                std::uint64_t seen = load_relaxed<Scope::kDevice>(&by_cas);
                for (std::uint64_t was;
                     (was = compare_exchange<Scope::kDevice>(&by_cas, seen, seen + 1)) != seen;)
                    seen = was;
                std::uint32_t backoff = 0;
                while (compare_exchange<Scope::kDevice>(&lock, 0u, 1u) != 0) pause(backoff);
                ++plain_under_lock;
                store_release<Scope::kDevice>(&lock, 0u);  // pairs with the compare_exchange that takes it
            }
        });
        const std::uint64_t lanes = std::uint64_t{kWarps} * w;
        EXPECT_EQ(sum, kRounds * lanes * (lanes + 1) / 2);
        EXPECT_EQ(added, sum);
        EXPECT_EQ(by_cas, kRounds * lanes);
        EXPECT_EQ(plain_under_lock, kRounds * lanes);
        EXPECT_EQ(bits, w == 32 ? 0xFFFFFFFFu : (1u << w) - 1);
        EXPECT_EQ(cleared, ~bits);
        EXPECT_TRUE(swapped >= 1 && swapped <= w);
#if defined(GN_TEST_WARPS)
        EXPECT_GE(counters.atomics, kRounds * lanes * 8) << "yield points were not passed";
        EXPECT_GT(counters.yields, 0u);
        test::count("simt_atomics_with_yields", counters.atomics);
#else
        (void)counters;
#endif
    }
}

TEST(TestWarp, ExitedLanesTakeNoPartInLaterCollectives) {
    for (const std::uint32_t w : kWidths) {
        for (std::uint64_t seed = 0; seed < 5; ++seed) {
            LaneChecks checks;
            const auto leaves_after = [&](std::uint32_t lane) {
                return mix64(test::run_seed() + seed * 64 + lane) % 20;
            };
            run(2, w, seed, [&](Lane lane) {
                for (std::uint64_t round = 0; round < 20; ++round) {
                    if (leaves_after(lane.index_in_warp) == round) return;
                    std::uint32_t live = 0;
                    for (std::uint32_t l = 0; l < w; ++l) live += leaves_after(l) > round ? 1u : 0u;
                    const MaskGroup g = warp(lane);
                    checks.expect(g.size() == live);
                    checks.expect(g.ballot(true).count() == live);
                    checks.expect(g.shfl(lane.index_in_warp, g.leader()) == g.leader());
                }
            });
            EXPECT_EQ(checks.failures(), 0u);
            EXPECT_GT(checks.checks(), 0u);
        }
    }
}

TEST(TestWarp, DivergedLanesFormGroupsOfTheirOwnSide) {
    std::uint64_t splits = 0, gatherings = 0;
    for (const std::uint32_t w : kWidths) {
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
            LaneChecks checks;
            std::uint64_t by_leaders = 0;
            const auto counters = run(1, w, test::run_seed() + seed, [&](Lane lane) {
                SplitMix64 random(test::run_seed() + seed * 1000 + lane.index_in_warp);
                for (int i = 0; i < 25; ++i) {
                    if (random.below(2) == 0) {
                        const MaskGroup g = active(lane);
                        checks.expect(g.members().contains(lane.index_in_warp));
                        checks.expect(g.ballot(true) == g.members());
                        checks.expect(g.all(g.shfl(7, g.leader()) == 7));
                        if (g.is_leader()) fetch_add<Scope::kBlock>(&by_leaders, g.size());
                    } else {
                        const MaskGroup g = active(lane);
                        const LaneSet same = g.match(g.rank());
                        checks.expect(same.count() == 1 && same.contains(lane.index_in_warp));
                        g.sync();
                        if (g.is_leader()) fetch_add<Scope::kBlock>(&by_leaders, g.size());
                    }
                }
                warp(lane).sync();  // and converge again
            });
            EXPECT_EQ(checks.failures(), 0u);
            EXPECT_EQ(by_leaders, 25u * w) << "every lane is in exactly one group a time";
            splits += counters.splits;
            gatherings += counters.gatherings;
        }
    }
    test::count("simt_groups_gathered", gatherings);
    test::count("simt_groups_split", splits);
    EXPECT_GT(splits, 0u) << "active() never returned fewer lanes than the warp has";
}

TEST(TestWarp, BlocksAndWarpsAreNumberedAsOnAGpu) {
    std::mutex mutex;
    std::set<std::uint64_t> grid_ranks, warp_ranks;
    const auto result =
        run_test_warps({.warps = 6, .lanes = 4, .seed = 1, .warps_per_block = 3}, [&](Lane lane) {
            const std::lock_guard lock(mutex);
            grid_ranks.insert(lane.grid_rank());
            warp_ranks.insert(lane.warp_rank());
            EXPECT_EQ(lane.grid_size(), 24u);
            EXPECT_EQ(lane.warp_rank(), lane.grid_rank() / 4);
            EXPECT_EQ(lane.index_in_warp, lane.thread % 4);
        });
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(grid_ranks.size(), 24u);
    EXPECT_EQ(warp_ranks.size(), 6u);
}

// Deliberately wrong kernels: each must end with a report, not hang, not pass.

TEST(BrokenKernel, ACollectiveAtTwoPlacesIsReported) {
    const std::string why = failure_of(7, [](Lane lane) {
        const MaskGroup g = warp(lane);
        if (lane.index_in_warp == 3)
            g.sync();
        else
            g.sync();
    });
    EXPECT_NE(why.find("collectives do not match"), std::string::npos) << why;
    EXPECT_NE(why.find("test_warp_test.cpp"), std::string::npos) << "the report does not say where: " << why;
}

TEST(BrokenKernel, DifferentCollectivesOnOneLineAreReported) {
    const std::string why = failure_of(2, [](Lane lane) {
        const MaskGroup g = warp(lane);
        (void)(lane.index_in_warp == 0 ? g.any(true) : g.shfl(true, 0u));
    });
    EXPECT_NE(why.find("collectives do not match"), std::string::npos) << why;
}

TEST(BrokenKernel, LanesThatWaitForEachOtherAreReported) {
    const std::string why = failure_of(4, [](Lane lane) {
        const MaskGroup g = warp(lane);
        if (lane.index_in_warp == 0)
            (void)g.ballot(true);
        else
            (void)warp(lane);
    });
    EXPECT_NE(why.find("wait for each other"), std::string::npos) << why;
}

TEST(BrokenKernel, AShuffleFromAnAbsentLaneIsReported) {
    EXPECT_NE(failure_of(4, [](Lane lane) { (void)warp(lane).shfl(1, 9); }).find("shfl"), std::string::npos);
    EXPECT_NE(failure_of(2, [](Lane lane) { (void)warp(lane).shfl(1, 40); }).find("shfl"), std::string::npos);
}

TEST(BrokenKernel, AnExceptionIsReported) {
    EXPECT_NE(failure_of(3,
                         [](Lane lane) {
                             if (lane.index_in_warp == 1) throw std::runtime_error("out of cheese");
                             (void)warp(lane);
                         })
                  .find("out of cheese"),
              std::string::npos);
}

#if defined(GN_TEST_WARPS)
TEST(BrokenKernel, LanesThatSpinAreEndedWhenAnotherFails) {
    std::uint32_t never = 0;
    const std::string why = failure_of(4, [&](Lane lane) {
        if (lane.index_in_warp == 0) (void)self(lane).size();
        if (lane.index_in_warp == 1) throw std::runtime_error("the first to go");
        std::uint32_t backoff = 0;
        while (load_acquire<Scope::kDevice>(&never) == 0) pause(backoff);
    });
    EXPECT_NE(why.find("the first to go"), std::string::npos) << why;
}
#endif

TEST(BrokenKernel, TheReportNamesTheSeed) {
    EXPECT_NE(failure_of(2, [](Lane lane) { (void)warp(lane).shfl(1, 31); }).find("seed"), std::string::npos);
}

TEST(TestWarp, RefusesInvalidSizes) {
    const auto nothing = [](Lane) {};
    EXPECT_FALSE(run_test_warps({.warps = 1, .lanes = 0}, nothing).ok());
    EXPECT_FALSE(run_test_warps({.warps = 1, .lanes = 33}, nothing).ok());
    EXPECT_FALSE(run_test_warps({.warps = 0, .lanes = 1}, nothing).ok());
    EXPECT_FALSE(run_test_warps({.warps = 1000, .lanes = 32}, nothing).ok());
}

TEST(CpuLane, AWarpOfOneLaneNeverWaits) {
    const Lane lane;
    const MaskGroup g = warp(lane);
    EXPECT_EQ(g.size(), 1u);
    EXPECT_TRUE(g.is_leader() && g.any(true) && !g.any(false) && g.all(true));
    EXPECT_EQ(g.shfl(42, 0), 42);
    EXPECT_EQ(g.match(1).count(), 1u);
    EXPECT_EQ(g.sum(7), 7u);
    EXPECT_EQ(g.unite(1ull << 40), 1ull << 40);
    EXPECT_EQ(self(lane).sum(7) + self(lane).unite(8), 15u);
    EXPECT_EQ(active(lane).size(), 1u);
    EXPECT_EQ(self(lane).size(), 1u);
}

}  // namespace
}  // namespace gnstor::simt
