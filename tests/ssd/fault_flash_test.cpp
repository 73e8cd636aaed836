// Failures of flash: they strike where and as often as their plan says, stay where they struck, and what they
// make bad is never programmed again.
#include <gnstor/nvme/identify.hpp>

#include "backbones.hpp"
#include "drive_rig.hpp"

namespace gnstor::ssd {
namespace {

using deengine::FlashStatus;
using deengine::PageKind;
using deengine::PageOob;
using testing::oob_of;
using testing::page_of;
using testing::program;

constexpr deengine::FlashGeometry kGeometry{32, 64, 4, 2};

std::unique_ptr<FaultFlash> over_memory(const FaultPlan& plan) {
    return std::make_unique<FaultFlash>(MemoryFlash::create(kGeometry).value(), plan);
}
FlashStatus read(deengine::Flash& flash, std::uint32_t page) {
    testing::Page to;
    std::uint32_t crcs[8];
    const FlashStatus status = flash.read(page, 0, 8, to.data(), crcs);
    if (deengine::has_data(status)) {
        EXPECT_EQ(to, page_of(page));
    }
    return status;
}

TEST(FaultFlash, AUnitThatFailedToProgramIsReadAndNeverProgrammedOrErasedAgain) {
    auto flash = over_memory({.program_fails = {2}});
    ASSERT_EQ(program(*flash, 0, 0), FlashStatus::kOk);
    EXPECT_EQ(program(*flash, 2, 2), FlashStatus::kRefused) << "out of order is refused, not failed";
    EXPECT_FALSE(flash->is_bad(0));
    ASSERT_EQ(program(*flash, 1, 1), FlashStatus::kOk);
    EXPECT_EQ(program(*flash, 2, 2), FlashStatus::kProgramFailed);
    EXPECT_TRUE(flash->is_bad(0));
    EXPECT_EQ(program(*flash, 2, 2), FlashStatus::kRefused);
    EXPECT_EQ(flash->erase(0), FlashStatus::kRefused);
    EXPECT_EQ(read(*flash, 1), FlashStatus::kOk);
    PageOob oob{};
    std::uint32_t crcs[8];
    ASSERT_EQ(flash->read_oob(1, oob), FlashStatus::kOk);
    EXPECT_EQ(flash->copy_back(1, 2, oob, crcs), FlashStatus::kRefused);
    EXPECT_EQ(flash->copy_back(1, 64, oob, crcs), FlashStatus::kOk) << "its data can be moved";
    EXPECT_EQ(flash->counters().program_failures, 1u);
}

TEST(FaultFlash, AUnitThatFailedToEraseIsBadAndKeepsItsPages) {
    auto flash = over_memory({.bad_units = {7}, .erase_fails = {1}});
    ASSERT_EQ(program(*flash, 64, 64), FlashStatus::kOk);
    EXPECT_EQ(flash->erase(1), FlashStatus::kProgramFailed);
    EXPECT_TRUE(flash->is_bad(1));
    EXPECT_EQ(flash->erase(1), FlashStatus::kRefused);
    EXPECT_EQ(read(*flash, 64), FlashStatus::kOk);
    EXPECT_TRUE(flash->is_bad(7)) << "from the factory";
    EXPECT_EQ(program(*flash, 7 * 64, 0), FlashStatus::kRefused);
    EXPECT_EQ(flash->counters().erase_failures, 1u);
}

TEST(FaultFlash, UnreadablePagesFailTheirReadsAloneAndCorrectedOnesGiveTheirData) {
    auto flash = over_memory({.corrected = {3}, .uncorrectable = {1}, .lost_records = {2}});
    for (std::uint32_t p = 0; p < 5; ++p) ASSERT_EQ(program(*flash, p, p), FlashStatus::kOk);
    PageOob oob{};
    EXPECT_EQ(read(*flash, 0), FlashStatus::kOk);
    EXPECT_EQ(read(*flash, 1), FlashStatus::kUncorrectable);
    EXPECT_EQ(flash->read_oob(1, oob), FlashStatus::kOk) << "its record is readable";
    EXPECT_EQ(oob.vba, 1u);
    EXPECT_EQ(read(*flash, 2), FlashStatus::kUncorrectable);
    EXPECT_EQ(flash->read_oob(2, oob), FlashStatus::kUncorrectable);
    EXPECT_EQ(read(*flash, 3), FlashStatus::kCorrected);
    EXPECT_EQ(read(*flash, 4), FlashStatus::kOk);
    std::uint32_t crcs[8];
    oob = oob_of(1, 1, 1);
    EXPECT_EQ(flash->copy_back(1, 64, oob, crcs), FlashStatus::kUncorrectable);
    EXPECT_EQ(flash->read_oob(64, oob), FlashStatus::kOk);
    EXPECT_EQ(oob.kind, PageKind::kErased) << "nothing was programmed";
    EXPECT_EQ(flash->read_oob(6, oob), FlashStatus::kOk)
        << "the record of an erased page must not be reported as lost";
    EXPECT_GE(flash->counters().uncorrectable, 2u);
    EXPECT_EQ(flash->counters().lost_records, 1u);
    EXPECT_EQ(flash->counters().corrected, 1u);
}

/// Programs every unit; a failed one up to its failure. Returns pages programmed.
std::uint64_t fill(deengine::Flash& flash, std::uint32_t serial) {
    std::uint64_t pages = 0;
    for (std::uint32_t unit = 0; unit < kGeometry.units; ++unit) {
        for (std::uint32_t p = unit * 64; p < unit * 64 + 64; ++p, ++pages) {
            const testing::Page data = page_of(p);
            PageOob oob = oob_of(1, p, p);
            oob.unit_serial = serial;
            if (flash.program(p, data.data(), oob) != FlashStatus::kOk) break;
        }
    }
    return pages;
}
std::vector<std::uint32_t> unreadable_pages(deengine::Flash& flash) {
    std::vector<std::uint32_t> found;
    for (std::uint32_t p = 0; p < kGeometry.pages(); ++p) {
        if (read(flash, p) == FlashStatus::kUncorrectable) found.push_back(p);
    }
    return found;
}

TEST(FaultFlash, RatesAreMetAndUnreadablePagesStayUnreadableUntilTheirUnitIsOpenedAgain) {
    const std::uint64_t seed = testing::seed_or(8);
    const FaultPlan plan{.seed = seed, .corrected_ppm = 50'000, .uncorrectable_ppm = 100'000};
    auto memory = MemoryFlash::create(kGeometry).value();
    const auto again = memory->part({0, kGeometry.units});
    FaultFlash flash(std::move(memory), plan);
    ASSERT_EQ(fill(flash, 1), kGeometry.pages());
    const auto first = unreadable_pages(flash);
    // 2048 pages at 10 %: 205 expected; 100 and 310 are beyond 7 standard deviations.
    EXPECT_GT(first.size(), 100u);
    EXPECT_LT(first.size(), 310u);
    EXPECT_EQ(unreadable_pages(flash), first) << "every read of one fails";
    EXPECT_GT(flash.counters().corrected, 60u);
    auto later = MemoryFlash::create(kGeometry).value();
    ASSERT_EQ(fill(*later, 1), kGeometry.pages());
    FaultFlash restarted(std::move(later), plan);
    EXPECT_EQ(unreadable_pages(restarted), first) << "the same pages must be unreadable after a restart";
    for (std::uint32_t u = 0; u < kGeometry.units; ++u) ASSERT_EQ(restarted.erase(u), FlashStatus::kOk);
    ASSERT_EQ(fill(restarted, 2), kGeometry.pages());
    EXPECT_NE(unreadable_pages(restarted), first) << "not beyond the erasure of its unit";
}

TEST(FaultFlash, ProgramAndEraseFailuresByRateMakeUnitsBad) {
    auto flash = over_memory(
        {.seed = testing::seed_or(9), .program_failures_ppm = 5000, .erase_failures_ppm = 100'000});
    const std::uint64_t pages = fill(*flash, 1);
    EXPECT_LT(pages, kGeometry.pages());
    std::uint32_t bad = 0;
    for (std::uint32_t u = 0; u < kGeometry.units; ++u) bad += flash->is_bad(u) ? 1 : 0;
    EXPECT_EQ(bad, flash->counters().program_failures);
    EXPECT_GT(bad, 0u);
    for (std::uint32_t u = 0; u < kGeometry.units; ++u) (void)flash->erase(u);
    EXPECT_GT(flash->counters().erase_failures, 0u);
}

TEST(FaultFlash, AfterAFailedSyncNoLaterOneSucceeds) {
    auto flash = over_memory({.sync_fails = 2});
    EXPECT_EQ(flash->sync(), FlashStatus::kOk);
    EXPECT_NE(flash->sync_begin(deengine::SyncLevel::kPower), FlashStatus::kOk);
    EXPECT_NE(flash->sync(), FlashStatus::kOk);
    EXPECT_NE(flash->sync(deengine::SyncLevel::kKill), FlashStatus::kOk);
    EXPECT_EQ(flash->counters().sync_failures, 3u);
}

TEST(FaultFlash, AnEmptyPlanChangesNothing) {
    FlashParts parts;
    parts.push_back(MemoryFlash::create(kGeometry).value());
    const deengine::Flash* same = parts.front().get();
    parts = with_faults(std::move(parts), {});
    EXPECT_EQ(parts.front().get(), same);
    EXPECT_EQ(fault_counters(parts).corrected, 0u);
    parts = with_faults(std::move(parts), {.corrected_ppm = 1'000'000});
    ASSERT_EQ(program(*parts.front(), 0, 0), FlashStatus::kOk);
    EXPECT_EQ(read(*parts.front(), 0), FlashStatus::kCorrected);
    EXPECT_EQ(fault_counters(parts).corrected, 1u);
}

TEST(FaultFlash, ADriveReturnsTheDataOfCorrectedPages) {
    DriveOptions o{.capacity_bytes = 4u << 20, .file = {}, .pages_per_unit = 64, .serial = ""};
    o.faults.corrected_ppm = 1'000'000;
    testing::DriveRig rig(o);
    rig.grant();
    rig.add_volume();
    const auto page = page_of(1);
    ASSERT_EQ(rig.write(5, page), nvme::Status::kSuccess);
    testing::Page to;
    EXPECT_EQ(rig.read(5, to), nvme::Status::kSuccess);
    EXPECT_EQ(to, page);
}

TEST(FaultFlash, BadUnitsConsumeTheSpareShownInTheHealthLog) {
    int before = 101;
    for (std::uint32_t bad = 0; before != 0; ++bad) {
        DriveOptions o{.capacity_bytes = 4u << 20, .file = {}, .pages_per_unit = 64, .serial = ""};
        for (std::uint32_t unit = 0; unit < bad; ++unit) o.faults.bad_units.push_back(3 + unit);
        testing::DriveRig rig(o);
        nvme::HealthLog h{};
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kGetLogPage);
        c.flags = nvme::kFlagsSgl;
        c.namespace_id = 0xFFFFFFFF;
        c.cdw10 = static_cast<std::uint32_t>(nvme::LogPage::kHealth) | ((sizeof h / 4 - 1) << 16);
        c.data = testing::sgl(&h, sizeof h);
        ASSERT_EQ(testing::call(*rig.admin, *rig.reactor, c).result(), nvme::Status::kSuccess);
        EXPECT_EQ(h.available_spare == 100, bad == 0);
        EXPECT_LT(h.available_spare, before) << bad << " bad units";
        EXPECT_EQ(h.critical_warning, h.available_spare < h.spare_threshold ? 1 : 0);
        before = h.available_spare;
        ASSERT_LT(bad, 64u) << "as many units as the promise has";
    }
}

}  // namespace
}  // namespace gnstor::ssd
