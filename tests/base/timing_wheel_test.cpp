// The timing wheel against a priority queue: the same entries, the same order, whatever the times.
#include <gnstor/base/hash.hpp>
#include <gnstor/base/timing_wheel.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <queue>
#include <set>
#include <tuple>
#include <vector>

namespace gnstor {
namespace {

std::uint64_t seed_or(std::uint64_t fallback) {
    const char* text = std::getenv("GN_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 0) : fallback;
}

/// Entries by time, then by when they were added.
class Oracle {
  public:
    void add(std::uint64_t now, std::uint64_t due, std::uint32_t value) {
        entries_.emplace(std::max(due, now), next_++, value);
    }
    bool pop(std::uint64_t now, std::uint32_t& value) {
        if (entries_.empty() || std::get<0>(entries_.top()) > now) return false;
        value = std::get<2>(entries_.top());
        entries_.pop();
        return true;
    }
    [[nodiscard]] std::size_t size() const { return entries_.size(); }

  private:
    using Entry = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> entries_;
    std::uint64_t next_ = 0;
};

/// Delays of all magnitudes, many of them equal.
std::uint64_t draw_delay(SplitMix64& random) {
    const std::uint64_t bits = random.below(36);
    const std::uint64_t delay = random.next() & ((1ull << bits) - 1);
    return random.below(4) == 0 ? delay & ~0xFFull : delay;
}

/// Returns how many operations it did.
std::uint64_t run_against_oracle(std::uint64_t seed, std::uint32_t rounds, std::uint32_t burst_most) {
    SplitMix64 random(seed);
    TimingWheel<std::uint32_t> wheel;
    Oracle oracle;
    std::uint64_t now = random.next() >> 20, operations = 0;
    std::uint32_t name = 0;
    for (std::uint32_t round = 0; round < rounds; ++round) {
        for (std::uint64_t adds = random.below(burst_most); adds != 0; --adds, ++name, ++operations) {
            const std::uint64_t delay = draw_delay(random);
            const std::uint64_t due = random.below(32) == 0 ? now - std::min(now, delay) : now + delay;
            wheel.add(now, due, name);
            oracle.add(now, due, name);
        }
        now += draw_delay(random);
        // Not always all that is due: the rest stays due.
        for (std::uint64_t most = random.below(2 * burst_most); most != 0; --most, ++operations) {
            std::uint32_t got = 0, expected = 0;
            const bool any = wheel.pop(now, got);
            EXPECT_EQ(any, oracle.pop(now, expected)) << "seed " << seed << ", round " << round;
            if (!any) break;
            EXPECT_EQ(got, expected) << "seed " << seed << ", round " << round;
            if (::testing::Test::HasFailure()) return operations;
        }
        EXPECT_EQ(wheel.size(), oracle.size());
    }
    return operations;
}

TEST(TimingWheel, ReturnsTheSameEntriesInTheSameOrderAsAPriorityQueue) {
    const std::uint64_t first = seed_or(1);
    std::uint64_t operations = 0;
    for (std::uint64_t seed = first; seed < first + 60 && !HasFailure(); ++seed)
        operations += run_against_oracle(seed, 800, seed % 4 == 0 ? 4 : 100);
    std::printf("GN_COUNT wheel_operations=%llu\n", static_cast<unsigned long long>(operations));
}

TEST(TimingWheel, HoldsAMillionEntriesAndReturnsThemInOrder) {
    constexpr std::uint32_t kEntries = 1'000'000;
    SplitMix64 random(seed_or(7));
    TimingWheel<std::uint64_t> wheel;
    wheel.reserve(kEntries);
    for (std::uint32_t i = 0; i < kEntries; ++i) {
        const std::uint64_t due = 5'000'000'000 + random.below(1'000'000'000);
        wheel.add(5'000'000'000, due, due);
    }
    EXPECT_EQ(wheel.size(), kEntries);
    std::uint64_t value = 0, before = 0, given = 0;
    for (std::uint64_t now = 5'000'000'000; !wheel.empty(); now += 777)
        while (wheel.pop(now, value)) {
            ASSERT_GE(value, before);
            ASSERT_LE(value, now);
            before = value;
            ++given;
        }
    EXPECT_EQ(given, kEntries);
    std::printf("GN_COUNT wheel_held=%u\n", kEntries);
}

TEST(TimingWheel, ReturnsNoEntryBeforeItsTime) {
    for (const std::uint64_t delay : {1ull, 255ull, 256ull, 65'535ull, 65'536ull, 1ull << 24,
                                      (1ull << 32) - 1, 1ull << 32, (1ull << 40) + 3}) {
        TimingWheel<int> wheel;
        int value = 0;
        wheel.add(123'456'789, 123'456'789 + delay, 5);
        EXPECT_LE(wheel.next_ns(), 123'456'789 + delay);
        EXPECT_FALSE(wheel.pop(123'456'789 + delay - 1, value)) << delay;
        EXPECT_TRUE(wheel.pop(123'456'789 + delay, value)) << delay;
        EXPECT_EQ(value, 5);
        EXPECT_TRUE(wheel.empty());
        EXPECT_EQ(wheel.next_ns(), ~0ull);
    }
}

TEST(TimingWheel, ARemovedEntryIsNotReturnedAndTheOthersKeepTheirOrder) {
    const std::uint64_t seed = seed_or(11);
    SplitMix64 random(seed);
    TimingWheel<std::uint64_t> wheel;
    std::set<std::uint64_t> stays, goes;
    for (std::uint64_t i = 0; i < 20'000; ++i) {
        const std::uint64_t due = 1000 + draw_delay(random);
        const std::uint64_t name = (due << 16) | i % 65536;
        wheel.add(1000, due, name);
        (i % 3 == 0 ? goes : stays).insert(name);
    }
    std::set<std::uint64_t> taken;
    wheel.take_if([&](std::uint64_t name) { return goes.contains(name); },
                  [&](std::uint64_t name) { taken.insert(name); });
    EXPECT_EQ(taken, goes);
    EXPECT_EQ(wheel.size(), stays.size());
    std::uint64_t name = 0, before = 0, given = 0;
    while (wheel.pop(1ull << 40, name)) {
        EXPECT_TRUE(stays.contains(name)) << "seed " << seed;
        EXPECT_GE(name >> 16, before);
        before = name >> 16;
        ++given;
    }
    EXPECT_EQ(given, stays.size());
}

TEST(TimingWheel, SlotsEmptiedByRemovalAreSkipped) {
    TimingWheel<std::uint64_t> wheel;
    std::vector<std::uint64_t> stay;
    // On every level, one entry a slot; every second one goes.
    for (const std::uint64_t width : {1ull, 1ull << 8, 1ull << 16, 1ull << 24})
        for (std::uint64_t i = 1; i < 250; ++i) {
            wheel.add(0, i * width, i * width);
            if (i % 2 == 0) stay.push_back(i * width);
        }
    wheel.take_if([&](std::uint64_t due) { return std::ranges::find(stay, due) == stay.end(); },
                  [](std::uint64_t) {});
    std::uint64_t due = 0;
    std::vector<std::uint64_t> given;
    while (wheel.pop(1ull << 33, due)) given.push_back(due);
    EXPECT_EQ(given, stay);
    EXPECT_TRUE(wheel.empty());
}

TEST(TimingWheel, AcceptsNewEntriesWhileItReturnsDueOnes) {
    TimingWheel<int> wheel;
    wheel.add(10, 20, 0);
    int value = -1, given = 0;
    // Each entry adds one that is due at once, and one for later.
    while (given < 1000 && wheel.pop(1000, value)) {
        EXPECT_EQ(value, given);
        ++given;
        if (given < 1000) wheel.add(1000, 20, given);
    }
    EXPECT_EQ(given, 1000);
}

}  // namespace
}  // namespace gnstor
