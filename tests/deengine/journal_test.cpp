// journal_test.cpp: what is appended is found again, in order, whatever fails on the way; units go back when
// nothing in them is needed.
#include <gtest/gtest.h>

#include "deengine/log/journal_index.hpp"
#include "deengine/sim/medium.hpp"

#include <fmt/core.h>

#include <cstdlib>
#include <vector>

namespace gnstor::deengine::journal_test {

using sim::Medium;
using sim::MediumOptions;

MediumOptions options(std::uint32_t fails) {
    MediumOptions o;
    o.geometry = {64, 8};
    o.program_fails = fails;
    return o;
}

struct Bench {
    explicit Bench(std::uint32_t fails = 0)
        : medium(options(fails)), flash(medium.view(0)), pool(flash, 0, 64), journal(flash, pool) {
        pool.start(1);
    }
    /// Every log record on flash, by page number.
    std::vector<std::uint64_t> replay(std::uint64_t& pages) {
        JournalIndex index(flash);
        for (PageNumber p = 0; p < flash.geometry().pages(); ++p) {
            PageOob oob{};
            if (flash.read_oob(p, oob) == FlashStatus::kOk && oob.kind == PageKind::kSystem)
                index.add(p, oob);
        }
        index.sort();
        std::vector<std::uint64_t> found;
        std::uint64_t done = 0;
        for (const JournalPlace& place : index.places()) {
            if (place.number == done) continue;
            const JournalHeader* header = index.read(place);
            if (header == nullptr) continue;
            EXPECT_TRUE(done == 0 || place.number == done + 1) << "a gap before " << place.number;
            done = place.number;
            ++pages;
            for (std::uint32_t i = 0; i < header->count; ++i)
                found.push_back(index.entry<LogRecord>(i).sequence);
        }
        return found;
    }
    Medium medium;
    Flash& flash;
    UnitPool pool;
    Journal journal;
};

LogRecord record(std::uint64_t sequence) {
    LogRecord r{};
    r.type = LogType::kTombstone;
    r.volume = 1;
    r.blocks = 1;
    r.sequence = sequence;
    return r;
}

TEST(Journal, AppendedPagesAreFoundInOrderDespiteFailedPrograms) {
    const char* from = std::getenv("GN_SEED");
    const std::uint64_t first = from != nullptr ? std::strtoull(from, nullptr, 10) : 1;
    std::uint64_t records = 0;
    for (std::uint64_t seed = first; seed < first + 200; ++seed) {
        SCOPED_TRACE(fmt::format("GN_SEED={}", seed));
        Bench bench(seed % 2 == 0 ? 30'000 : 0);
        bench.medium.reseed(seed);
        SplitMix64 random(seed);
        std::uint64_t appended = 0;
        std::uint64_t flushed = 0;
        for (int i = 0; i < 4000; ++i) {
            if (!bench.journal.append(record(appended + 1), 1)) break;
            ++appended;
            if (random.below(20) == 0) {
                if (!bench.journal.flush(1)) break;
                flushed = appended;
            }
        }
        std::uint64_t pages = 0;
        const auto found = bench.replay(pages);
        ASSERT_GE(found.size(), flushed);
        ASSERT_LE(found.size(), appended);
        for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], i + 1);
        ASSERT_EQ(bench.medium.violation(), "");
        records += found.size();
    }
    std::printf("GN_COUNT deengine_journal_records=%llu\n", static_cast<unsigned long long>(records));
}

TEST(Journal, FreesOnlyUnitsWhosePagesAreNoLongerNeeded) {
    Bench bench;
    for (std::uint64_t i = 1; i <= 40; ++i) {
        ASSERT_TRUE(bench.journal.append(record(i), 1));
        ASSERT_TRUE(bench.journal.flush(1));
    }
    EXPECT_EQ(bench.journal.units(), 5u);
    bench.journal.release(9, 1);  // pages 1 .. 8 are one unit
    EXPECT_EQ(bench.journal.units(), 4u);
    bench.journal.release(16, 1);  // page 16 is the last of the second
    EXPECT_EQ(bench.journal.units(), 4u);
    bench.journal.release(17, 1);
    EXPECT_EQ(bench.journal.units(), 3u);
    bench.journal.release(1000, 1);
    EXPECT_EQ(bench.journal.units(), 1u) << "the open unit must be kept";
    EXPECT_EQ(bench.pool.emptied_units(), 4u);
}

TEST(Journal, ReportsThatNoPageIsFreeAndKeepsTheOpenUnit) {
    Bench bench;
    std::uint64_t appended = 0;
    while (bench.journal.append(record(appended + 1), 1)) {
        ++appended;
        if (!bench.journal.flush(1)) break;
    }
    EXPECT_TRUE(bench.journal.dirty());
    EXPECT_EQ(bench.journal.next_number(), 64u * 8 + 1);
    std::uint64_t pages = 0;
    EXPECT_EQ(bench.replay(pages).size(), appended - 1);
}

}  // namespace gnstor::deengine::journal_test
