// Every record of a page is there twice: damage of one copy costs nothing, on any backbone; and what a power
// cut leaves of both, sector by sector, is what it could have left of one.
#include <gnstor/base/crc32c.hpp>

#include "backbones.hpp"
#include "older_store.hpp"
#include "ssd/flash/record_copies.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <vector>

namespace gnstor::ssd::record_copies_test {

using deengine::FlashStatus;
using deengine::PageKind;
using deengine::PageNumber;
using deengine::PageOob;
using testing::Backbone;
using testing::Kind;
using testing::oob_of;
using testing::page_of;

constexpr std::uint32_t kUnits = 6, kPerUnit = 64, kPages = kUnits * kPerUnit;

NewStore small() {
    return {.geometry = {kUnits, kPerUnit}, .capacity_bytes = 4096, .metadata_bytes = 4096, .serial = ""};
}

Superblock superblock_of(const std::filesystem::path& path) {
    Superblock s{};
    std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&s), sizeof s);
    return s;
}

std::vector<char> bytes_of(const std::filesystem::path& path) {
    std::vector<char> bytes(std::filesystem::file_size(path));
    std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return bytes;
}

/// In place: a file that is open, or mapped, stays the one that it is.
void put_bytes(const std::filesystem::path& path, const std::vector<char>& bytes) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

class RecordCopies : public ::testing::TestWithParam<Kind> {};

/// Programs the first pages, and synchronizes them. Each has its number + 1 as sequence.
void program_first(Backbone& b, std::uint32_t pages) {
    for (std::uint32_t p = 0; p < pages; ++p) {
        PageOob oob = oob_of(3, p, p + 1);
        ASSERT_EQ(b.flash().program(p, page_of(p).data(), oob), FlashStatus::kOk);
    }
    ASSERT_EQ(b.flash().sync(), FlashStatus::kOk);
}

TEST_P(RecordCopies, OneDamagedCopyOfEachRecordLosesNothingAndIsRepaired) {
    const std::uint64_t seed = testing::seed_or(1);
    SplitMix64 random(seed);
    Backbone b(GetParam(), small());
    for (std::uint32_t p = 0; p < kPages; p += 1) {
        if (p % kPerUnit >= kPerUnit - p / kPerUnit) continue;  // units that are full to different degrees
        PageOob oob = oob_of(3, p, p + 1);
        ASSERT_EQ(b.flash().program(p, page_of(p).data(), oob), FlashStatus::kOk);
    }
    ASSERT_EQ(b.flash().sync(), FlashStatus::kOk);
    std::vector<char> before = bytes_of(b.path());
    b.reopen();
    const Superblock s = superblock_of(b.path());
    std::vector<char> damaged = before;
    for (std::uint32_t p = 0; p < kPages; ++p) {
        if (p % kPerUnit >= kPerUnit - p / kPerUnit) continue;
        const std::uint64_t area = random.below(2) == 0 ? s.oob_offset : s.record_copies_offset();
        const std::uint64_t at = area + std::uint64_t{p} * sizeof(PageOob);
        if (random.below(8) == 0)
            std::fill_n(damaged.begin() + static_cast<std::ptrdiff_t>(at), sizeof(PageOob), '\0');
        else
            damaged[at + random.below(sizeof(PageOob))] ^= static_cast<char>(1 << random.below(8));
    }
    put_bytes(b.path(), damaged);
    b.reopen();
    for (std::uint32_t p = 0; p < kPages; ++p) {
        PageOob oob{};
        ASSERT_EQ(b.flash().read_oob(p, oob), FlashStatus::kOk) << "page " << p << ", seed " << seed;
        const bool programmed = p % kPerUnit < kPerUnit - p / kPerUnit;
        ASSERT_EQ(oob.kind, programmed ? PageKind::kData : PageKind::kErased) << "page " << p;
        if (programmed) {
            ASSERT_EQ(oob.sequence, p + 1);
        }
    }
    ASSERT_EQ(b.flash().sync(), FlashStatus::kOk);
    const std::vector<char> after = bytes_of(b.path());
    const auto records = [&](const std::vector<char>& of) {
        return std::vector<char>(of.begin() + static_cast<std::ptrdiff_t>(s.oob_offset),
                                 of.begin() + static_cast<std::ptrdiff_t>(s.data_offset));
    };
    EXPECT_TRUE(records(after) == records(before)) << "both copies are as they were";
}

/// Each sector of records is that of the neighbour, undamaged: of one copy, here or there, or of both.
TEST_P(RecordCopies, RecordsOfOtherPagesAreDamagedAndNeverTakenForAPagesOwn) {
    constexpr std::uint32_t kSectorRecords = 512 / sizeof(PageOob);
    for (const bool both : {false, true}) {
        Backbone b(GetParam(), small());
        ASSERT_NO_FATAL_FAILURE(program_first(b, 48));
        b.reopen();
        const Superblock s = superblock_of(b.path());
        std::vector<char> damaged = bytes_of(b.path());
        for (std::uint32_t p = kSectorRecords; p < 48; p += 2 * kSectorRecords) {
            const bool second = p % 3 == 0;
            for (const std::uint64_t area : {s.oob_offset, s.record_copies_offset()}) {
                if (!both && (area == s.oob_offset) == second) continue;
                const auto at = damaged.begin() + static_cast<std::ptrdiff_t>(area + p * sizeof(PageOob));
                std::copy_n(at - 512, 512, at);
            }
        }
        put_bytes(b.path(), damaged);
        b.reopen();
        for (std::uint32_t p = 0; p < 48; ++p) {
            const bool hit = p / kSectorRecords % 2 == 1;
            PageOob oob{};
            const FlashStatus status = b.flash().read_oob(p, oob);
            ASSERT_EQ(status, both && hit ? FlashStatus::kUncorrectable : FlashStatus::kOk) << "page " << p;
            if (status == FlashStatus::kOk) {
                ASSERT_EQ(oob.sequence, p + 1);
            }
        }
    }
}

/// Both copies of a unit's records, and its data, come from another store of the same geometry and the same
/// serials, as where a medium returns the blocks of another store.
TEST_P(RecordCopies, PagesOfAnotherStoreAtTheSamePlaceAreDamaged) {
    Backbone b(GetParam(), small()), other(GetParam(), small());
    ASSERT_NO_FATAL_FAILURE(program_first(b, 48));
    ASSERT_NO_FATAL_FAILURE(program_first(other, 48));
    b.reopen();
    const Superblock s = superblock_of(b.path());
    std::vector<char> damaged = bytes_of(b.path());
    const std::vector<char> foreign = bytes_of(other.path());
    for (std::uint32_t p = 16; p < 32; ++p) {
        const auto put = [&](std::uint64_t at, std::size_t bytes) {
            const auto from = static_cast<std::ptrdiff_t>(at);
            std::copy_n(foreign.begin() + from, bytes, damaged.begin() + from);
        };
        put(s.oob_offset + p * sizeof(PageOob), sizeof(PageOob));
        put(s.record_copies_offset() + p * sizeof(PageOob), sizeof(PageOob));
        put(s.data_offset + std::uint64_t{p} * nvme::kBlockBytes, nvme::kBlockBytes);
    }
    put_bytes(b.path(), damaged);
    b.reopen();
    for (std::uint32_t p = 0; p < 48; ++p) {
        PageOob oob{};
        ASSERT_EQ(b.flash().read_oob(p, oob),
                  p >= 16 && p < 32 ? FlashStatus::kUncorrectable : FlashStatus::kOk)
            << "page " << p;
    }
}

/// A store of version 4 keeps its version: its records are written as it began, without the drive's UUID.
TEST_P(RecordCopies, AStoreOfVersion4IsUsedAsItIs) {
    Backbone b(GetParam(), small());
    ASSERT_EQ(superblock_of(b.path()).format_version, 5u);
    ASSERT_TRUE(testing::make_version_4(b.path()));
    b.reopen();
    ASSERT_NO_FATAL_FAILURE(program_first(b, 48));
    b.reopen();
    for (std::uint32_t p = 0; p < 48; ++p) {
        PageOob oob{};
        ASSERT_EQ(b.flash().read_oob(p, oob), FlashStatus::kOk) << "page " << p;
        EXPECT_EQ(oob.sequence, p + 1);
        EXPECT_EQ(oob.crc, record_crc(oob, p, DriveSeed{}));
    }
}

/// docs/store-format.md, "Records and pages": whatever way it is computed.
TEST(RecordChecksum, CoversTheDrivesUuidThePageNumberAndTheRecord) {
    SplitMix64 random(testing::seed_or(1));
    for (int i = 0; i < 100; ++i) {
        PageOob oob = oob_of(3, static_cast<std::uint32_t>(random.next()), random.next());
        const auto page = static_cast<PageNumber>(random.next());
        Superblock s{};
        for (std::uint8_t& byte : s.drive_uuid) byte = static_cast<std::uint8_t>(random.next());
        const auto expected = [&](std::uint32_t before) {
            return crc32c_portable(&oob, offsetof(PageOob, crc), crc32c_portable(&page, sizeof page, before));
        };
        s.format_version = 5;
        EXPECT_EQ(record_crc(oob, page, seed_of(s)), expected(crc32c_portable(s.drive_uuid, 16)));
        s.format_version = 4;
        EXPECT_EQ(record_crc(oob, page, seed_of(s)), expected(0)) << "stores of version 4 lack the UUID";
    }
}

/// Neither is the page's record, and a check names the contradiction as long as both are there.
TEST_P(RecordCopies, ContradictingCopiesAreADamagedRecordAndAreNotChanged) {
    Backbone b(GetParam(), small());
    ASSERT_NO_FATAL_FAILURE(program_first(b, kPerUnit));
    b.reopen();
    const Superblock s = superblock_of(b.path());
    std::vector<char> damaged = bytes_of(b.path());
    constexpr PageNumber kPage = 20;
    const std::uint64_t at = s.record_copies_offset() + kPage * sizeof(PageOob);
    PageOob other{};
    std::memcpy(&other, damaged.data() + at, sizeof other);
    other.sequence += 7;
    other.crc = record_crc(other, kPage, seed_of(s));
    std::memcpy(damaged.data() + at, &other, sizeof other);
    put_bytes(b.path(), damaged);
    for (int opening = 0; opening < 2; ++opening) {
        b.reopen();
        for (int look = 0; look < 2; ++look) {
            for (PageNumber p = 0; p < kPerUnit; ++p) {
                PageOob oob{};
                ASSERT_EQ(b.flash().read_oob(p, oob),
                          p == kPage ? FlashStatus::kUncorrectable : FlashStatus::kOk)
                    << "page " << p;
            }
            PageOob oob = oob_of(3, 1, 100);
            const PageNumber next = kPerUnit * (1 + 2 * opening + look);
            ASSERT_EQ(b.flash().program(next, page_of(1).data(), oob), FlashStatus::kOk);
            ASSERT_EQ(b.flash().sync(), FlashStatus::kOk);
        }
        const std::vector<char> after = bytes_of(b.path());
        const auto same = [&](std::uint64_t area) {
            const auto from = static_cast<std::ptrdiff_t>(area);
            return std::equal(after.begin() + from, after.begin() + from + kPerUnit * sizeof(PageOob),
                              damaged.begin() + from);
        };
        EXPECT_TRUE(same(s.oob_offset) && same(s.record_copies_offset())) << "both are as they were";
    }
    ASSERT_EQ(b.flash().erase(0), FlashStatus::kOk);
    PageOob oob = oob_of(3, kPage, 200);
    for (PageNumber p = 0; p <= kPage; ++p)
        ASSERT_EQ(b.flash().program(p, page_of(p).data(), oob), FlashStatus::kOk);
    EXPECT_EQ(b.flash().read_oob(kPage, oob), FlashStatus::kOk) << "erased, the page is as good as another";
}

INSTANTIATE_TEST_SUITE_P(Stores, RecordCopies,
                         ::testing::Values(Kind::kTmpfs, Kind::kMapped, Kind::kRing, Kind::kPlain),
                         [](const auto& kind) { return testing::name_of(kind.param); });

/// What was found while the drive runs, too: a mapped file whose page is read again from the medium.
TEST(RecordCopiesOfAMappedFile, ACopyThatBecomesCorruptWhileTheStoreIsOpenIsRepairedFromTheOther) {
    Backbone b(Kind::kTmpfs, small());
    PageOob oob = oob_of(3, 7, 1);
    ASSERT_EQ(b.flash().program(0, page_of(1).data(), oob), FlashStatus::kOk);
    const Superblock s = superblock_of(b.path());
    for (const bool zeroes : {false, true}) {
        std::fstream file(b.path(), std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(s.oob_offset + 8));
        if (!zeroes) file.put('\x5A');
        file.seekp(static_cast<std::streamoff>(s.oob_offset));
        if (zeroes) file.write(std::vector<char>(64, '\0').data(), 64);
        file.flush();
        PageOob found{};
        ASSERT_EQ(b.flash().read_oob(0, found), FlashStatus::kOk);
        EXPECT_EQ(found.sequence, 1u);
        EXPECT_EQ(found.crc, oob.crc);
    }
}

/// Sectors of 512 bytes of both areas, each as of any moment since the last sync: each page's record is then
/// one that was its own since, or none; what a sync covered and nothing erased is there; and a second look
/// says the same.
TEST(RecordCopiesAfterACut, EachRecordIsOneThatItsPageHadSinceTheLastSync) {
    const std::uint64_t base = testing::seed_or(1);
    std::uint64_t cuts = 0, stale = 0, halves = 0;
    for (std::uint64_t seed = base; seed < base + 150 && !::testing::Test::HasFailure(); ++seed) {
        SplitMix64 random(seed);
        Backbone b(Kind::kTmpfs, small());
        const Superblock s = superblock_of(b.path());
        const std::uint64_t areas[] = {s.oob_offset, s.record_copies_offset()};
        constexpr std::size_t kSector = 512;
        const std::size_t sectors = kPages * sizeof(PageOob) / kSector;
        using Area = std::vector<char>;
        // Snapshots of both areas at every step since the last sync.
        std::vector<std::array<Area, 2>> since;
        const auto snapshot = [&] {
            const std::vector<char> now = bytes_of(b.path());
            std::array<Area, 2> both;
            for (std::size_t i = 0; i < 2; ++i)
                both[i].assign(
                    now.begin() + static_cast<std::ptrdiff_t>(areas[i]),
                    now.begin() + static_cast<std::ptrdiff_t>(areas[i] + kPages * sizeof(PageOob)));
            since.push_back(std::move(both));
        };
        std::vector<std::uint32_t> next(kUnits), serial(kUnits, 0);
        std::uint32_t opened = 0;
        std::uint64_t sequence = 0;
        for (std::uint64_t syncs = 0; syncs < 3; ++syncs) {
            since.clear();
            snapshot();
            for (std::uint64_t steps = 1 + random.below(40); steps > 0; --steps) {
                const auto unit = static_cast<std::uint32_t>(random.below(2));
                if (next[unit] == 10 || (next[unit] > 0 && random.below(12) == 0)) {
                    ASSERT_EQ(b.flash().erase(unit), FlashStatus::kOk);
                    next[unit] = 0;
                } else {
                    if (next[unit] == 0) serial[unit] = ++opened;
                    PageOob oob = oob_of(1, next[unit], ++sequence);
                    oob.unit_serial = serial[unit];
                    ASSERT_EQ(b.flash().program(unit * kPerUnit + next[unit]++, page_of(1).data(), oob),
                              FlashStatus::kOk);
                }
                snapshot();
            }
        }
        // The cut: each sector of each area as of a moment of its own.
        std::vector<char> image = bytes_of(b.path());
        for (std::size_t i = 0; i < 2; ++i)
            for (std::size_t k = 0; k < sectors; ++k) {
                const Area& then = since[random.below(since.size())][i];
                std::copy_n(then.begin() + static_cast<std::ptrdiff_t>(k * kSector), kSector,
                            image.begin() + static_cast<std::ptrdiff_t>(areas[i] + k * kSector));
            }
        put_bytes(b.path(), image);
        b.reopen();
        ++cuts;
        std::vector<PageOob> seen(kPages);
        for (std::uint32_t p = 0; p < 2 * kPerUnit; ++p) {
            PageOob& oob = seen[p];
            const FlashStatus status = b.flash().read_oob(p, oob);
            const auto had = [&](const PageOob& record) {
                return std::any_of(since.begin(), since.end(), [&](const auto& both) {
                    return std::memcmp(both[0].data() + p * sizeof record, &record, sizeof record) == 0;
                });
            };
            bool always = true;  // a whole record at each moment since, and the same
            for (const auto& both : since)
                always = always &&
                         std::memcmp(both[0].data() + p * sizeof(PageOob),
                                     since.front()[0].data() + p * sizeof(PageOob), sizeof(PageOob)) == 0;
            PageOob first{};
            std::memcpy(&first, since.front()[0].data() + p * sizeof first, sizeof first);
            if (status == FlashStatus::kOk && oob.kind != PageKind::kErased) {
                ASSERT_TRUE(had(oob)) << "page " << p << " seed " << seed;
                stale += !is_erased(first) && !always && oob.crc == first.crc ? 1 : 0;
            } else {
                ASSERT_TRUE(had(PageOob{})) << "page " << p << " seed " << seed;
            }
            if (always && !is_erased(first)) {
                ASSERT_EQ(status, FlashStatus::kOk) << "page " << p << " seed " << seed;
                ASSERT_EQ(oob.crc, first.crc) << "page " << p << " seed " << seed;
            }
            const char* one = image.data() + areas[0] + p * sizeof oob;
            const char* two = image.data() + areas[1] + p * sizeof oob;
            halves += std::memcmp(one, two, sizeof oob) != 0 ? 1 : 0;
        }
        // What was mended counts at the next look, too.
        b.reopen();
        for (std::uint32_t p = 0; p < 2 * kPerUnit; ++p) {
            PageOob again{};
            (void)b.flash().read_oob(p, again);
            ASSERT_EQ(again.crc, seen[p].crc) << "page " << p << " seed " << seed;
        }
    }
    std::printf(
        "record copies: %llu cuts, %llu pages whose copies differed, %llu older records kept, seed %llu\n",
        static_cast<unsigned long long>(cuts), static_cast<unsigned long long>(halves),
        static_cast<unsigned long long>(stale), static_cast<unsigned long long>(base));
    std::printf("GN_COUNT ssd_record_copy_cuts=%llu\n", static_cast<unsigned long long>(cuts));
    EXPECT_GE(halves, 500u);
    EXPECT_GE(stale, 50u);
}

TEST(RecordCopiesRule, AnIntactCopyCountsAndOfTwoTheOneOfTheLaterOpening) {
    const auto sealed = [](std::uint32_t serial, PageNumber page, DriveSeed drive) {
        PageOob oob = oob_of(1, 2, 3);
        oob.unit_serial = serial;
        oob.crc = record_crc(oob, page, drive);
        return oob;
    };
    constexpr PageNumber kPage = 77;
    constexpr DriveSeed kDrive{0xC0FFEE}, kOtherDrive{0x0DDBA11};
    const PageOob older = sealed(4, kPage, kDrive), newer = sealed(5, kPage, kDrive),
                  neighbour = sealed(6, kPage - 8, kDrive), foreign = sealed(6, kPage, kOtherDrive), erased{};
    PageOob rotten = newer;
    rotten.sequence ^= 1;
    struct Case {
        PageOob first, second, counts;
        bool is_rotten;
    } const cases[] = {
        {older, newer, newer, false},    {newer, older, newer, false},    {newer, erased, newer, false},
        {erased, newer, newer, false},   {rotten, older, older, true},    {older, rotten, older, true},
        {rotten, erased, rotten, false}, {erased, rotten, rotten, false}, {erased, erased, erased, false},
        {newer, newer, newer, false},    {neighbour, older, older, true}, {older, neighbour, older, true},
        {foreign, older, older, true},   {older, foreign, older, true},
    };
    for (const Case& c : cases) {
        const auto found = compare_records(reinterpret_cast<const std::byte*>(&c.first),
                                           reinterpret_cast<const std::byte*>(&c.second), kPage, kDrive);
        EXPECT_EQ(std::memcmp(&found.counts, &c.counts, sizeof c.counts), 0) << &c - cases;
        EXPECT_EQ(found.rotten, c.is_rotten) << &c - cases;
        EXPECT_EQ(found.equal, std::memcmp(&c.first, &c.second, sizeof c.first) == 0) << &c - cases;
        EXPECT_FALSE(found.contradict) << &c - cases;
    }
    PageOob other = newer;
    other.sequence += 1;
    other.crc = record_crc(other, kPage, kDrive);
    const auto found = compare_records(reinterpret_cast<const std::byte*>(&newer),
                                       reinterpret_cast<const std::byte*>(&other), kPage, kDrive);
    EXPECT_TRUE(found.contradict);
    EXPECT_FALSE(is_whole(found.counts, kPage, kDrive)) << "neither can be proved";
    EXPECT_FALSE(is_erased(found.counts)) << "and the page is not one that was never written";
}

}  // namespace gnstor::ssd::record_copies_test
