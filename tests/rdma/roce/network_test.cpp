// network_test.cpp: over any network that loses, doubles, delays, changes and cuts up to 30 %, data arrives
// once and in order, or the connection fails with an error in bounded time. GN_SEED=<seed> replays one run.
#include "network_sim.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

using namespace gnstor::rdma::roce;

namespace {

constexpr std::uint64_t kRuns = 400;

TEST(RoceNetwork, DataArrivesOnceAndInOrderOrTheConnectionFails) {
    // More of them for the soak stage, which starts this program once more.
    const char* const more = std::getenv("GN_ROCE_RUNS");
    std::uint64_t first = 1, last = more != nullptr ? std::strtoull(more, nullptr, 10) : kRuns;
    if (const char* seed = std::getenv("GN_SEED")) first = last = std::strtoull(seed, nullptr, 0);
    std::uint64_t failed = 0, finished = 0, wrapped = 0;
    sim::Report sum;
    for (std::uint64_t seed = first; seed <= last; ++seed) {
        const sim::Report report = sim::run(seed);
        ASSERT_EQ(report.violation, "") << "replay with GN_SEED=" << seed;
        ++(report.failed ? failed : finished);
        wrapped += report.wrapped ? 1 : 0;
        sum.packets += report.packets;
        sum.changed += report.changed;
        sum.completions += report.completions;
        sum.retransmitted += report.retransmitted;
        sum.reads_repeated += report.reads_repeated;
        sum.duplicates += report.duplicates;
        sum.rnr_naks += report.rnr_naks;
        sum.sequence_naks += report.sequence_naks;
        sum.silence_most = std::max(sum.silence_most, report.silence_most);
    }
    const auto print = [more](const char* name, std::uint64_t value) {
        std::printf("GN_COUNT roce_%s_%s=%llu\n", more != nullptr ? "long" : "sim", name,
                    static_cast<unsigned long long>(value));
    };
    std::printf("the longest silence before a connection failed or went on: %llu us\n",
                static_cast<unsigned long long>(sum.silence_most / 1000));
    print("finished", finished);
    print("failed", failed);
    print("wrapped", wrapped);
    print("packets", sum.packets);
    print("changed", sum.changed);
    print("completions", sum.completions);
    print("retransmitted", sum.retransmitted);
    print("duplicates", sum.duplicates);
    print("reads_repeated", sum.reads_repeated);
    print("rnr_naks", sum.rnr_naks);
    print("sequence_naks", sum.sequence_naks);
}

TEST(RoceNetwork, ASeedReplaysExactly) {
    for (std::uint64_t seed = 5; seed < 15; ++seed) {
        const sim::Report once = sim::run(seed), again = sim::run(seed);
        EXPECT_EQ(once.digest, again.digest) << seed;
        EXPECT_EQ(once.packets, again.packets) << seed;
    }
}

}  // namespace
