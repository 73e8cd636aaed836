// collector_test.cpp: garbage collection on drives that are full and go on being overwritten: nothing is
// lost, what it costs, what no single write waits for, and what becomes of pages that rot.
#include <gtest/gtest.h>

#include "deengine/full_drive.hpp"
#include "deengine/map/block_map.hpp"
#include "deengine/shard/greedy_curve.hpp"

#include <algorithm>

namespace gnstor::deengine::test {
namespace {

constexpr std::uint32_t kUnits = 256, kPages = 64;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kTurns = 1;  ///< times the drive is overwritten before and while it is measured
#else
constexpr std::uint64_t kTurns = 4;
#endif

TEST(Collector, AFullDriveOverwrittenManyTimesItsSizeKeepsEveryBlock) {
    for (const bool volatile_cache : {true, false}) {
        EngineOptions o = default_options();
        o.volatile_cache = volatile_cache;
        FullDrive drive(96, 32, o, gnstor::test::run_seed());
        drive.overwrite(3 * kTurns * drive.blocks);
        if (::testing::Test::HasFatalFailure()) return;
        drive.check();
        drive.rig.mount();
        ASSERT_EQ(drive.rig.set_map(make_map(1)), Status::kSuccess);
        drive.check();
        EXPECT_EQ(drive.rig.flash.violations, 0u);
        const EngineCounters c = drive.rig.engine->counters();
        EXPECT_EQ(c.mapped_blocks, drive.blocks);
    }
}

TEST(Collector, WriteAmplificationFollowsTheGreedyCurve) {
    std::uint64_t overwrites = 0;
    for (const double fill : {0.70, 0.80, 0.90}) {
        EngineOptions o = default_options();
        o.block_limit = static_cast<std::uint64_t>(fill * kUnits * kPages);
        FullDrive drive(kUnits, kPages, o, gnstor::test::run_seed());
        ASSERT_EQ(drive.blocks, o.block_limit);
        drive.overwrite(kTurns * drive.blocks);  // until it is steady
        const EngineCounters before = drive.rig.engine->counters();
        drive.overwrite(kTurns * drive.blocks);
        if (::testing::Test::HasFatalFailure()) return;
        const EngineCounters after = drive.rig.engine->counters();
        const auto user = static_cast<double>(after.blocks_written - before.blocks_written);
        const auto copied = static_cast<double>(after.gc_pages_copied - before.gc_pages_copied);
        const auto system = static_cast<double>(after.system_pages - before.system_pages);
        const double measured = 1 + copied / user;
        // The curve knows no journal, no reserve, no unit that is not full yet: they are room that is not
        // there. What is left of it is between the two.
        const ShardRoom room = ShardRoom::of(kUnits, kPages, o);
        const double begun = 3;
        const double journal = 3;
        const double kept =
            room.system_reserve(0, kPages) + UnitPool::kReserve - 1 + room.margin + begun + journal;
        const double least = greedy_amplification(double{kUnits} * kPages / drive.blocks, kPages);
        const double most = greedy_amplification((kUnits - kept) * kPages / drive.blocks, kPages);
        std::printf(
            "fill %.2f: write amplification %.3f (curve %.3f with all units, %.3f without the %.0f kept), "
            "and %.3f journal pages a user page; %llu stalls\n",
            fill, measured, least, most, kept, system / user,
            static_cast<unsigned long long>(after.stalls - before.stalls));
        EXPECT_GE(measured, 0.97 * least);
        EXPECT_LE(measured, 1.03 * most);
        EXPECT_EQ(after.stalls, before.stalls) << "flash that syncs at once never makes a write wait";
        overwrites += drive.overwritten;
    }
    std::printf("GN_COUNT deengine_collector_overwrites=%llu\n", static_cast<unsigned long long>(overwrites));
}

TEST(Collector, NoSingleWriteWaitsForTheCollectionOfAWholeUnit) {
    EngineOptions o = default_options();
    o.block_limit = kUnits * kPages * 85 / 100;
    FullDrive drive(kUnits, kPages, o, gnstor::test::run_seed());
    drive.overwrite(2ull * drive.blocks);
    std::vector<std::uint64_t> paid;
    for (std::uint32_t i = 0; i < 40'000; ++i) {
        const std::uint64_t before = drive.rig.engine->counters().gc_pages_copied;
        drive.overwrite(1);
        if (::testing::Test::HasFatalFailure()) return;
        paid.push_back(drive.rig.engine->counters().gc_pages_copied - before);
    }
    std::ranges::sort(paid);
    const auto at = [&](double part) {
        return static_cast<unsigned long long>(
            paid[static_cast<std::size_t>(part * static_cast<double>(paid.size() - 1))]);
    };
    std::printf("pages copied before a write: median %llu, 99 %% %llu, 99.9 %% %llu, most %llu\n", at(0.5),
                at(0.99), at(0.999), at(1));
    EXPECT_LT(at(1), kPages / 2);
}

TEST(Collector, RepeatedTrimsFreeSpaceAndTombstonesStayBounded) {
    EngineOptions o = default_options();
    o.max_tombstones = 64;
    FullDrive drive(48, 16, o, gnstor::test::run_seed());
    std::uint64_t busy = 0, most = 0;
    for (int round = 0; round < 40; ++round) {
        for (std::uint32_t b = 0; b < drive.blocks; b += 4) {
            const std::uint32_t blocks = std::min(4u, drive.blocks - b);
            ++drive.sequence;
            for (int attempt = 0;; ++attempt) {
                ASSERT_LT(attempt, 2000) << "busy ends when the floor passes and checkpoints are written";
                const Answer a = drive.rig.trim(drive.at(b), drive.sequence, {{0, blocks, b}});
                if (ok(a.status)) break;
                ASSERT_EQ(a.status, Status::kBusy);
                ++busy;
                drive.raise_floor(drive.sequence - 1);
                drive.rig.engine->poll(++drive.rig.now_ns);
            }
            for (std::uint32_t i = 0; i < blocks; ++i) drive.held[b + i] = 0;
            most = std::max<std::uint64_t>(most, drive.rig.engine->counters().tombstones);
        }
        EXPECT_EQ(drive.rig.engine->counters().mapped_blocks, 0u);
        drive.check();
        for (std::uint32_t b = 0; b < drive.blocks; ++b) drive.write_when_not_busy(b);
        if (::testing::Test::HasFatalFailure()) return;
        drive.check();
    }
    EXPECT_LE(most, 256u) << "the table's bound";
    EXPECT_GT(busy, 0u) << "the limit was never reached";
    EXPECT_EQ(drive.rig.flash.violations, 0u);
}

TEST(Collector, ACorruptPageStaysAReadErrorWhereverItIsMovedUntilItIsRewritten) {
    FullDrive drive(48, 16, default_options(), gnstor::test::run_seed());
    const std::uint32_t gone = 5, damaged = 77, unnamed = 120;
    drive.rig.flash.unreadable.insert(drive.rig.flash.find_last(FullDrive::kVolume, gone));
    drive.rig.flash.flip_data(drive.rig.flash.find_last(FullDrive::kVolume, damaged), 700);
    drive.rig.flash.flip_record(drive.rig.flash.find_last(FullDrive::kVolume, unnamed));
    for (std::uint64_t i = 0; i < 6ull * drive.blocks; ++i) {
        const auto b = static_cast<std::uint32_t>(drive.random.below(drive.blocks));
        if (b != gone && b != damaged && b != unnamed) drive.write(b);
        if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(drive.rig.engine->counters().lost_blocks, 2u) << "the collector must find both damaged blocks";
    Block got;
    for (int mounts = 0; mounts < 2; ++mounts) {
        for (const std::uint32_t b : {gone, damaged, unnamed})
            EXPECT_EQ(drive.rig.read(drive.at(b), got).status, Status::kUnrecoveredReadError) << b;
        IoFields f = drive.at(damaged);
        f.sectors = 1;
        EXPECT_EQ(drive.rig.read(f, got).status, Status::kSuccess) << "the other sectors are whole";
        drive.rig.mount();
        ASSERT_EQ(drive.rig.set_map(make_map(1)), Status::kSuccess);
    }
    // The same write again, as a repair from another replica brings it: equal replaces bad.
    for (const std::uint32_t b : {gone, damaged}) {
        EXPECT_EQ(drive.rig.write(drive.at(b), drive.held[b], pattern(drive.held[b])).status,
                  Status::kSuccess);
        EXPECT_TRUE(drive.rig.holds(drive.at(b), drive.held[b]));
    }
    // Its order is not known: nothing that might be older takes effect before the floor has passed it.
    EXPECT_EQ(drive.rig.write(drive.at(unnamed), drive.sequence + 5, pattern(1)).status,
              Status::kUnrecoveredReadError);
    drive.raise_floor(drive.sequence + 5);
    EXPECT_EQ(drive.rig.write(drive.at(unnamed), drive.sequence + 6, pattern(2)).status, Status::kSuccess);
    EXPECT_TRUE(drive.rig.holds(drive.at(unnamed), 2));
}

TEST(Collector, AUnitWhoseReadsNeedCorrectionIsRewritten) {
    FullDrive drive(48, 16, default_options(), gnstor::test::run_seed());
    const PageNumber page = drive.rig.flash.find_last(FullDrive::kVolume, 9);
    drive.rig.flash.corrected.insert(page);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(drive.rig.holds(drive.at(9), drive.held[9]));
    for (int i = 0; i < 8; ++i) drive.rig.engine->poll(0);
    EXPECT_NE(drive.rig.flash.find_last(FullDrive::kVolume, 9), page) << "its data lies elsewhere now";
    const std::uint64_t corrected = drive.rig.engine->counters().corrected;
    EXPECT_GT(corrected, 0u);
    EXPECT_TRUE(drive.rig.holds(drive.at(9), drive.held[9]));
    EXPECT_EQ(drive.rig.engine->counters().corrected, corrected);
    drive.check();
}

TEST(Scrub, FindsAFlippedByteInTheBackgroundAndKeepsToItsReadRate) {
    EngineOptions o = default_options();
    o.scrub_pages_per_second = 1000;
    FullDrive drive(48, 16, o, gnstor::test::run_seed());
    drive.rig.flash.flip_data(drive.rig.flash.find_last(FullDrive::kVolume, 33), 4095);
    drive.rig.now_ns += 1;
    drive.rig.engine->poll(drive.rig.now_ns);
    const std::uint64_t begun = drive.rig.engine->counters().scrubbed;
    for (int i = 0; i < 4000; ++i) drive.rig.engine->poll(drive.rig.now_ns += 1'000'000);  // four seconds
    const EngineCounters c = drive.rig.engine->counters();
    EXPECT_GT(c.scrubbed - begun, 3800u);
    EXPECT_LE(c.scrubbed - begun, 4001u);
    EXPECT_GE(c.scrub_bad, 1u) << "a scrub round must find the bad page once";
    EXPECT_LE(c.scrub_bad, 8u);
}

TEST(Scrub, FindsCorruptPagesInAnOpenUnitAndDoesNotReportTornPages) {
    EngineOptions o = default_options();
    o.scrub_pages_per_second = 1000;
    std::vector<std::uint64_t> told;
    o.on_scrub_error = [&](const ScrubError& bad) { told.push_back(bad.key); };
    FullDrive drive(48, 16, o, gnstor::test::run_seed());
    const auto scrub_round = [&] {
        told.clear();
        for (int i = 0; i < 4000; ++i) drive.rig.engine->poll(drive.rig.now_ns += 1'000'000);
    };
    ASSERT_EQ(drive.rig.write(drive.at(5), 1'000'000, pattern(77)).status, Status::kSuccess);
    const PageNumber newest = drive.rig.flash.find_last(FullDrive::kVolume, 5);
    scrub_round();
    EXPECT_TRUE(told.empty());
    drive.rig.flash.flip_data(newest, 100);
    scrub_round();
    EXPECT_FALSE(told.empty()) << "the newest page lies in a unit that is not full yet";
    for (const std::uint64_t key : told) EXPECT_EQ(key, make_key(FullDrive::kVolume, 5));
}

}  // namespace
}  // namespace gnstor::deengine::test
