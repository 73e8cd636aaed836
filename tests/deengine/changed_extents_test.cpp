// changed_extents_test.cpp: no extent with an unresolved change is ever called unchanged, and resolved ones are soon.
#include "deengine/shard/changed_extents.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace gnstor::deengine {
namespace {

constexpr std::uint32_t kExtent = nvme::kExtentBlocks;

TEST(ChangedExtents, AnExtentWithAnUnresolvedChangeCountsAsChanged) {
    for (std::uint32_t seed = 1; seed <= 200; ++seed) {
        std::mt19937 random(seed);
        ChangedExtents changed(0);
        std::map<std::uint32_t, std::uint64_t> newest;  ///< by extent
        std::uint64_t floor = 0, highest = 0;
        for (int step = 0; step < 2'000; ++step) {
            const std::uint32_t extent = random() % 90 * (random() % 3 == 0 ? 1'000 : 1);
            const std::uint64_t sequence = floor + 1 + random() % 40;
            changed.note(extent * kExtent + random() % kExtent, sequence, floor);
            newest[extent] = std::max(newest[extent], sequence);
            highest = std::max(highest, sequence);
            if (random() % 8 == 0) floor += random() % (highest - floor + 1);
            if (random() % 16 != 0) continue;
            changed.turn(floor);
            for (const auto& [one, last] : newest)
                ASSERT_TRUE(last <= floor || changed.has(one * kExtent)) << "seed " << seed;
        }
        changed.turn(highest);
        for (const auto& [one, last] : newest) EXPECT_FALSE(changed.has(one * kExtent));
        EXPECT_EQ(changed.next(0), ChangedExtents::kNone);
    }
}

TEST(ChangedExtents, TheNextOneIsFound) {
    ChangedExtents changed(0);
    for (const std::uint32_t extent : {3u, 64u, 40'000u}) changed.note(extent * kExtent + 7, 5, 4);
    EXPECT_EQ(changed.next(0), 3u * kExtent);
    EXPECT_EQ(changed.next(3 * kExtent + 9), 64u * kExtent);
    EXPECT_EQ(changed.next(64 * kExtent), (40'000u % ChangedExtents::kBits) * kExtent) << "shares its bit";
    EXPECT_EQ(changed.next(20'000 * kExtent), (ChangedExtents::kBits + 3u) * kExtent);
}

TEST(ChangedExtents, WhatAMountFoundCountsEverywhereUntilItIsResolved) {
    ChangedExtents changed(9);
    changed.note(5 * kExtent, 10, 8);
    changed.turn(8);
    EXPECT_TRUE(changed.has(77 * kExtent));
    EXPECT_EQ(changed.next(0), kExtent);
    changed.turn(9);
    EXPECT_FALSE(changed.has(77 * kExtent));
    EXPECT_TRUE(changed.has(5 * kExtent));
}

}  // namespace
}  // namespace gnstor::deengine
