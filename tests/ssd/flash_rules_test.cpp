// NAND's rules hold for every backbone: in order, once per erase, whole pages, write pointers found again
// from the records; what a sync has made stable is there after the end of the process.
#include <gnstor/base/crc32c.hpp>

#include "backbones.hpp"
#include "ssd/flash/record_copies.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

namespace gnstor::ssd {
namespace {

using deengine::FlashGeometry;
using deengine::FlashStatus;
using deengine::PageKind;
using deengine::PageOob;
using deengine::SyncLevel;
using deengine::SyncState;
using testing::Backbone;
using testing::Kind;
using testing::oob_of;
using testing::page_of;
using testing::program;

constexpr FlashGeometry kSmall{6, 8, 2, 1};

struct Rig : Backbone {
    explicit Rig(Kind kind)
        : Backbone(kind, {.geometry = kSmall, .capacity_bytes = 4096 * 40, .serial = ""}),
          flash(&Backbone::flash()) {}
    deengine::Flash* flash;
};

class FlashRules : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Backbones, FlashRules,
                         ::testing::Values(Kind::kMemory, Kind::kTmpfs, Kind::kMapped, Kind::kRing,
                                           Kind::kPlain, Kind::kFaulty, Kind::kFaultyRing),
                         [](const auto& p) { return testing::name_of(p.param); });

TEST_P(FlashRules, PagesAreProgrammedInOrderAndOnceUntilTheUnitIsErased) {
    Rig rig(GetParam());
    deengine::Flash& flash = *rig.flash;
    EXPECT_EQ(program(flash, 1, 1), FlashStatus::kRefused) << "page 0 comes first";
    EXPECT_EQ(program(flash, 0, 1), FlashStatus::kOk);
    EXPECT_EQ(program(flash, 0, 2), FlashStatus::kRefused) << "programmed already";
    EXPECT_EQ(program(flash, 2, 2), FlashStatus::kRefused) << "page 1 is next";
    EXPECT_EQ(program(flash, 1, 2), FlashStatus::kOk);
    EXPECT_EQ(program(flash, 8, 3), FlashStatus::kOk) << "units are independent";
    EXPECT_EQ(program(flash, 48, 3), FlashStatus::kRefused) << "no such unit";
    EXPECT_EQ(flash.erase(6), FlashStatus::kRefused);
    EXPECT_EQ(flash.erase(0), FlashStatus::kOk);
    PageOob oob{};
    EXPECT_EQ(flash.read_oob(1, oob), FlashStatus::kOk);
    EXPECT_EQ(oob.kind, PageKind::kErased);
    EXPECT_EQ(program(flash, 0, 4), FlashStatus::kOk) << "erased, so free again";
    EXPECT_EQ(flash.read_oob(8, oob), FlashStatus::kOk);
    EXPECT_EQ(oob.kind, PageKind::kData) << "the other unit was not erased";
}

TEST_P(FlashRules, AProgramReturnsChecksumsOfItsDataAndReadsReturnThemAgain) {
    Rig rig(GetParam());
    const testing::Page data = page_of(77);
    PageOob oob = oob_of(9, 123, 456);
    ASSERT_EQ(rig.flash->program(0, data.data(), oob), FlashStatus::kOk);
    for (std::uint32_t s = 0; s < 8; ++s) EXPECT_EQ(oob.sector_crc[s], crc32c(data.data() + s * 512, 512));
    EXPECT_EQ(oob.crc, record_crc(oob, 0, rig.drive_seed()));
    PageOob back{};
    ASSERT_EQ(rig.flash->read_oob(0, back), FlashStatus::kOk);
    EXPECT_EQ(std::memcmp(&back, &oob, sizeof oob), 0);
    for (std::uint32_t first = 0; first < 8; ++first) {
        for (std::uint32_t count = 1; first + count <= 8; ++count) {
            testing::Page to;
            std::uint32_t crcs[8] = {};
            ASSERT_EQ(rig.flash->read(0, first, count, to.data(), crcs), FlashStatus::kOk);
            EXPECT_EQ(std::memcmp(to.data(), data.data() + first * 512, count * 512), 0);
            for (std::uint32_t i = 0; i < count; ++i) EXPECT_EQ(crcs[i], oob.sector_crc[first + i]);
        }
    }
}

TEST_P(FlashRules, ReadsOutsideOfProgrammedPagesAndSectorsAreRefused) {
    Rig rig(GetParam());
    ASSERT_EQ(program(*rig.flash, 0, 1), FlashStatus::kOk);
    testing::Page to;
    std::uint32_t crcs[8];
    EXPECT_EQ(rig.flash->read(1, 0, 8, to.data(), crcs), FlashStatus::kRefused);
    EXPECT_EQ(rig.flash->read(48, 0, 8, to.data(), crcs), FlashStatus::kRefused);
    EXPECT_EQ(rig.flash->read(deengine::kNoPage, 0, 8, to.data(), crcs), FlashStatus::kRefused);
    EXPECT_EQ(rig.flash->read(0, 0, 0, to.data(), crcs), FlashStatus::kRefused);
    EXPECT_EQ(rig.flash->read(0, 8, 1, to.data(), crcs), FlashStatus::kRefused);
    EXPECT_EQ(rig.flash->read(0, 1, 8, to.data(), crcs), FlashStatus::kRefused);
    EXPECT_EQ(rig.flash->read(0, 2, 0xFFFFFFFF, to.data(), crcs), FlashStatus::kRefused);
    PageOob oob{};
    EXPECT_EQ(rig.flash->read_oob(48, oob), FlashStatus::kRefused);
    oob = oob_of(1, 1, 1, PageKind::kErased);
    EXPECT_EQ(rig.flash->program(1, to.data(), oob), FlashStatus::kRefused)
        << "an erased page cannot be programmed";
}

TEST_P(FlashRules, APageWithoutDataHasARecordAndNoChecksums) {
    Rig rig(GetParam());
    PageOob oob = oob_of(3, 4, 5, PageKind::kLost);
    oob.sector_crc[3] = 99;
    ASSERT_EQ(rig.flash->program(0, nullptr, oob), FlashStatus::kOk);
    PageOob back{};
    ASSERT_EQ(rig.flash->read_oob(0, back), FlashStatus::kOk);
    EXPECT_EQ(back.kind, PageKind::kLost);
    for (const std::uint32_t crc : back.sector_crc) EXPECT_EQ(crc, 0u);
}

TEST_P(FlashRules, ReadPageReturnsRecordAndDataInOneCall) {
    Rig rig(GetParam());
    ASSERT_EQ(program(*rig.flash, 0, 5), FlashStatus::kOk);
    testing::Page to{};
    std::uint32_t crcs[8];
    PageOob oob{};
    ASSERT_EQ(rig.flash->read_page(0, 0, 8, to.data(), crcs, oob), FlashStatus::kOk);
    EXPECT_EQ(to, page_of(5));
    EXPECT_EQ(std::memcmp(crcs, oob.sector_crc, sizeof crcs), 0);
    EXPECT_EQ(rig.flash->read_page(1, 0, 8, to.data(), crcs, oob), FlashStatus::kRefused) << "not programmed";
}

TEST_P(FlashRules, CopyBackMovesBytesKeepsTheGivenChecksumsAndObeysTheProgramOrder) {
    Rig rig(GetParam());
    ASSERT_EQ(program(*rig.flash, 0, 5), FlashStatus::kOk);
    PageOob oob{};
    ASSERT_EQ(rig.flash->read_oob(0, oob), FlashStatus::kOk);
    std::uint32_t crcs[8] = {};
    EXPECT_EQ(rig.flash->copy_back(1, 8, oob, crcs), FlashStatus::kRefused) << "nothing to copy";
    EXPECT_EQ(rig.flash->copy_back(0, 9, oob, crcs), FlashStatus::kRefused) << "page 8 comes first";
    EXPECT_EQ(rig.flash->copy_back(0, 48, oob, crcs), FlashStatus::kRefused);
    oob.unit_serial = 77;
    const std::uint32_t kept = oob.sector_crc[2] ^= 1;  // a sector that was damaged before it was copied
    ASSERT_EQ(rig.flash->copy_back(0, 8, oob, crcs), FlashStatus::kOk);
    EXPECT_EQ(rig.flash->copy_back(0, 8, oob, crcs), FlashStatus::kRefused) << "programmed already";
    testing::Page to;
    PageOob back{};
    std::uint32_t read[8] = {};
    ASSERT_EQ(rig.flash->read_page(8, 0, 8, to.data(), read, back), FlashStatus::kOk);
    EXPECT_EQ(to, page_of(5));
    EXPECT_EQ(back.unit_serial, 77u);
    EXPECT_EQ(back.sector_crc[2], kept) << "the copy must keep the checksum that shows the damage";
    EXPECT_EQ(std::memcmp(crcs, read, sizeof crcs), 0) << "the checksums must be those of the copied data";
    EXPECT_NE(crcs[2], kept);
}

TEST_P(FlashRules, ASyncEndsOnceWhileProgramsAndReadsContinue) {
    Rig rig(GetParam());
    EXPECT_EQ(rig.flash->sync_poll(), SyncState::kIdle) << "none was begun";
    std::uint32_t next = 0;
    std::uint64_t polls = 0;
    for (const SyncLevel level : {SyncLevel::kKill, SyncLevel::kPower, SyncLevel::kPower, SyncLevel::kKill}) {
        ASSERT_EQ(program(*rig.flash, next, next), FlashStatus::kOk);
        ++next;
        ASSERT_EQ(rig.flash->sync_begin(level), FlashStatus::kOk);
        ASSERT_EQ(program(*rig.flash, next, next), FlashStatus::kOk) << "meanwhile";
        ++next;
        SyncState state = SyncState::kBusy;
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (state == SyncState::kBusy && std::chrono::steady_clock::now() < deadline) {
            state = rig.flash->sync_poll();
            ++polls;
            testing::Page to;
            std::uint32_t crcs[8];
            ASSERT_EQ(rig.flash->read(next - 1, 0, 8, to.data(), crcs), FlashStatus::kOk);
            ASSERT_EQ(to, page_of(next - 1));
        }
        EXPECT_EQ(state, SyncState::kDone);
        EXPECT_EQ(rig.flash->sync_poll(), SyncState::kIdle) << "told once";
        EXPECT_EQ(rig.flash->sync(level), FlashStatus::kOk);
    }
    EXPECT_GE(polls, 4u);
}

class KeptFlash : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Backbones, KeptFlash,
                         ::testing::Values(Kind::kTmpfs, Kind::kMapped, Kind::kRing, Kind::kPlain,
                                           Kind::kFaultyRing),
                         [](const auto& p) { return testing::name_of(p.param); });

TEST_P(KeptFlash, SyncedPagesSurviveTheEndOfTheProcessAndNoPageIsTorn) {
    Rig rig(GetParam());
    for (std::uint32_t p = 0; p < 5; ++p) ASSERT_EQ(program(*rig.flash, p, p + 1), FlashStatus::kOk);
    ASSERT_EQ(rig.flash->sync(SyncLevel::kKill), FlashStatus::kOk);
    ASSERT_EQ(program(*rig.flash, 5, 6), FlashStatus::kOk);
    ASSERT_EQ(program(*rig.flash, 8, 9), FlashStatus::kOk);
    rig.reopen();
    rig.flash = &rig.Backbone::flash();
    testing::Page to;
    std::uint32_t crcs[8];
    for (const std::uint32_t p : {0u, 1u, 2u, 3u, 4u, 5u, 8u}) {
        PageOob oob{};
        ASSERT_EQ(rig.flash->read_oob(p, oob), FlashStatus::kOk);
        if (oob.kind == PageKind::kErased) {
            EXPECT_GE(p, 5u) << "was stable";
            continue;
        }
        ASSERT_EQ(rig.flash->read(p, 0, 8, to.data(), crcs), FlashStatus::kOk);
        EXPECT_EQ(to, page_of(p + 1));
    }
    ASSERT_EQ(rig.flash->erase(0), FlashStatus::kOk);
    ASSERT_EQ(program(*rig.flash, 0, 100), FlashStatus::kOk);
    ASSERT_EQ(rig.flash->sync(), FlashStatus::kOk);
    rig.reopen();
    PageOob oob{};
    EXPECT_EQ(rig.Backbone::flash().read_page(0, 0, 8, to.data(), crcs, oob), FlashStatus::kOk);
    EXPECT_EQ(to, page_of(100));
    EXPECT_EQ(rig.Backbone::flash().read_oob(1, oob), FlashStatus::kOk);
    EXPECT_EQ(oob.kind, PageKind::kErased) << "and the erasure with it";
}

TEST_P(FlashRules, EachPartHasItsOwnUnitsAndRefusesThoseOfOthers) {
    // Units whose records fill whole pages of the store: what direct parts need.
    const FlashGeometry g{7, 64, 1, 1};
    Backbone rig(GetParam(), {.geometry = g, .capacity_bytes = 4096 * 64, .serial = ""});
    rig.divide(3);
    for (std::uint32_t part = 0; part < 3; ++part) {
        const UnitRange mine = UnitRange::of(g.units, part, 3);
        EXPECT_EQ(rig.flash(part).geometry().units, g.units) << "numbers are the drive's";
        for (std::uint32_t unit = 0; unit < g.units; ++unit) {
            const FlashStatus expected = mine.has(unit) ? FlashStatus::kOk : FlashStatus::kRefused;
            PageOob oob{};
            EXPECT_EQ(rig.flash(part).read_oob(unit * 64, oob), expected);
            EXPECT_EQ(program(rig.flash(part), unit * 64, unit), expected);
            EXPECT_EQ(rig.flash(part).erase(unit), expected);
            EXPECT_EQ(program(rig.flash(part), unit * 64, unit), expected);
        }
        EXPECT_EQ(rig.flash(part).sync(), FlashStatus::kOk);
    }
    if (rig.keeps()) rig.reopen();
    for (std::uint32_t unit = 0; unit < g.units && rig.keeps(); ++unit) {
        testing::Page to;
        std::uint32_t crcs[8];
        ASSERT_EQ(rig.flash().read(unit * 64, 0, 8, to.data(), crcs), FlashStatus::kOk);
        EXPECT_EQ(to, page_of(unit));
    }
}

TEST_P(FlashRules, RandomOperationsAgreeWithAPlainModelAcrossReopening) {
    const std::uint64_t seed = testing::seed_or(4242);
    SplitMix64 random(seed);
    Rig rig(GetParam());
    std::map<std::uint32_t, std::uint64_t> model;  // page -> seed of its contents
    std::vector<std::uint32_t> next(kSmall.units, 0);
    const bool slow = testing::is_direct(GetParam()) || GetParam() == Kind::kMapped;  // a disk
    const std::uint64_t steps = slow ? 2000 : 20000;
    std::uint64_t operations = 0;
    for (std::uint64_t i = 0; i < steps; ++i, ++operations) {
        const auto unit = static_cast<std::uint32_t>(random.below(kSmall.units));
        const std::uint64_t dice = random.below(1000);
        if (dice < 600) {
            const auto offset =
                random.below(4) == 0 ? static_cast<std::uint32_t>(random.below(8)) : next[unit];
            const std::uint32_t page = unit * 8 + offset;
            const bool legal = offset < 8 && offset == next[unit];
            if (offset >= 8) continue;
            const std::uint64_t contents = random.next();
            ASSERT_EQ(program(*rig.flash, page, contents) == FlashStatus::kOk, legal)
                << "seed " << seed << " step " << i;
            if (legal) {
                model[page] = contents;
                ++next[unit];
            }
        } else if (dice < 700) {
            ASSERT_EQ(rig.flash->erase(unit), FlashStatus::kOk);
            next[unit] = 0;
            for (std::uint32_t o = 0; o < 8; ++o) model.erase(unit * 8 + o);
        } else if (dice < 960) {
            const auto page = static_cast<std::uint32_t>(random.below(kSmall.pages()));
            // Announced or not, itself or others, a page reads the same.
            for (std::uint64_t n = random.below(4); n > 0; --n)
                rig.flash->prefetch_data(static_cast<std::uint32_t>(random.below(kSmall.pages())), 0);
            if (random.below(2) == 0) rig.flash->prefetch_data(page, 3);
            testing::Page to;
            std::uint32_t crcs[8];
            const auto known = model.find(page);
            ASSERT_EQ(rig.flash->read(page, 0, 8, to.data(), crcs) == FlashStatus::kOk, known != model.end());
            if (known != model.end()) {
                ASSERT_EQ(to, page_of(known->second)) << "seed " << seed << " step " << i;
            }
        } else if (dice < 990) {
            if (rig.flash->sync_poll() != SyncState::kBusy) {
                ASSERT_EQ(rig.flash->sync_begin(SyncLevel::kKill), FlashStatus::kOk);
            }
        } else if (rig.keeps()) {
            ASSERT_EQ(rig.flash->sync(SyncLevel::kKill), FlashStatus::kOk);
            rig.reopen();
            rig.flash = &rig.Backbone::flash();
        }
    }
    std::printf("flash model, %s: %llu operations, seed %llu\n", testing::name_of(GetParam()).c_str(),
                static_cast<unsigned long long>(operations), static_cast<unsigned long long>(seed));
    std::printf("GN_COUNT ssd_flash_model_operations=%llu\n", static_cast<unsigned long long>(operations));
    EXPECT_GE(operations, steps * 3 / 4);
}

}  // namespace
}  // namespace gnstor::ssd
