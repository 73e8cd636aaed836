// checkpoint_test.cpp: a checkpoint that is written while the map changes loads back as what did not change,
// whole and once; a damaged one is refused, never believed.
#include <gtest/gtest.h>

#include "deengine/checkpoint_bench.hpp"

#include <cstdlib>
#include <unordered_map>
#include <unordered_set>

namespace gnstor::deengine {
namespace {

std::uint64_t seed_from_environment(std::uint64_t otherwise) {
    const char* seed = std::getenv("GN_SEED");
    return seed != nullptr ? std::strtoull(seed, nullptr, 10) : otherwise;
}

/// Random inserts, updates and erasures at a load, each key on a page of its own.
class Churn {
  public:
    Churn(CheckpointBench& bench, std::uint64_t seed) : bench_(bench), random_(seed) {
        for (PageNumber p = 0; p < bench.pages; ++p) free_.push_back(p);
    }
    void insert() {
        BlockKey key = random_.next() >> 16;
        // Keys come back: into the other bucket perhaps, behind the cursor or before it.
        if (!erased_.empty() && random_.below(2) == 0) key = erased_[random_.below(erased_.size())];
        if (bench_.map.find(key)) return;
        const auto ticket = bench_.map.reserve(key);
        if (!ticket) return;
        const PageNumber page = take_page();
        bench_.map.commit(*ticket, {page, false});
        keys_.push_back(key);
        shadow[key] = page;
        changed.insert(key);
    }
    void erase() {
        const std::size_t i = random_.below(keys_.size());
        const BlockKey key = keys_[i];
        ASSERT_TRUE(bench_.map.erase(key));
        free_.push_back(shadow[key]);
        shadow.erase(key);
        changed.insert(key);
        erased_.push_back(key);
        keys_[i] = keys_.back();
        keys_.pop_back();
    }
    void update() {
        const BlockKey key = keys_[random_.below(keys_.size())];
        const PageNumber page = take_page();
        ASSERT_TRUE(bench_.map.update(key, {page, false}));
        free_.push_back(shadow[key]);
        shadow[key] = page;
        changed.insert(key);
    }
    void step(std::uint64_t most) {
        const std::uint64_t dice = random_.below(4);
        if (dice == 0 || keys_.empty()) return insert();
        if (dice == 1) return update();
        if (keys_.size() >= most || dice == 2) return erase();
        insert();
        insert();
    }
    std::unordered_map<BlockKey, PageNumber> shadow;
    std::unordered_set<BlockKey> changed;

  private:
    PageNumber take_page() {
        const std::size_t i = random_.below(free_.size());
        const PageNumber page = free_[i];
        free_[i] = free_.back();
        free_.pop_back();
        return page;
    }
    CheckpointBench& bench_;
    SplitMix64 random_;
    std::vector<PageNumber> free_;
    std::vector<BlockKey> keys_;
    std::vector<BlockKey> erased_;
};

/// What did not change since BEGIN is there exactly as it was; nothing is there that never was.
void expect_same(const Churn& churn, const BlockMap& loaded, std::uint64_t& compared) {
    for (const auto& [key, page] : churn.shadow) {
        if (churn.changed.contains(key)) continue;
        const auto got = loaded.find(key);
        ASSERT_TRUE(got) << "a key that nothing changed is not in the checkpoint";
        ASSERT_EQ(got->page, page);
        ++compared;
    }
    std::uint64_t seen = 0;
    std::unordered_set<BlockKey> once;
    loaded.for_each([&](BlockKey key, MapEntry) {
        ++seen;
        EXPECT_TRUE(once.insert(key).second) << "a key is in the loaded table twice";
        EXPECT_TRUE(churn.shadow.contains(key) || churn.changed.contains(key));
    });
    EXPECT_EQ(seen, loaded.size());
}

TEST(Checkpoint, KeysUnchangedWhileItIsWrittenAreLoadedExactlyOnce) {
    const std::uint64_t seed = seed_from_environment(1);
    std::uint64_t compared = 0;
    for (std::uint64_t i = 0; i < 6; ++i) {
        SCOPED_TRACE("GN_SEED=" + std::to_string(seed + i));
        CheckpointBench bench(60'000);
        Churn churn(bench, seed + i);
        while (churn.shadow.size() < 59'000) churn.insert();
        churn.changed.clear();
        ASSERT_TRUE(bench.writer.start());
        bench.step();  // BEGIN
        while (bench.writer.active()) {
            for (int k = 0; k < 60; ++k) churn.step(59'500);
            bench.step();
        }
        ASSERT_FALSE(bench.writer.failed());
        BlockMap loaded(bench.pages);
        Tombstones stones(1000);
        const auto result = bench.load(loaded, stones);
        ASSERT_TRUE(result.ok()) << result.error().message;
        expect_same(churn, loaded, compared);
    }
    std::printf("GN_COUNT deengine_checkpoint_keys_compared=%llu\n",
                static_cast<unsigned long long>(compared));
}

TEST(Checkpoint, TombstonesFloorsAndUnitsAreLoadedUnchanged) {
    CheckpointBench bench(1000);
    for (std::uint32_t i = 0; i < 400; ++i)
        bench.tombstones.add({make_key(3, i * 10), i % 7 + 1, 5, 100 + i, i});
    for (std::uint16_t v = 1; v <= 300; ++v)
        bench.floors.push_back({v, 2u + v, std::uint64_t{v} << 33, (std::uint64_t{v} << 33) + 5});
    bench.write_whole();
    BlockMap loaded(bench.pages);
    Tombstones stones(1000);
    const auto result = bench.load(loaded, stones);
    ASSERT_TRUE(result.ok()) << result.error().message;
    std::vector<Tombstone> want;
    std::vector<Tombstone> got;
    bench.tombstones.for_each([&](const Tombstone& t) { want.push_back(t); });
    stones.for_each([&](const Tombstone& t) { got.push_back(t); });
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].first, want[i].first);
        EXPECT_EQ(got[i].blocks, want[i].blocks);
        EXPECT_EQ(got[i].sequence, want[i].sequence);
        EXPECT_EQ(got[i].born, want[i].born);
    }
    ASSERT_EQ(result.value().floors.size(), 300u);
    EXPECT_EQ(result.value().floors[299].highest, (300ull << 33) + 5);
    EXPECT_EQ(result.value().units.size(), 64u);
}

TEST(Checkpoint, ADamagedPartIsRefusedWhicheverPartItIs) {
    std::uint32_t parts = 0;
    for (std::uint32_t damaged = 0;; ++damaged) {
        CheckpointBench bench(2000, {16, 16});
        bench.tombstones.add({make_key(1, 5), 2, 1, 9, 0});
        bench.floors.push_back({1, 1, 4, 9});
        for (std::uint32_t i = 0; i < 1500; ++i) {
            const auto ticket = bench.map.reserve(make_key(1, i));
            ASSERT_TRUE(ticket);
            bench.map.commit(*ticket, {i, false});
        }
        bench.write_whole();
        const JournalIndex found = bench.index();
        parts = static_cast<std::uint32_t>(found.places().size());
        if (damaged == parts) break;
        bench.medium.flip_byte(found.places()[damaged].page, 100 + damaged);
        BlockMap loaded(bench.pages);
        Tombstones stones(1000);
        const auto result = bench.load(loaded, stones);
        ASSERT_FALSE(result.ok()) << "part " << damaged;
        EXPECT_EQ(result.error().code, Errc::kCorrupt) << result.error().message;
    }
    EXPECT_GE(parts, 9u);
}

TEST(Checkpoint, OfAnotherShardIsRefusedWithAnErrorMessage) {
    CheckpointBench bench(2000, {16, 16});
    bench.write_whole();
    CheckpointBegin other = bench.dimensions();
    other.units = 8;
    JournalIndex found = bench.index();
    BlockMap loaded(bench.pages);
    Tombstones stones(10);
    const auto result = load_checkpoint(found, found.places().back(), other, bench.pages, loaded, stones);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Errc::kInvalidArgument);
    EXPECT_NE(result.error().message.find("service units"), std::string::npos);
}

TEST(Checkpoint, IsAbandonedIfFlashHasNoFreePageAndThePreviousOneStaysValid) {
    CheckpointBench bench(20'000, {8, 16});  // two are kept, and a third has no room beside them
    bench.write_whole();
    bench.write_whole();
    ASSERT_TRUE(bench.writer.start());
    while (bench.writer.active()) bench.step();
    EXPECT_TRUE(bench.writer.failed());
    EXPECT_EQ(bench.writer.completed(), 2u);
    BlockMap loaded(bench.pages);
    Tombstones stones(10);
    EXPECT_TRUE(bench.load(loaded, stones).ok());
}

TEST(Checkpoint, TheTwoNewestAreKeptAndUnitsOfOlderOnesAreFreed) {
    CheckpointBench bench(2000, {24, 8});
    for (int i = 0; i < 40; ++i) {
        bench.write_whole();
        EXPECT_EQ(bench.writer.spare(), bench.writer.completed() - 1);
    }
    EXPECT_LE(bench.journal.units(), journal_share(24, 8, bench.map.buckets()));
    EXPECT_GT(bench.pool.units_erased(), 10u);
}

}  // namespace
}  // namespace gnstor::deengine
