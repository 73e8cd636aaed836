// pool_levels_test.cpp: properties of the multi-level allocator alone, of a pool's plan, and what is refused.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "gnor/pool_plan.hpp"
#include "support/count.hpp"

namespace gnstor::gnor {
namespace {

std::uint64_t taken_in_all = 0, given_in_all = 0, several_in_all = 0;

/// The bitmaps of one step, and beside them who has which block.
class Model {
  public:
    explicit Model(const PoolOptions& options)
        : plan(PoolPlan::of(options)), words(plan.words), used(plan.steps[0].blocks) {
        RC_ASSERT(levels().give(0, plan.steps[0].blocks));
        fresh = bitmaps();
    }
    /// All words but that of the moves.
    std::vector<std::uint64_t> bitmaps() const {
        std::vector<std::uint64_t> all = words;
        all[plan.steps[0].moves_at] = 0;
        return all;
    }
    LevelsRef levels() { return LevelsRef(&plan.levels, &plan.steps[0], words.data()); }
    void mark(std::uint32_t first, std::uint32_t blocks) {
        RC_ASSERT(first + blocks <= used.size());
        for (std::uint32_t b = first; b < first + blocks; ++b) {
            RC_ASSERT(!used[b]);
            used[b] = true;
        }
        runs.emplace_back(first, blocks);
        free_blocks -= blocks;
    }
    void take(std::uint32_t blocks, std::uint32_t hint) {
        const bool must = has_aligned_free(blocks);
        const std::uint32_t first = levels().take(blocks, hint);
        if (first == kNone) {
            RC_ASSERT(!must);  // a block of a level lies free, and was not found
            return;
        }
        mark(first, blocks);
        ++taken_in_all;
    }
    void take_several(std::uint32_t blocks, std::uint32_t wanted, std::uint32_t hint) {
        const RunSet set = levels().take_several(blocks, wanted, hint);
        RC_ASSERT(set.count() <= wanted);
        for (std::uint32_t i = 0; i < set.count(); ++i) mark(set.at(i), blocks);
        several_in_all += set.count();
    }
    void give(std::uint32_t which) {
        if (runs.empty()) return;
        const auto [first, blocks] = runs[which % runs.size()];
        runs[which % runs.size()] = runs.back();
        runs.pop_back();
        for (std::uint32_t b = first; b < first + blocks; ++b) used[b] = false;
        RC_ASSERT(levels().give(first, blocks));
        free_blocks += blocks;
        ++given_in_all;
    }
    void check_count() { RC_ASSERT(levels().count_free() == free_blocks); }
    /// Whether an aligned block of a level that holds the request lies free as a whole.
    bool has_aligned_free(std::uint32_t blocks) const {
        for (std::uint32_t l = 0; l < plan.levels.count; ++l) {
            const std::uint32_t unit = 1u << plan.levels.shift[l];
            if (unit < blocks) continue;
            for (std::uint32_t at = 0; at + unit <= used.size(); at += unit) {
                std::uint32_t n = 0;
                while (n < unit && !used[at + n]) ++n;
                if (n == unit) return true;
            }
        }
        return false;
    }

    const PoolPlan plan;
    std::vector<std::uint64_t> words, fresh;
    std::vector<bool> used;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> runs;
    std::uint32_t free_blocks = plan.steps[0].blocks;
};

PoolOptions any_options() {
    PoolOptions o;
    o.bytes = *rc::gen::inRange<std::uint64_t>(1, 24) * (256u << 10);
    if (*rc::gen::inRange(0, 3) == 0) return o;
    o.levels = {4096, 0, 0, 0};
    const auto count = *rc::gen::inRange<std::uint32_t>(1, kMaxPoolLevels + 1);
    for (std::uint32_t l = 1; l < count; ++l) {
        o.levels[l] = o.levels[l - 1] << *rc::gen::inRange<std::uint32_t>(1, 7);
        if (o.levels[l] > (16u << 20)) {
            o.levels[l] = 0;
            break;
        }
    }
    return o;
}

RC_GTEST_PROP(PoolLevels, NoBlockIsGivenTwiceNoneIsLostAndAllMergeAgain, ()) {
    const PoolOptions options = any_options();
    RC_ASSERT(check_pool(options).ok());
    Model model(options);
    const auto operations =
        *rc::gen::container<std::vector<std::uint32_t>>(3000, rc::gen::arbitrary<std::uint32_t>());
    const std::uint32_t most = model.plan.blocks_most;
    for (const std::uint32_t op : operations) {
        const std::uint32_t hint = op >> 20;
        const std::uint32_t kind = op % 8;
        const std::uint32_t size = (op >> 3) % 3 == 0 ? most : (op >> 3) % 3 == 1 ? 16 : 5;
        const std::uint32_t blocks = 1 + (op >> 5) % std::min(size, most);
        if (kind < 4)
            model.take(blocks, hint);
        else if (kind == 4)
            model.take_several(blocks, 1 + hint % 32, hint);
        else
            model.give(hint);
        model.check_count();
    }
    while (!model.runs.empty()) model.give(static_cast<std::uint32_t>(model.runs.size()) * 7);
    model.check_count();
    (void)model.levels().merge_all();
    RC_ASSERT(model.bitmaps() == model.fresh);
    RC_ASSERT((model.words[model.plan.steps[0].moves_at] & 0xFFFFFFFFu) == 0u);
}

RC_GTEST_PROP(PoolLevels, AnEmptyPoolGivesItsLargestRunAfterAnyMixOfSmallOnes, ()) {
    Model model(PoolOptions{});
    const auto sizes =
        *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(1, 40));
    for (const std::uint32_t blocks : sizes) model.take(blocks, blocks * 3);
    while (!model.runs.empty()) model.give(static_cast<std::uint32_t>(sizes.size()));
    // Without anybody asking to merge: a large request does it by itself.
    for (std::uint32_t i = 0; i < 8; ++i) RC_ASSERT(model.levels().take(256, i) != kNone);
    RC_ASSERT(model.levels().take(1, 0) == kNone);
}

TEST(PoolLevels, ABlockIsMissingExactlyWhereItIsInUse) {
    Model model(PoolOptions{});
    std::vector<std::uint32_t> all;
    for (std::uint32_t i = 0; i < 2048; ++i) all.push_back(model.levels().take(1, i));
    EXPECT_EQ(model.levels().take(1, 0), kNone);
    // One block in the middle of each MiB stays: 15 blocks of 64 KiB beside it come back, and none of 1 MiB.
    for (const std::uint32_t first : all)
        if (first % 256 != 100) {
            EXPECT_TRUE(model.levels().give(first, 1));
        }
    EXPECT_EQ(model.levels().take(256, 0), kNone);
    std::uint32_t found = 0;
    while (model.levels().take(16, found) != kNone) ++found;
    EXPECT_EQ(found, 8u * 15);
}

TEST(PoolLevels, SmallRequestsFillSplitBlocksBeforeTheySplitMore) {
    Model model(PoolOptions{});
    for (std::uint32_t i = 0; i < 256; ++i) ASSERT_NE(model.levels().take(1, i * 5), kNone);
    EXPECT_EQ(model.levels().count_free_units(2), 7u);
}

TEST(PoolLevels, LoneRequestsDoNotSplitAndMergeEachTime) {
    Model model(PoolOptions{});
    const std::uint32_t first = model.levels().take(1, 0);
    model.levels().give(first, 1);
    const auto after = model.words;  // with the count of moves
    const std::uint32_t again = model.levels().take(1, 0);
    model.levels().give(again, 1);
    EXPECT_EQ(model.words, after) << "the last split block of a level must stay split";
    EXPECT_TRUE(model.levels().merge_all());
    EXPECT_EQ(model.bitmaps(), model.fresh);
}

TEST(PoolLevels, TheTestDetectsABlockAllocatedTwice) {
    Model model(PoolOptions{});
    const std::uint32_t first = model.levels().take(3, 0);
    EXPECT_TRUE(model.levels().give(first, 3));
    EXPECT_FALSE(model.levels().give(first, 3));
}

RC_GTEST_PROP(PoolPlan, StepsDoubleToTheLimitAndTheLargestRunFitsOne, ()) {
    PoolOptions o = any_options();
    o.bytes_max = o.bytes + *rc::gen::inRange<std::uint64_t>(0, 400) * (256u << 10);
    if (!check_pool(o).ok()) return;
    const PoolPlan plan = PoolPlan::of(o);
    std::uint32_t at = 0;
    bool fits = false;
    for (std::uint32_t i = 0; i < plan.steps_max; ++i) {
        RC_ASSERT(plan.steps[i].first == at);
        RC_ASSERT(i == 0 || i + 1 == plan.steps_max || plan.steps[i].blocks == at);
        at += plan.steps[i].blocks;
        std::vector<std::uint64_t> words(plan.words);
        const LevelsRef levels(&plan.levels, &plan.steps[i], words.data());
        RC_ASSERT(levels.give(0, plan.steps[i].blocks));
        RC_ASSERT(levels.count_free() == plan.steps[i].blocks);
        fits = fits || levels.take(plan.blocks_most, i) != kNone;
    }
    RC_ASSERT(at == plan.blocks);
    RC_ASSERT(std::uint64_t{at} * kPoolBlockBytes == o.bytes_max);
    RC_ASSERT(fits);
}

std::string refused(const PoolOptions& options) {
    const auto checked = check_pool(options);
    return checked.ok() ? "" : checked.error().message;
}

TEST(PoolOptionsChecks, NameTheInvalidValueAndTheAllowedRange) {
    constexpr std::uint64_t kM = 1ull << 20, kHuge = ~0ull << 18, kFour = 4096;
    EXPECT_EQ(refused({}), "");
    EXPECT_EQ(refused({8 * kM, 64 * kM, {4096, 0, 0, 0}}), "");
    for (const std::uint64_t bytes : {0 * kM, kFour, kM + 1, kHuge, kM << 20})
        EXPECT_NE(refused({bytes, 0}).find("multiple of 256 KiB"), std::string::npos) << bytes;
    for (const std::uint64_t most : {kM, 8 * kM + kFour, kHuge, kM << 30})
        EXPECT_NE(refused({8 * kM, most}).find("grows to"), std::string::npos) << most;
    EXPECT_NE(refused({kM / 4, 64ull << 30}).find("can double at most"), std::string::npos);
    for (const std::uint32_t first : {0u, 1u, 2048u, 8192u, ~0u})
        EXPECT_NE(refused({8 * kM, 0, {first, 65536, 0, 0}}).find("smallest level"), std::string::npos);
    for (const std::uint32_t second : {1u, 4096u, 65535u, 524288u, ~0u, 1u << 31})
        EXPECT_NE(refused({8 * kM, 0, {4096, second, 0, 0}}).find("does not follow"), std::string::npos)
            << second;
    EXPECT_NE(refused({8 * kM, 0, {4096, 262144, 16777216, 33554432}}).find("does not follow"),
              std::string::npos);
    EXPECT_NE(refused({8 * kM, 0, {4096, 0, 65536, 0}}).find("ends the list of levels"), std::string::npos);
}

/// Prints what the properties above did.
class CountsAtTheEnd : public ::testing::Environment {
    void TearDown() override {
        test::count("gnor_pool_runs_taken", taken_in_all);
        test::count("gnor_pool_runs_given", given_in_all);
        test::count("gnor_pool_runs_taken_together", several_in_all);
    }
};
const auto* const kCounts = ::testing::AddGlobalTestEnvironment(new CountsAtTheEnd);

}  // namespace
}  // namespace gnstor::gnor
