// What a drive in memory occupies: nothing before it is written, its units when they are opened, few ahead of
// that, and no more after any number of erasures.
#include "backbones.hpp"
#include "base/large_pages.hpp"
#include "ssd/flash/memory/memory_flash.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace gnstor::ssd {
namespace {

using deengine::FlashStatus;
using deengine::PageOob;
using testing::program;

constexpr std::uint32_t kPages = 1024;  ///< of a unit: 4 MiB

/// Of [at, at + bytes), which begins and ends with a page.
std::size_t resident_bytes(const std::byte* at, std::size_t bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> there(bytes / page);
    if (::mincore(const_cast<std::byte*>(at), bytes, there.data()) != 0) return ~std::size_t{0};
    return page * static_cast<std::size_t>(
                      std::ranges::count_if(there, [](unsigned char c) { return (c & 1) != 0; }));
}
bool is_resident(const std::byte* at, std::size_t bytes) {
    return resident_bytes(at, bytes) == bytes;
}

/// Of this process. Under a sanitizer its shadow memory too, which says nothing about a drive.
long resident_pages() {
    long pages = 0;
    if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
        if (std::fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
        std::fclose(f);
    }
    return pages;
}

struct Pages {
    explicit Pages(std::uint32_t units)
        : pages(MemoryPages::map({units, kPages}).value()), range(pages->add_range({0, units})) {}
    /// Waits for the helper: true when it has given so many units.
    bool given(std::uint32_t units) const {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (pages->units_given() < units && std::chrono::steady_clock::now() < deadline)
            std::this_thread::yield();
        return pages->units_given() >= units;
    }
    [[nodiscard]] bool resident(std::uint32_t unit) const {
        return is_resident(pages->data() + std::size_t{unit} * kPages * 4096, kPages * 4096);
    }
    std::shared_ptr<MemoryPages> pages;
    MemoryPages::Range& range;
};

TEST(MemoryPages, AUnitGetsAllItsMemoryPagesWhenItIsOpenedAndNoneBefore) {
    Pages p(64);
    EXPECT_EQ(p.pages->units_given(), 0u);
    EXPECT_FALSE(p.resident(0));
    ASSERT_TRUE(p.pages->open_unit(p.range, 0));
    EXPECT_EQ(p.pages->units_given(), 1u);
    EXPECT_TRUE(p.resident(0));
    EXPECT_FALSE(p.resident(1)) << "one unit opened gives none ahead";
    EXPECT_TRUE(is_resident(p.pages->records(), kPages * sizeof(PageOob)));
}

TEST(MemoryPages, ADriveOf16GiBHasNoMemoryUntilItIsWrittenAndThenThatOfOneUnit) {
    constexpr std::uint32_t kUnits = 4096;
    constexpr std::size_t kUnitBytes = std::size_t{kPages} * 4096;
    Pages p(kUnits);
    const auto of_data = [&] { return resident_bytes(p.pages->data(), kUnits * kUnitBytes); };
    const auto of_records = [&] {
        return resident_bytes(p.pages->records(), std::size_t{kUnits} * kPages * sizeof(PageOob));
    };
    EXPECT_EQ(of_data(), 0u);
    EXPECT_EQ(of_records(), 0u);
    ASSERT_TRUE(p.pages->open_unit(p.range, kUnits - 1));
    EXPECT_EQ(of_data(), kUnitBytes);
    EXPECT_GE(of_records(), kPages * sizeof(PageOob));
    EXPECT_LE(of_records(), kLargePageBytes) << "a large page, where the kernel gives one";
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(MemoryFlash, ADriveOf16GiBTakesNoMemoryUntilItIsWritten) {
    constexpr long kMiB = 256;  // pages
    const long before = resident_pages();
    const auto flash = MemoryFlash::create({4096, 1024}).value();
    EXPECT_LT(resident_pages() - before, 4 * kMiB);
    ASSERT_EQ(program(*flash, 4095u * 1024u, 1), FlashStatus::kOk);
    EXPECT_LT(resident_pages() - before, 8 * kMiB) << "a unit and a large page of records";
}
#endif

TEST(MemoryPages, UnitsAllocatedAheadAreAtMostHalfOfThoseOpened) {
    constexpr std::uint32_t kUnits = 40;
    Pages p(kUnits);
    for (std::uint32_t opened = 1; opened <= kUnits; ++opened) {
        ASSERT_TRUE(p.pages->open_unit(p.range, opened - 1));
        ASSERT_TRUE(p.pages->open_unit(p.range, opened - 1)) << "asked for again";
        // As the machine may be short of memory, none ahead is also right.
        const std::uint32_t given = p.pages->units_given();
        EXPECT_GE(given, opened);
        EXPECT_LE(given, std::min(kUnits, opened + opened / 2));
    }
    ASSERT_TRUE(p.given(kUnits));
    EXPECT_EQ(p.pages->units_given(), kUnits);
}

TEST(MemoryPages, RangesOfSeveralThreadsStayWithinTheirOwn) {
    auto pages = MemoryPages::map({96, 64}).value();
    std::vector<MemoryPages::Range*> ranges;
    for (std::uint32_t i = 0; i < 3; ++i) ranges.push_back(&pages->add_range({i * 32, 32}));
    std::vector<std::thread> threads;
    std::atomic<std::uint32_t> failed{0};
    for (std::uint32_t i = 0; i < 3; ++i)
        threads.emplace_back([&, i] {
            for (std::uint32_t u = 0; u < 16; ++u)
                if (!pages->open_unit(*ranges[i], i * 32 + u)) ++failed;
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(failed, 0u);
    EXPECT_GE(pages->units_given(), 48u);
    EXPECT_LE(pages->units_given(), 72u);
}

TEST(MemoryPages, MemoryReservedAtTheStartIsResidentAndNoMore) {
    auto pages = MemoryPages::map({32, kPages}).value();
    ASSERT_TRUE(pages->give_first({8, 16}, (std::uint64_t{3} << 22) - 5));
    EXPECT_EQ(pages->units_given(), 3u);
    EXPECT_FALSE(is_resident(pages->data() + (std::size_t{7} << 22), 1u << 22));
    EXPECT_TRUE(is_resident(pages->data() + (std::size_t{8} << 22), 3u << 22));
    EXPECT_FALSE(is_resident(pages->data() + (std::size_t{11} << 22), 1u << 22));
    ASSERT_TRUE(pages->give_first({8, 16}, ~0ull));
    EXPECT_EQ(pages->units_given(), 16u) << "no more than the range has";
}

TEST(MemoryPages, MoreMemoryThanTheMachineHasIsRefusedBeforeAnyIsTaken) {
    struct sysinfo machine {};
    ASSERT_EQ(::sysinfo(&machine), 0);
    const std::uint64_t twice = 2 * std::uint64_t{machine.totalram} * machine.mem_unit;
    const auto units = static_cast<std::uint32_t>(twice / (kPages * 4096ull));
    auto pages = MemoryPages::map({units, kPages}).value();
    EXPECT_FALSE(pages->give_first({0, units}, twice));
    EXPECT_EQ(pages->units_given(), 0u);
    EXPECT_TRUE(pages->give_first({0, units}, 1)) << "a little is there";
}

TEST(MemoryFlash, KeepsItsPagesWhenAUnitIsErasedAndReadsThemAsErased) {
    constexpr std::uint32_t kUnits = 4;
    auto flash = MemoryFlash::create({kUnits, kPages}).value();
    const auto write_all = [&](std::uint64_t round) {
        for (std::uint32_t u = 0; u < kUnits; ++u)
            for (std::uint32_t i = 0; i < kPages; ++i)
                if (program(*flash, u * kPages + i, round + i) != FlashStatus::kOk) return false;
        return true;
    };
    ASSERT_TRUE(write_all(1));
    const long before = resident_pages();
    for (std::uint64_t round = 2; round < 5; ++round) {
        for (std::uint32_t u = 0; u < kUnits; ++u) {
            ASSERT_EQ(flash->erase(u), FlashStatus::kOk);
            PageOob oob{};
            ASSERT_EQ(flash->read_oob(u * kPages + 5, oob), FlashStatus::kOk);
            EXPECT_EQ(oob.kind, deengine::PageKind::kErased);
        }
        ASSERT_TRUE(write_all(round));
        EXPECT_LT(std::labs(resident_pages() - before), long{kPages} / 2) << "neither given back nor more";
    }
}

}  // namespace
}  // namespace gnstor::ssd
