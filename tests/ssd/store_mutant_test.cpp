// Stores with bytes changed anywhere are refused with a sentence or repaired; no block gives what was never
// its contents. The same as fuzz_store_mount.cpp, at random.
#include "mutant_store.hpp"

#include <gtest/gtest.h>

namespace gnstor::ssd {
namespace {

using testing::Change;
using testing::MutantStore;

std::string told(const std::vector<Change>& changes) {
    std::string text;
    for (const Change& c : changes) text += fmt::format(" {}^{:02x}{}", c.at, c.bits, c.seal ? "!" : "");
    return text;
}

TEST(StoreMutants, AreRefusedOrRepairedAndNoBlockReturnsWrongContents) {
    const std::uint64_t seed = testing::seed_or(4242);
    SplitMix64 random(seed);
    const MutantStore good;
    ASSERT_TRUE(MutantStore(good).mount({}).mounted);
    constexpr std::uint64_t kCases = 600;
    std::uint64_t refused = 0, mounted = 0, failed = 0, right = 0;
    std::set<std::string> sentences;
    for (std::uint64_t i = 0; i < kCases && !::testing::Test::HasFailure(); ++i) {
        std::vector<Change> changes;
        const bool seal = random.below(2) == 0;
        // Mostly where something is: head and metadata, records, the programmed pages.
        for (std::uint64_t n = random.below(6) + 1; n > 0; --n) {
            const std::uint64_t records = good.superblock().oob_offset, pages = good.superblock().data_offset;
            const std::uint64_t where[] = {random.below(records), records + random.below(pages - records),
                                           pages + random.below(good.size() - pages),
                                           random.below(good.size())};
            changes.push_back(
                {where[random.below(4)], static_cast<std::uint8_t>(1 + random.below(255)), seal});
        }
        const MutantStore::Outcome outcome = MutantStore(good).mount(changes);
        EXPECT_EQ(outcome.wrong, "") << "seed " << seed << " case " << i << told(changes);
        ++(outcome.mounted ? mounted : refused);
        failed += outcome.failed;
        right += outcome.right;
        if (!outcome.mounted) {
            EXPECT_FALSE(outcome.refusal.empty());
            sentences.insert(outcome.refusal.substr(0, 40));
        }
    }
    std::printf(
        "store mutants: %llu mounted, %llu refused, %llu blocks right, %llu read as errors, seed %llu\n",
        static_cast<unsigned long long>(mounted), static_cast<unsigned long long>(refused),
        static_cast<unsigned long long>(right), static_cast<unsigned long long>(failed),
        static_cast<unsigned long long>(seed));
    std::printf("GN_COUNT ssd_store_mutants=%llu\n", static_cast<unsigned long long>(mounted + refused));
    EXPECT_GE(mounted, 100u);
    EXPECT_GE(refused, 50u);
    EXPECT_GE(failed, 20u);
}

}  // namespace
}  // namespace gnstor::ssd
