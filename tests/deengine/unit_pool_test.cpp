// unit_pool_test.cpp: a pool over a flash that keeps NAND's rules, under random streams, failures and groups,
// against a plain account of every page.
#include "deengine/log/unit_pool.hpp"

#include <gtest/gtest.h>
#include <gnstor/base/hash.hpp>

#include "deengine/ram_flash.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace gnstor::deengine::test {
namespace {

constexpr std::uint32_t kFirst = 3, kUnits = 24, kPages = 8;

/// Everything that is done to the pool, and what must hold of it.
class Account {
  public:
    explicit Account(std::uint64_t seed)
        : random(seed), flash(kFirst + kUnits + 2, kPages), pool(flash, kFirst, kUnits) {
        pool.start(1);
        for (int i = 0; i < 3; ++i) flash.erase_faults.insert(20 + random.below(200));
        for (int i = 0; i < 3; ++i) flash.program_faults[50 + random.below(2000)] = RamFlash::Fault::kBadData;
    }

    void step() {
        const std::uint64_t dice = random.below(100);
        if (dice < 62)
            return program(dice < 40 ? Stream::kUser : dice < 55 ? Stream::kCollector : Stream::kSystem);
        if (dice < 90) return invalidate();
        if (dice < 93) return pool.seal(static_cast<Stream>(random.below(kStreams)));
        if (dice < 95) return release();
        ++group;
        durable = group - 1;
        pool.durable(durable);
    }

    void program(Stream stream) {
        const std::uint32_t free_before = pool.free_units();
        const bool open = pool.open_unit(stream) != kNoUnit;
        const PageNumber page = pool.next_page(stream);
        if (page == kNoPage) {
            ++refused;
            // A unit that would not erase may have been among the last.
            const std::uint32_t left = stream == Stream::kUser        ? UnitPool::kReserve
                                       : stream == Stream::kCollector ? 1u + (pool.emptied_units() != 0)
                                                                      : 0;
            ASSERT_LE(pool.free_units(), left)
                << "a page is to be had while there are free units beyond the reserve";
            return;
        }
        if (!open && stream == Stream::kUser) {
            ASSERT_GT(free_before, UnitPool::kReserve);
        }
        const std::uint32_t unit = page / kPages;
        const std::uint32_t serial = pool.serial_of(page);
        ASSERT_TRUE(unit >= kFirst && unit < kFirst + kUnits);
        for (const auto& [other, seen] : valid) ASSERT_NE(other, page) << "a page that is still valid";
        if (!open) {
            ASSERT_GT(serial, last_serial) << "each opening counts up";
            last_serial = serial;
            // What emptied the unit was durable.
            ASSERT_TRUE(!emptied.contains(unit) || emptied[unit] <= durable) << "unit " << unit;
            emptied.erase(unit);
            streams[unit] = stream;
        }
        ASSERT_EQ(streams[unit], stream) << "kinds of pages never mix in a unit";
        PageOob oob{};
        oob.kind = stream == Stream::kSystem ? PageKind::kSystem : PageKind::kData;
        const std::vector<std::byte> data(nvme::kBlockBytes);
        if (flash.program(page, data.data(), oob) != FlashStatus::kOk) {
            ASSERT_EQ(pool.failed(stream, page), unit);
            bad.insert(unit);
            return;
        }
        pool.programmed(stream, page);
        if (stream != Stream::kSystem)
            valid[page] = group;
        else
            system_units.insert(unit);
        ++programmed;
    }
    void invalidate() {
        if (valid.empty()) return;
        auto it = valid.lower_bound(kFirst * kPages + static_cast<PageNumber>(random.below(kUnits * kPages)));
        if (it == valid.end()) it = valid.begin();
        const PageNumber page = it->first;
        valid.erase(it);
        pool.invalidate(page, group);
        emptied[page / kPages] = group;
    }
    void release() {
        if (system_units.empty()) return;
        const std::uint32_t unit = *system_units.begin();
        if (unit == pool.open_unit(Stream::kSystem)) return;
        system_units.erase(unit);
        pool.release_system(unit, group);
        emptied[unit] = group;
    }
    void check() {
        for (const std::uint32_t unit : pool.take_newly_bad()) bad.insert(unit);
        std::map<std::uint32_t, std::uint32_t> count;
        for (const auto& [page, g] : valid) ++count[page / kPages];
        std::uint32_t least = kPages + 1;
        bool retiring = false;
        std::uint32_t free = 0;
        for (std::uint32_t u = kFirst; u < kFirst + kUnits; ++u) {
            const UnitInfo& info = pool.info(u);
            if (!info.system) {
                ASSERT_EQ(info.valid, count[u]) << "unit " << u;
            }
            const bool is_bad = info.state == UnitState::kRetiring || info.state == UnitState::kRetired;
            ASSERT_EQ(is_bad, bad.contains(u)) << "unit " << u;
            free += info.state == UnitState::kFree;
            if (info.system || info.valid == 0) continue;
            if (info.state == UnitState::kSealed) least = std::min(least, info.valid);
            retiring |= info.state == UnitState::kRetiring;
        }
        ASSERT_EQ(pool.free_units(), free);
        ASSERT_EQ(pool.valid_pages(), valid.size());
        ASSERT_EQ(pool.good_units() + bad.size(), kUnits);
        const std::uint32_t victim = pool.victim();
        if (retiring) {
            ASSERT_EQ(pool.info(victim).state, UnitState::kRetiring)
                << "a failed unit must be collected first";
        } else if (least <= kPages) {
            ASSERT_EQ(pool.info(victim).valid, least) << "the victim has fewest valid pages";
        } else {
            ASSERT_EQ(victim, kNoUnit);
        }
        ASSERT_EQ(flash.violations, 0u);
    }

    SplitMix64 random;
    RamFlash flash;
    UnitPool pool;
    std::map<PageNumber, std::uint32_t> valid;  ///< data pages
    std::set<std::uint32_t> bad, system_units;
    std::map<std::uint32_t, std::uint32_t> emptied;  ///< group of the last thing that left a unit
    std::map<std::uint32_t, Stream> streams;
    std::uint32_t group = 1, durable = 0, last_serial = 0;
    std::uint64_t programmed = 0, refused = 0;
};

TEST(UnitPool, KeepsItsRulesUnderRandomStreamsFailuresAndGroups) {
    const std::uint64_t seed = gnstor::test::run_seed();
    std::uint64_t programmed = 0, refused = 0, bad = 0, erases = 0;
    for (std::uint64_t round = 0; round < 40; ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        Account account(seed * 1000 + round);
        for (int i = 0; i < 3000; ++i) {
            account.step();
            if (::testing::Test::HasFatalFailure()) return;
            if (i % 4 == 0) account.check();
            if (::testing::Test::HasFatalFailure()) return;
        }
        programmed += account.programmed;
        refused += account.refused;
        bad += account.bad.size();
        erases += account.flash.erases;
    }
    EXPECT_GT(refused, 100u) << "the pool was empty at times";
    EXPECT_GT(bad, 40u);
    EXPECT_GT(erases, 1000u);
    std::printf("GN_COUNT deengine_unit_pool_programs=%llu\n", static_cast<unsigned long long>(programmed));
}

TEST(UnitPool, AMountContinuesOpenUnitsAndFreesEmptyOnes) {
    RamFlash flash(8, 4);
    UnitPool pool(flash, 0, 8);
    pool.restore(0, {.serial = 5, .next = 2, .valid = 0, .state = UnitState::kOpen, .system = false});
    pool.restore(1, {.serial = 6, .next = 3, .state = UnitState::kOpen, .system = true});
    pool.restore(2, {.serial = 4, .next = 4, .group = 9, .state = UnitState::kSealed});
    pool.restore(3, {.serial = 3, .next = 4, .state = UnitState::kRetiring});
    pool.restore(4, {.serial = 2, .next = 1, .state = UnitState::kRetiring});
    pool.restore(5, {.serial = 1, .next = 4, .state = UnitState::kFree});
    pool.validate(0);
    pool.validate(1);
    pool.validate(12);
    pool.start(7);
    EXPECT_EQ(pool.open_unit(Stream::kCollector), 0u) << "the last free unit must go to the collector";
    EXPECT_EQ(pool.open_unit(Stream::kUser), kNoUnit);
    EXPECT_EQ(pool.next_page(Stream::kCollector), 2u);
    EXPECT_EQ(pool.open_unit(Stream::kSystem), 1u);
    EXPECT_EQ(pool.info(2).state, UnitState::kEmptied);
    EXPECT_EQ(pool.victim(), 3u);
    EXPECT_EQ(pool.info(4).state, UnitState::kRetired);
    EXPECT_EQ(pool.free_units(), 3u);
    EXPECT_EQ(pool.good_units(), 6u);
    EXPECT_EQ(pool.valid_pages(), 3u);
    pool.durable(8);
    EXPECT_EQ(pool.free_units(), 3u) << "its group is not durable yet";
    pool.durable(9);
    EXPECT_EQ(pool.free_units(), 4u);
}

TEST(UnitPool, OfSeveralOpenDataUnitsTheTwoWithMostFreePagesAreContinued) {
    RamFlash flash(8, 4);
    UnitPool pool(flash, 0, 8);
    const std::uint32_t programmed[4] = {3, 1, 3, 2};
    for (std::uint32_t u = 0; u < 4; ++u) {
        pool.restore(u, {.serial = u + 1, .next = programmed[u], .state = UnitState::kOpen});
        pool.validate(u * 4);
    }
    pool.start(9);
    EXPECT_EQ(pool.open_unit(Stream::kCollector), 1u);
    EXPECT_EQ(pool.open_unit(Stream::kUser), 3u);
    EXPECT_EQ(pool.info(0).state, UnitState::kSealed);
    EXPECT_EQ(pool.info(2).state, UnitState::kSealed);
    EXPECT_NE(pool.victim(), kNoUnit);
}

TEST(UnitPool, AUnitWithoutSpaceOnDiskIsExchangedForOneThatHasSpace) {
    RamFlash flash(8, 4);
    UnitPool pool(flash, 0, 8);
    for (std::uint32_t u = 0; u < 7; ++u) pool.restore(u, {});
    pool.restore(7, {.serial = 1, .next = 4, .state = UnitState::kFree});
    pool.start(2);
    const PageNumber page = pool.next_page(Stream::kCollector);
    ASSERT_NE(page / 4, 7u);
    ASSERT_TRUE(pool.exchange_open_unit(Stream::kCollector));
    EXPECT_EQ(pool.next_page(Stream::kCollector), 28u) << "it was programmed before: there is room for it";
    EXPECT_FALSE(pool.exchange_open_unit(Stream::kCollector)) << "there is no other unit to exchange it for";
    EXPECT_EQ(pool.free_units(), 8u) << "no unit may be lost";
}

TEST(UnitPool, UserWritesLeaveDiskSpaceToTheJournalAndTheCollector) {
    RamFlash flash(16, 4);
    UnitPool pool(flash, 0, 16);
    for (std::uint32_t u = 0; u < 16; ++u) pool.restore(u, {});
    pool.start(1);
    pool.set_system_reserve(2);
    const std::uint32_t kept = pool.left_for_others(Stream::kUser);
    flash.room_units = kept;
    for (int i = 0; i < 100; ++i) EXPECT_EQ(pool.next_page(Stream::kUser), kNoPage);
    EXPECT_LE(flash.reserves, kept + 100) << "a full disk is asked once a time";
    flash.room_units = kept + 1;
    const PageNumber page = pool.next_page(Stream::kUser);
    ASSERT_NE(page, kNoPage);
    PageOob oob{};
    oob.kind = PageKind::kData;
    EXPECT_EQ(flash.program(page, nullptr, oob), FlashStatus::kOk);
    EXPECT_TRUE(pool.reserve(2 * 4));
    EXPECT_NE(pool.next_page(Stream::kCollector), kNoPage);
}

TEST(UnitPool, SerialsNeverWrapAroundAndTheJournalOutlastsBlocks) {
    RamFlash flash(16, 4);
    UnitPool pool(flash, 0, 16);
    for (std::uint32_t u = 0; u < 16; ++u) pool.restore(u, {});
    pool.start(0xFEFFFFFFu);
    EXPECT_NE(pool.next_page(Stream::kUser), kNoPage);
    EXPECT_EQ(pool.next_page(Stream::kCollector), kNoPage);
    EXPECT_NE(pool.next_page(Stream::kSystem), kNoPage);
    UnitPool last(flash, 0, 16);
    for (std::uint32_t u = 0; u < 16; ++u) last.restore(u, {});
    last.start(0xFFFFFFF0u);
    EXPECT_EQ(last.next_page(Stream::kSystem), kNoPage);
}

/// A cut undoes what the collector emptied in the last groups: it needs a unit then to begin with.
TEST(UnitPool, TheCollectorKeepsItsLastUnitUntilTheUnitsItEmptiedAreFree) {
    RamFlash flash(8, 2);
    UnitPool pool(flash, 0, 8);
    pool.start(1);
    const std::vector<std::byte> data(nvme::kBlockBytes);
    const auto program = [&](Stream stream) {
        const PageNumber page = pool.next_page(stream);
        if (page == kNoPage) return page;
        PageOob oob{};
        oob.kind = PageKind::kData;
        EXPECT_EQ(flash.program(page, data.data(), oob), FlashStatus::kOk);
        pool.programmed(stream, page);
        return page;
    };
    std::vector<PageNumber> pages;
    while (pool.free_units() > 2)
        for (int i = 0; i < 2; ++i) pages.push_back(program(Stream::kCollector));
    pool.invalidate(pages[0], 1);
    pool.invalidate(pages[1], 1);
    ASSERT_EQ(pool.emptied_units(), 1u);
    ASSERT_EQ(pool.left_for_others(Stream::kCollector), 1u);
    EXPECT_EQ(program(Stream::kCollector), kNoPage)
        << "a cut would leave one unit, and that is the journal's";
    EXPECT_FALSE(pool.has_page(Stream::kCollector));
    pool.durable(1);
    ASSERT_EQ(pool.free_units(), 3u);
    for (int i = 0; i < 4; ++i) EXPECT_NE(program(Stream::kCollector), kNoPage);
    EXPECT_EQ(pool.free_units(), 1u) << "no emptied unit is waiting, so the last one may be taken";
}

}  // namespace
}  // namespace gnstor::deengine::test
