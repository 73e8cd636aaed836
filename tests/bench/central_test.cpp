// central_test.cpp: the shared parts of the central array engine under many threads: locks that exclude, runs
// that do not overlap, a log whose order has no holes.
#include "bench/initiators/block_table.hpp"
#include "bench/initiators/change_log.hpp"
#include "bench/initiators/extents.hpp"

#include <gnstor/base/hash.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <thread>

namespace gnstor::bench {
namespace {

constexpr std::uint32_t kThreads = 4;

TEST(BlockTable, WritersAreAloneAndReadersSeeWholeSwitches) {
    constexpr std::uint32_t kBlocks = 24, kReplicas = 2, kRounds = 20'000;
    BlockTable table(2, kBlocks, kReplicas);
    std::atomic<std::uint64_t> done{0};
    {
        std::vector<std::jthread> threads;
        for (std::uint32_t t = 0; t < kThreads; ++t)
            threads.emplace_back([&table, &done, t] {
                SplitMix64 random(t + 1);
                for (std::uint32_t i = 0; i < kRounds; ++i) {
                    const auto volume = static_cast<std::uint32_t>(random.below(2));
                    const std::uint32_t count = 1u << random.below(4);
                    const auto first = static_cast<std::uint32_t>(random.below(kBlocks / count)) * count;
                    const bool write = random.below(2) == 0;
                    if (!table.try_lock(volume, first, count, write)) continue;
                    for (std::uint32_t b = 0; b < count; ++b) {
                        // Both replicas of a block name the same number: a half switch would show.
                        EXPECT_EQ(table.address(volume, first + b, 0), table.address(volume, first + b, 1));
                        for (std::uint32_t r = 0; write && r < kReplicas; ++r)
                            (void)table.exchange(volume, first + b, r, i);
                    }
                    table.unlock(volume, first, count, write);
                    done.fetch_add(1, std::memory_order_relaxed);
                }
            });
    }
    std::printf("GN_COUNT central_locks=%llu\n", static_cast<unsigned long long>(done.load()));
    // All given back: a writer gets everything.
    for (std::uint32_t volume = 0; volume < 2; ++volume)
        EXPECT_TRUE(table.try_lock(volume, 0, kBlocks, true));
}

TEST(BlockTable, ALockOfSeveralBlocksIsTakenAsAWholeOrNotAtAll) {
    BlockTable table(1, 16, 1);
    ASSERT_TRUE(table.try_lock(0, 5, 1, false));
    EXPECT_FALSE(table.try_lock(0, 0, 16, true));
    EXPECT_TRUE(table.try_lock(0, 0, 16, false));
    table.unlock(0, 0, 16, false);
    table.unlock(0, 5, 1, false);
    EXPECT_TRUE(table.try_lock(0, 0, 16, true));
    EXPECT_FALSE(table.try_lock(0, 15, 1, false));
    EXPECT_FALSE(table.contains(0, 15, 2));
    EXPECT_FALSE(table.contains(1, 0, 1));
    EXPECT_TRUE(table.contains(0, 15, 1));
}

TEST(Extents, AllocatedRunsNeverOverlapAndNoneIsLost) {
    constexpr std::uint32_t kChunks = 64, kSsds = 3, kRounds = 5'000;
    std::vector<std::uint8_t> ssd_of_chunk(kChunks);
    for (std::uint32_t c = 0; c < kChunks; ++c) ssd_of_chunk[c] = static_cast<std::uint8_t>(mix64(c) % kSsds);
    Extents extents(ssd_of_chunk, kSsds);
    std::vector<std::atomic<std::uint32_t>> owners(kChunks * Extents::kChunkBlocks);
    std::atomic<std::uint64_t> taken{0};
    {
        std::vector<std::jthread> threads;
        for (std::uint32_t t = 0; t < kThreads; ++t)
            threads.emplace_back([&extents, &owners, &taken, t] {
                SplitMix64 random(100 + t);
                struct Run {
                    std::uint32_t first, order;
                };
                std::vector<Run> own;
                for (std::uint32_t i = 0; i < kRounds; ++i) {
                    const auto order = static_cast<std::uint32_t>(random.below(Extents::kOrders));
                    const auto ssd = static_cast<std::uint32_t>(random.below(kSsds));
                    const std::uint32_t first = extents.take(ssd, order);
                    if (first != Extents::kNone) {
                        taken.fetch_add(1, std::memory_order_relaxed);
                        EXPECT_EQ(extents.ssd_of(first), ssd);
                        EXPECT_EQ(first % (1u << order), 0u);
                        for (std::uint32_t b = 0; b < 1u << order; ++b)
                            EXPECT_EQ(owners[first + b].exchange(t + 1), 0u);
                        own.push_back({first, order});
                    }
                    if (own.size() > 8 || first == Extents::kNone) {
                        if (own.empty()) continue;
                        const Run back = own[random.below(own.size())];
                        std::erase_if(own, [&back](const Run& r) { return r.first == back.first; });
                        for (std::uint32_t b = 0; b < 1u << back.order; ++b) owners[back.first + b].store(0);
                        extents.give(back.first, back.order);
                    }
                }
                for (const Run& r : own) {
                    for (std::uint32_t b = 0; b < 1u << r.order; ++b) owners[r.first + b].store(0);
                    extents.give(r.first, r.order);
                }
            });
    }
    EXPECT_EQ(extents.free_blocks(), std::uint64_t{kChunks} * Extents::kChunkBlocks);
    std::printf("GN_COUNT central_runs=%llu\n", static_cast<unsigned long long>(taken.load()));
}

TEST(ExtentStock, RunsOfThreadsWithStocksNeverOverlapAndAStockKeepsFewBlocks) {
    constexpr std::uint32_t kChunks = 256, kSsds = 3, kRounds = 5'000;
    std::vector<std::uint8_t> ssd_of_chunk(kChunks);
    for (std::uint32_t c = 0; c < kChunks; ++c) ssd_of_chunk[c] = static_cast<std::uint8_t>(c % kSsds);
    Extents extents(ssd_of_chunk, kSsds);
    std::vector<std::atomic<std::uint32_t>> owners(kChunks * Extents::kChunkBlocks);
    {
        std::vector<std::jthread> threads;
        for (std::uint32_t t = 0; t < kThreads; ++t)
            threads.emplace_back([&extents, &owners, t] {
                ExtentStock stock(extents);
                SplitMix64 random(300 + t);
                std::vector<std::uint32_t> own;
                const std::uint32_t order = t % 2 == 0 ? 0 : 3;  // of 1 or of 8 blocks
                for (std::uint32_t i = 0; i < kRounds; ++i) {
                    const bool take = own.size() < 32 && random.below(2) == 0;
                    const auto ssd = static_cast<std::uint32_t>(random.below(kSsds));
                    const std::uint32_t first = take ? stock.take(ssd, order) : Extents::kNone;
                    if (first != Extents::kNone) {
                        EXPECT_EQ(extents.ssd_of(first), ssd);
                        for (std::uint32_t b = 0; b < 1u << order; ++b)
                            EXPECT_EQ(owners[first + b].exchange(t + 1), 0u);
                        own.push_back(first);
                    } else if (!own.empty()) {
                        for (std::uint32_t b = 0; b < 1u << order; ++b) owners[own.back() + b].store(0);
                        stock.give(own.back(), order);
                        own.pop_back();
                    }
                }
                for (const std::uint32_t first : own) {
                    for (std::uint32_t b = 0; b < 1u << order; ++b) owners[first + b].store(0);
                    stock.give(first, order);
                }
            });
    }
    const std::uint64_t kept = std::uint64_t{kThreads} * kSsds * ExtentStock::kBlocksMost;
    EXPECT_GE(extents.free_blocks() + kept, std::uint64_t{kChunks} * Extents::kChunkBlocks);
}

TEST(ChangeLog, DurableRecordsHaveNoHolesInWhateverOrderLogBlocksAreWritten) {
    constexpr std::uint32_t kRecordsEach = 5'000;
    ChangeLog log(4);
    std::mutex mutex;
    std::vector<LogBlock> on_the_way;         // guarded by `mutex`
    std::uint64_t seen = 0;                   // durable records that were looked for; guarded by `mutex`
    std::set<std::uint64_t> durable_records;  // guarded by `mutex`
    std::vector<std::vector<std::uint64_t>> numbers(kThreads);
    const auto write_one = [&](SplitMix64& random, bool finish) {
        LogBlock sealed{};
        const std::lock_guard lock(mutex);
        if (log.seal(sealed)) on_the_way.push_back(sealed);
        if (on_the_way.empty()) return false;
        if (!finish && on_the_way.size() < 4 && random.below(4) != 0) return true;  // let more gather
        // Any of those under way may be first.
        const auto at = on_the_way.begin() + static_cast<std::ptrdiff_t>(random.below(on_the_way.size()));
        for (std::uint64_t i = 0; i < at->count; ++i) {
            EXPECT_TRUE(durable_records.insert(at->first + i).second);
            EXPECT_EQ(at->records[i].volume, 7u);
        }
        const std::uint64_t number = at->number;
        on_the_way.erase(at);
        log.written(number);
        return true;
    };
    {
        std::vector<std::jthread> threads;
        for (std::uint32_t t = 0; t < kThreads; ++t)
            threads.emplace_back([&, t] {
                SplitMix64 random(200 + t);
                for (std::uint32_t i = 0; i < kRecordsEach;) {
                    const std::uint64_t number = log.append(LogRecord{7, i, 1, 0, {}});
                    if (number != 0) {
                        numbers[t].push_back(number);
                        ++i;
                    }
                    if (number == 0 || random.below(8) == 0) {
                        (void)write_one(random, number == 0);
                        const std::uint64_t durable = log.durable();
                        const std::lock_guard lock(mutex);
                        // All up to it are written, none left out.
                        for (; seen < durable; ++seen)
                            EXPECT_TRUE(durable_records.contains(seen + 1)) << seen + 1;
                    }
                }
            });
    }
    SplitMix64 random(9);
    while (write_one(random, true)) {
    }
    std::vector<std::uint64_t> all;
    for (const auto& own : numbers) {
        EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
        all.insert(all.end(), own.begin(), own.end());
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), std::size_t{kThreads} * kRecordsEach);
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i + 1);
    EXPECT_EQ(log.durable(), all.size());
    std::printf("GN_COUNT central_records=%zu\n", all.size());
}

TEST(ChangeLog, WaitsForLogBlocksInFlightAndThenTakesAllNewRecordsAtOnce) {
    ChangeLog log(1);
    LogBlock block{};
    EXPECT_FALSE(log.seal(block));
    EXPECT_EQ(log.append({}), 1u);
    ASSERT_TRUE(log.seal(block));
    EXPECT_EQ(block.first, 1u);
    EXPECT_EQ(log.append({}), 2u);
    EXPECT_EQ(log.append({}), 3u);
    EXPECT_FALSE(log.seal(block));
    EXPECT_EQ(log.durable(), 0u);
    log.written(block.number);
    EXPECT_EQ(log.durable(), 1u);
    ASSERT_TRUE(log.seal(block));
    EXPECT_EQ(block.first, 2u);
    EXPECT_EQ(block.count, 2u);
    for (std::uint32_t i = 0; i < LogBlock::kRecords; ++i) EXPECT_EQ(log.append({}), 4u + i);
    EXPECT_EQ(log.append({}), 0u);  // full until the next seal
}

TEST(ChangeLog, TakesAsManyRecordsAsTheOpenBlockHasRoomForAndReportsWhenToSealIt) {
    ChangeLog log(1);
    EXPECT_FALSE(log.might_seal());
    const std::vector<LogRecord> batch(LogBlock::kRecords - 3);
    std::uint64_t first = 0;
    EXPECT_EQ(log.append_some(batch, first), batch.size());
    EXPECT_EQ(first, 1u);
    EXPECT_EQ(log.append_some(batch, first), 3u);
    EXPECT_EQ(first, batch.size() + 1);
    EXPECT_EQ(log.append_some(batch, first), 0u);
    EXPECT_TRUE(log.might_seal());
    LogBlock block{};
    ASSERT_TRUE(log.seal(block));
    EXPECT_EQ(log.append_some(std::span(batch).first(1), first), 1u);
    EXPECT_EQ(first, LogBlock::kRecords + 1);
    EXPECT_FALSE(log.might_seal());  // one block is under way
    log.written(block.number);
    EXPECT_TRUE(log.might_seal());
}

}  // namespace
}  // namespace gnstor::bench
