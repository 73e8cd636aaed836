// NAND's rules hold for both backbones: in order, once per erase, whole pages, write pointers found again
// from the records.
#include <gnstor/base/crc32c.hpp>

#include "scratch.hpp"
#include "ssd/file_store.hpp"
#include "ssd/memory_flash.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <vector>

namespace gnstor::ssd {
namespace {

using deengine::FlashGeometry;
using deengine::FlashStatus;
using deengine::PageKind;
using deengine::PageOob;
using testing::oob_of;
using testing::page_of;

constexpr FlashGeometry kSmall{6, 8};

struct Rig {
    testing::Scratch scratch;
    std::unique_ptr<FlashArray> flash;
    explicit Rig(bool file) {
        if (file) {
            flash = FileStore::create(scratch / "s",
                                      {.geometry = kSmall, .capacity_bytes = 4096 * 40, .serial = ""})
                        .value();
        } else {
            flash = MemoryFlash::create(kSmall).value();
        }
    }
};

class FlashRules : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Backbones, FlashRules, ::testing::Values(false, true),
                         [](const auto& p) { return p.param ? "File" : "Memory"; });

FlashStatus program(deengine::Flash& flash, std::uint32_t page, std::uint64_t seed) {
    const testing::Page data = page_of(seed);
    PageOob oob = oob_of(1, page, seed);
    return flash.program(page, data.data(), oob);
}

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

TEST_P(FlashRules, AProgramGivesTheChecksumsOfWhatItStoredAndReadsGiveThemBack) {
    Rig rig(GetParam());
    const testing::Page data = page_of(77);
    PageOob oob = oob_of(9, 123, 456);
    ASSERT_EQ(rig.flash->program(0, data.data(), oob), FlashStatus::kOk);
    for (std::uint32_t s = 0; s < 8; ++s) EXPECT_EQ(oob.sector_crc[s], crc32c(data.data() + s * 512, 512));
    EXPECT_EQ(oob.crc, crc32c(&oob, 60));
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

TEST_P(FlashRules, ATombstoneHasARecordAndNoChecksums) {
    Rig rig(GetParam());
    PageOob oob = oob_of(3, 4, 5, PageKind::kTombstone);
    oob.sector_crc[3] = 99;
    ASSERT_EQ(rig.flash->program(0, nullptr, oob), FlashStatus::kOk);
    PageOob back{};
    ASSERT_EQ(rig.flash->read_oob(0, back), FlashStatus::kOk);
    EXPECT_EQ(back.kind, PageKind::kTombstone);
    for (const std::uint32_t crc : back.sector_crc) EXPECT_EQ(crc, 0u);
}

TEST_P(FlashRules, ReadPageGivesRecordAndDataInOneCall) {
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

TEST(MemoryFlash, ADriveOf16GiBCostsNothingUntilItIsWritten) {
    const auto resident_kib = [] {
        long pages = 0;
        if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
            if (std::fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
            std::fclose(f);
        }
        return pages * (::sysconf(_SC_PAGESIZE) / 1024);
    };
    const long before = resident_kib();
    const auto flash = MemoryFlash::create({4096, 1024}).value();
    EXPECT_LT(resident_kib() - before, 4096) << "KiB";
    ASSERT_EQ(program(*flash, 4095u * 1024u, 1), FlashStatus::kOk);
    EXPECT_LT(resident_kib() - before, 8192) << "KiB";
}

TEST(FlashRulesModel, RandomOperationsAgreeWithAPlainModelAcrossReopening) {
    const std::uint64_t seed = testing::seed_or(4242);
    SplitMix64 random(seed);
    testing::Scratch scratch;
    const auto path = scratch / "s";
    auto flash =
        FileStore::create(path, {.geometry = kSmall, .capacity_bytes = 4096 * 40, .serial = ""}).value();
    std::map<std::uint32_t, std::uint64_t> model;  // page -> seed of its contents
    std::vector<std::uint32_t> next(kSmall.units, 0);
    std::uint64_t operations = 0;
    for (int i = 0; i < 20000; ++i, ++operations) {
        const auto unit = static_cast<std::uint32_t>(random.below(kSmall.units));
        const std::uint64_t dice = random.below(100);
        if (dice < 60) {
            const auto offset =
                random.below(4) == 0 ? static_cast<std::uint32_t>(random.below(8)) : next[unit];
            const std::uint32_t page = unit * 8 + offset;
            const bool legal = offset < 8 && offset == next[unit];
            if (offset >= 8) continue;
            const std::uint64_t contents = random.next();
            ASSERT_EQ(program(*flash, page, contents) == FlashStatus::kOk, legal)
                << "seed " << seed << " step " << i;
            if (legal) {
                model[page] = contents;
                ++next[unit];
            }
        } else if (dice < 70) {
            ASSERT_EQ(flash->erase(unit), FlashStatus::kOk);
            next[unit] = 0;
            for (std::uint32_t o = 0; o < 8; ++o) model.erase(unit * 8 + o);
        } else if (dice < 99) {
            const auto page = static_cast<std::uint32_t>(random.below(kSmall.pages()));
            testing::Page to;
            std::uint32_t crcs[8];
            const auto known = model.find(page);
            ASSERT_EQ(flash->read(page, 0, 8, to.data(), crcs) == FlashStatus::kOk, known != model.end());
            if (known != model.end()) {
                ASSERT_EQ(to, page_of(known->second)) << "seed " << seed << " step " << i;
            }
        } else {
            flash.reset();
            flash = FileStore::open(path).value();
        }
    }
    std::printf("flash model: %llu operations, seed %llu (floor 15000)\n",
                static_cast<unsigned long long>(operations), static_cast<unsigned long long>(seed));
    std::printf("GN_COUNT ssd_flash_model_operations=%llu\n", static_cast<unsigned long long>(operations));
    EXPECT_GE(operations, 15000u);
}

}  // namespace
}  // namespace gnstor::ssd
