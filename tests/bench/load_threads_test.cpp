// load_threads_test.cpp: no case has more polling threads than the machine has cores, as long as each kind
// can have one.
#include "bench/load_threads.hpp"

#include <gtest/gtest.h>

namespace gnstor::bench {
namespace {

LoadThreads of(PathKind path, std::uint32_t clients, const LoadSettings& s, std::uint32_t cores,
               std::uint32_t depth = 32) {
    LoadCase c;
    c.path = path;
    c.clients = clients;
    c.depth = depth;
    return threads_for(c, s, cores);
}
LoadSettings settings(std::uint32_t engine, std::uint32_t threads, std::uint32_t client,
                      std::uint32_t array) {
    LoadSettings s;
    s.engine.threads = engine;
    s.threads = threads;
    s.client_threads = client;
    s.array_threads = array;
    return s;
}

TEST(LoadThreads, NeverExceedTheCores) {
    for (const PathKind path : kAllPaths)
        for (const std::uint32_t cores : {3u, 4u, 16u, 128u})
            for (const std::uint32_t clients : {1u, 2u, 8u, 32u})
                for (const std::uint32_t depth : {1u, 32u})
                    for (const std::uint32_t asked : {0u, 1u, 8u, 64u}) {
                        const std::uint32_t engine = std::max(1u, cores / 2);
                        if (is_central(path) && cores - engine < 2) continue;
                        const LoadSettings s =
                            settings(engine, asked == 0 ? 256 : asked, asked, std::max(1u, asked));
                        const LoadThreads t = of(path, clients, s, cores, depth);
                        SCOPED_TRACE(fmt::format("{}, {} cores, {} clients, {} asked for", path_name(path),
                                                 cores, clients, asked));
                        EXPECT_LE(t.engine + t.client + t.array, cores);
                        EXPECT_EQ(t.engine, engine);
                        EXPECT_EQ(t.client != 0, !is_lane_initiated(path));
                        EXPECT_EQ(t.array != 0, is_central(path));
                        EXPECT_LE(t.client, std::uint64_t{clients} * depth);
                    }
}

TEST(LoadThreads, AreThoseOfThePublishedFiguresOn16Cores) {
    const LoadSettings s = settings(8, 8, 0, 8);
    EXPECT_EQ(of(PathKind::kStrongCpu, 1, s, 16).client, 8u);
    EXPECT_EQ(of(PathKind::kStrongCpu, 1, s, 16, 1).client, 1u) << "one request in flight";
    EXPECT_EQ(of(PathKind::kGdDeEngine, 4, s, 16).client, 4u);
    EXPECT_EQ(of(PathKind::kGdDeEngine, 32, s, 16).client, 8u);
    EXPECT_EQ(of(PathKind::kGd, 1, s, 16).client, 1u);
    EXPECT_EQ(of(PathKind::kGd, 1, s, 16).array, 7u);
    EXPECT_EQ(of(PathKind::kBasic, 32, s, 16).client, 4u);
    EXPECT_EQ(of(PathKind::kBasic, 32, s, 16).array, 4u);
}

TEST(LoadThreads, TheRequestedNumberIsTheMaximumAndAnEngineKeepsAtLeastOne) {
    EXPECT_EQ(of(PathKind::kStrongCpu, 1, settings(8, 3, 0, 8), 16).client, 3u);
    EXPECT_EQ(of(PathKind::kStrongCpu, 1, settings(8, 30, 0, 8), 16).client, 8u);
    const LoadThreads gd = of(PathKind::kGd, 32, settings(8, 8, 20, 8), 16);
    EXPECT_EQ(gd.client, 7u);
    EXPECT_EQ(gd.array, 1u);
    EXPECT_EQ(of(PathKind::kGd, 4, settings(8, 8, 2, 3), 16).array, 3u);
}

TEST(LoadThreads, EachKindHasAtLeastOneOnAMachineWithTooFewCores) {
    const LoadThreads gd = of(PathKind::kGd, 8, settings(4, 1, 0, 8), 2);
    EXPECT_EQ(gd.client, 1u);
    EXPECT_EQ(gd.array, 1u);
}

}  // namespace
}  // namespace gnstor::bench
