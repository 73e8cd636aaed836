// What a modelled drive promises: latency, limits and order, whatever is asked of it. Pure: no clock.
#include "ssd/options/timing_model.hpp"

#include <gnstor/base/hash.hpp>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <queue>
#include <vector>

namespace gnstor::ssd {
namespace {

using Request = TimingModel::Request;
constexpr std::uint32_t kBytesMax = 1u << 20;

DriveTiming sample() {
    DriveTiming t;
    t.read = {{4096, 832'000, 40'000}, {65536, 111'808, 50'000}};
    t.write = {{4096, 762'880, 12'000}, {65536, 79'200, 20'000}};
    t.firmware_ns = 276;
    t.channels = 8;
    t.dies_per_channel = 8;
    t.stripe_bytes = 16384;
    t.read_die_ns = 30'000;
    t.program_die_ns = 100'000;
    t.channel_bytes_per_second = 2e9;
    return t;
}

/// Timings that check() takes, drawn from a generator.
DriveTiming any_timing() {
    DriveTiming t;
    const auto points = [](std::uint64_t latency) {
        const double small = *rc::gen::inRange(1'000, 3'000'000);
        const double share = *rc::gen::inRange(16, 160) / 160.0;  // of the small size's operations a second
        return std::vector<SizePoint>{
            {4096, small, latency},
            {65536, std::max(1.0, small * share / 2), latency + *rc::gen::inRange<std::uint64_t>(0, 50'000)}};
    };
    t.firmware_ns = *rc::gen::inRange(0u, 2000u);
    t.read_die_ns = *rc::gen::inRange<std::uint64_t>(0, 3'000);
    t.read = points(t.read_die_ns + *rc::gen::inRange<std::uint64_t>(20'000, 100'000));
    t.write = points(*rc::gen::inRange<std::uint64_t>(1, 30'000));
    t.channels = *rc::gen::inRange(4u, 17u);
    t.dies_per_channel = *rc::gen::inRange(8u, 65u);
    t.stripe_bytes = *rc::gen::element(4096u, 16384u, 65536u);
    t.program_die_ns = *rc::gen::inRange<std::uint64_t>(0, 1'000);
    t.channel_bytes_per_second = 2e11;
    RC_PRE(check(t).ok());
    return t;
}

std::vector<Request> any_requests(std::uint32_t count, SplitMix64 random) {
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < count; ++i)
        requests.push_back({random.below(1u << 24),
                            512u * (1 + static_cast<std::uint32_t>(random.below(256))),
                            random.below(2) == 0});
    return requests;
}

TEST(TimingModel, NothingIsAnsweredBeforeItsLatency) {
    EXPECT_TRUE(rc::check([] {
        TimingModel model(any_timing(), kBytesMax);
        SplitMix64 random(*rc::gen::arbitrary<std::uint64_t>());
        std::uint64_t now = random.next() >> 8, due[32];
        for (int i = 0; i < 200; ++i) {
            const auto batch =
                any_requests(1 + static_cast<std::uint32_t>(random.below(32)), SplitMix64(random.next()));
            model.schedule(now, batch, due);
            for (std::size_t k = 0; k < batch.size(); ++k)
                RC_ASSERT(static_cast<double>(due[k] - now) >=
                          model.latency_ns(batch[k].write, batch[k].bytes));
            now += random.below(100'000);
        }
    }));
}

/// An idle drive answers after exactly the latency that was stated.
TEST(TimingModel, AnIdleDriveTakesItsStatedLatency) {
    EXPECT_TRUE(rc::check([] {
        const DriveTiming timing = any_timing();
        TimingModel model(timing, kBytesMax);
        std::uint64_t now = 1, due = 0;
        for (const bool write : {false, true})
            for (const SizePoint& p : write ? timing.write : timing.read) {
                const Request r{*rc::gen::inRange<std::uint64_t>(0, 1u << 20) * (timing.stripe_bytes / 4096),
                                p.bytes, write};
                if (p.bytes > timing.stripe_bytes * timing.channels) continue;  // pieces share channels
                model.schedule(now, {&r, 1}, {&due, 1});
                RC_ASSERT(due - now == p.latency_ns + timing.firmware_ns);
                now += 10'000'000'000;
            }
    }));
}

TEST(TimingModel, ABatchIsAnsweredAsItsCommandsOneByOne) {
    EXPECT_TRUE(rc::check([] {
        const DriveTiming timing = any_timing();
        TimingModel at_once(timing, kBytesMax), one_by_one(timing, kBytesMax);
        SplitMix64 random(*rc::gen::arbitrary<std::uint64_t>());
        std::uint64_t now = 0, due[64], single = 0;
        for (int i = 0; i < 50; ++i) {
            const auto batch =
                any_requests(1 + static_cast<std::uint32_t>(random.below(64)), SplitMix64(random.next()));
            at_once.schedule(now, batch, due);
            for (std::size_t k = 0; k < batch.size(); ++k) {
                one_by_one.schedule(now, {&batch[k], 1}, {&single, 1});
                RC_ASSERT(single == due[k]);
            }
            now += random.below(200'000);
        }
    }));
}

TEST(TimingModel, ADieAnswersReadsOfOneSizeInTheirOrder) {
    EXPECT_TRUE(rc::check([] {
        const DriveTiming timing = any_timing();
        TimingModel model(timing, kBytesMax);
        SplitMix64 random(*rc::gen::arbitrary<std::uint64_t>());
        std::map<std::uint32_t, std::uint64_t> last;
        std::uint64_t now = 0, due[32];
        for (int i = 0; i < 200; ++i) {
            auto batch = any_requests(32, SplitMix64(random.next()));
            for (Request& r : batch)
                if (!r.write) r.bytes = 4096;
            model.schedule(now, batch, due);
            for (std::size_t k = 0; k < batch.size(); ++k) {
                if (batch[k].write) continue;
                std::uint64_t& before = last[model.die_of(batch[k].block)];
                RC_ASSERT(due[k] >= before);
                before = due[k];
            }
            now += random.below(20'000);
        }
    }));
}

struct Load {
    std::uint32_t depth, commands;
    std::function<Request(SplitMix64&)> draw;
};

/// Keeps `depth` commands in flight; when each was answered, in order, with what it was.
std::vector<std::pair<std::uint64_t, Request>> closed_loop(TimingModel& model, const Load& load,
                                                           std::uint64_t seed) {
    SplitMix64 random(seed);
    std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> in_flight;
    std::vector<std::pair<std::uint64_t, Request>> answered;
    std::uint64_t now = 0;
    for (std::uint32_t i = 0; i < load.commands; ++i) {
        if (in_flight.size() == load.depth) {
            now = in_flight.top();
            in_flight.pop();
        }
        const Request r = load.draw(random);
        std::uint64_t due = 0;
        model.schedule(now, {&r, 1}, {&due, 1});
        in_flight.push(due);
        answered.emplace_back(due, r);
    }
    std::sort(answered.begin(), answered.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    return answered;
}

/// Of windows of `window_ns`, the most that was answered, in shares of what the gate lets through.
double busiest_window(const TimingModel& model,
                      const std::vector<std::pair<std::uint64_t, Request>>& answered,
                      std::uint64_t window_ns) {
    double inside = 0, most = 0;
    std::size_t first = 0;
    for (const auto& [at, r] : answered) {
        inside += model.cost_ns(r.write, r.bytes);
        for (; answered[first].first + window_ns < at; ++first)
            inside -= model.cost_ns(answered[first].second.write, answered[first].second.bytes);
        most = std::max(most, inside / static_cast<double>(window_ns));
    }
    return most;
}

double whole_run(const TimingModel& model, const std::vector<std::pair<std::uint64_t, Request>>& answered) {
    double cost = 0;
    for (const auto& [at, r] : answered) cost += model.cost_ns(r.write, r.bytes);
    return cost / static_cast<double>(answered.back().first);
}

TEST(TimingModel, UnderBacklogThroughputIsItsLimitAndNeverMore) {
    constexpr std::uint32_t kCommands = 200'000;
    const std::vector<Load> loads = {
        {256, kCommands,
         [](SplitMix64& r) {
             return Request{r.below(1u << 24), 4096, false};
         }},
        {256, kCommands,
         [](SplitMix64& r) {
             return Request{r.below(1u << 24), 4096, true};
         }},
        {64, kCommands,
         [](SplitMix64& r) {
             return Request{r.below(1u << 20) * 16, 65536, false};
         }},
        {64, kCommands,
         [](SplitMix64& r) {
             return Request{r.below(1u << 20) * 16, 65536, true};
         }},
        {256, kCommands,
         [](SplitMix64& r) {
             return Request{r.below(1u << 24), 512, false};
         }},
        {64, kCommands,
         [](SplitMix64& r) {
             return Request{r.below(1u << 20) * 4, 16384, false};
         }},
        {512, kCommands,
         [](SplitMix64& r) {
             return Request{r.below(1u << 24), 4096, r.below(3) == 0};
         }},
    };
    std::uint64_t commands = 0;
    for (std::size_t i = 0; i < loads.size(); ++i) {
        TimingModel model(sample(), kBytesMax);
        const auto answered = closed_loop(model, loads[i], 17 + i);
        EXPECT_LE(busiest_window(model, answered, 10'000'000), 1.03) << "load " << i;
        EXPECT_LE(whole_run(model, answered), 1.0) << "load " << i;
        EXPECT_GE(whole_run(model, answered), 0.97) << "load " << i;
        commands += answered.size();
    }
    std::printf("GN_COUNT timing_closed_loop_commands=%llu\n", static_cast<unsigned long long>(commands));
}

TEST(TimingModel, OneAtATimeThroughputIsTheInverseOfLatency) {
    TimingModel model(sample(), kBytesMax);
    const Load load{1, 1000, [](SplitMix64& r) { return Request{r.below(1u << 24), 4096, false}; }};
    const auto answered = closed_loop(model, load, 3);
    EXPECT_EQ(answered.back().first, 1000u * (40'000 + 276));
}

TEST(TimingModel, BetweenTwoSizesTimeACommandIsLinear) {
    const TimingModel model(sample(), kBytesMax);
    const double small = 1e9 / 832'000, large = 1e9 / 111'808;
    EXPECT_NEAR(model.cost_ns(false, 4096), small, 1e-3);
    EXPECT_NEAR(model.cost_ns(false, 512), small, 1e-3);
    EXPECT_NEAR(model.cost_ns(false, 65536), large, 1e-3);
    EXPECT_NEAR(model.cost_ns(false, 4096 + 30 * 1024), (small + large) / 2, 1e-3);
    EXPECT_NEAR(model.cost_ns(false, 1u << 20), large * 16, 1e-2);  // bandwidth stays
    EXPECT_NEAR(model.latency_ns(false, 4096 + 30 * 1024), 45'276, 1);
}

TEST(TimingModel, ReadsWaitBehindProgramsOfTheirDie) {
    DriveTiming timing = sample();
    timing.channels = timing.dies_per_channel = 1;
    timing.read = {{4096, 1000, 40'000}};
    timing.write = {{4096, 4000, 20'000}};
    timing.program_die_ns = 700'000;
    ASSERT_TRUE(check(timing).ok());
    TimingModel model(timing, kBytesMax);
    const Request batch[] = {
        {0, 4096, true}, {1, 4096, true}, {2, 4096, true}, {3, 4096, true}, {9, 4096, false}};
    std::uint64_t due[5];
    model.schedule(0, batch, due);
    EXPECT_EQ(due[0], 276u + 20'000);  // answered from the buffer, as all writes
    EXPECT_EQ(due[3], 750'000u + 276 + 20'000);
    // The fourth fills a stripe; the read begins at 1 ms, and the die is free at 750 us + 276 ns + 700 us.
    EXPECT_EQ(due[4], 750'000u + 276 + 700'000 + 40'000);
}

TEST(TimingModel, ACommandAboveTheLargestSizeOccupiesDiesNoLongerThanTheLargest) {
    for (const bool write : {false, true}) {
        TimingModel largest(sample(), kBytesMax), absurd(sample(), kBytesMax);
        std::uint64_t due = 0;
        largest.schedule(1'000, std::array{Request{0, kBytesMax, write}}, std::span(&due, 1));
        absurd.schedule(1'000, std::array{Request{0, 65536u * 4096u, write}}, std::span(&due, 1));
        for (std::uint64_t block = 0; block < 4 * largest.dies(); block += 4) {
            std::uint64_t expected = 0, got = 0;
            largest.schedule(2'000, std::array{Request{block, 4096, false}}, std::span(&expected, 1));
            absurd.schedule(2'000, std::array{Request{block, 4096, false}}, std::span(&got, 1));
            EXPECT_EQ(got, expected) << "block " << block;
        }
    }
}

TEST(TimingModel, DiesOfOneChannelTakeTurnsOnIt) {
    DriveTiming timing;
    timing.read = timing.write = {{4096, 1'000'000, 10'000}};
    timing.channels = timing.dies_per_channel = 2;
    timing.stripe_bytes = 4096;
    timing.read_die_ns = timing.program_die_ns = 100;
    timing.channel_bytes_per_second = 3e9;  // a block takes 1365 ns, the gate opens every 1000
    ASSERT_TRUE(check(timing).ok()) << check(timing).error().message;
    TimingModel model(timing, kBytesMax);
    const Request batch[] = {{0, 4096, false}, {2, 4096, false}, {1, 4096, false}};  // dies 0, 2 and 1
    std::uint64_t due[3];
    model.schedule(0, batch, due);
    EXPECT_EQ(due[0], 10'000u);
    EXPECT_EQ(due[1], 1'365u + 10'000);  // when the first was transferred
    EXPECT_EQ(due[2], 2'000u + 10'000);  // another channel
}

TEST(TimingModel, ContradictoryTimingsAreRefusedWithTheReason) {
    const auto refused = [](const std::function<void(DriveTiming&)>& spoil, const char* why) {
        DriveTiming timing = sample();
        spoil(timing);
        const Result<void> checked = check(timing);
        ASSERT_FALSE(checked.ok()) << why;
        EXPECT_NE(checked.error().message.find(why), std::string::npos) << checked.error().message;
    };
    refused([](DriveTiming& t) { t.read.clear(); }, "no figures for read");
    refused([](DriveTiming& t) { t.write.clear(); }, "no figures for write");
    refused([](DriveTiming& t) { t.read[0].per_second = 0; }, "a second");
    refused([](DriveTiming& t) { t.read[0].per_second = std::nan(""); }, "a second");
    refused([](DriveTiming& t) { t.read[0].latency_ns = 0; }, "latency");
    refused([](DriveTiming& t) { t.read[0].latency_ns = 2'000'000'000; }, "latency");
    refused([](DriveTiming& t) { t.read[0].latency_ns = 30'000; }, "die and channel alone");
    refused([](DriveTiming& t) { std::swap(t.read[0].bytes, t.read[1].bytes); },
            "give the sizes in ascending order");
    refused([](DriveTiming& t) { t.read[0].bytes = 1000; }, "multiples of 512");
    refused([](DriveTiming& t) { t.read[1].per_second = 900'000; }, "more commands a second");
    refused([](DriveTiming& t) { t.channels = 0; }, "channels");
    refused([](DriveTiming& t) { t.stripe_bytes = 1000; }, "stripes");
    refused([](DriveTiming& t) { t.dies_per_channel = 1; }, "give more dies");
    refused([](DriveTiming& t) { t.channel_bytes_per_second = 5e8; }, "channels can carry");
    refused([](DriveTiming& t) { t.channel_bytes_per_second = std::nan(""); }, "bytes a second");
    refused([](DriveTiming& t) { t.program_die_ns = 10'000'000; }, "dies can program");
    EXPECT_TRUE(check(sample()).ok());
    EXPECT_TRUE(check(DriveTiming{}).ok());
}

}  // namespace
}  // namespace gnstor::ssd
