// Tables of any size are where their vector says, and large ones begin where a large page does.
#include "base/large_pages.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gnstor {
namespace {

struct alignas(64) Line {
    std::uint64_t words[8] = {};
};

TEST(LargePages, TablesOfEverySizeHoldWhatIsStoredAndAreAligned) {
    for (const std::size_t lines : {1u, 63u, 32'767u, 32'768u, 32'769u, 200'000u}) {
        std::vector<Line, LargePages<Line>> table(lines);
        const auto at = reinterpret_cast<std::uintptr_t>(table.data());
        EXPECT_EQ(at % 64, 0u) << lines;
        if (lines * sizeof(Line) >= kLargePageBytes) {
            EXPECT_EQ(at % kLargePageBytes, 0u) << lines;
        }
        for (std::size_t i = 0; i < lines; ++i) {
            ASSERT_EQ(table[i].words[7], 0u) << "a new table is all zeroes";
            table[i].words[i % 8] = i;
        }
        table.resize(lines + 1);
        for (std::size_t i = 0; i < lines; ++i) ASSERT_EQ(table[i].words[i % 8], i);
        const auto copy = table;
        EXPECT_EQ(copy[lines - 1].words[(lines - 1) % 8], lines - 1);
    }
}

TEST(LargePages, AdviceIsTakenOfAnyRange) {
    std::vector<char> memory(3 * kLargePageBytes, 'x');
    advise_large_pages(memory.data() + 1, 0);
    advise_large_pages(memory.data() + 1, 10);
    advise_large_pages(memory.data() + 1, memory.size() - 1);
    for (const char c : memory) ASSERT_EQ(c, 'x');
}

}  // namespace
}  // namespace gnstor
