// pinned_range_test.cpp: memory that grows in place: parts behind each other, zeroed, at the addresses
// reserved.
#include <gnstor/simt/pinned_range.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

namespace gnstor::simt {
namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;

TEST(PinnedRange, PartsAreConsecutiveAndZeroed) {
    std::size_t parts = 0;
    for (const bool huge : {false, true})
        for (const std::size_t part : {std::size_t{256} << 10, kHuge, 2 * kHuge}) {
            auto range = PinnedRange::reserve(4 * part, LanesKind::kCpu, {.huge_pages = huge}).value();
            for (std::size_t i = 0; i < 4; ++i, ++parts) {
                std::byte* const at = range.extend(part).value();
                ASSERT_EQ(at, range.data() + i * part);
                ASSERT_EQ(range.size(), (i + 1) * part);
                ASSERT_TRUE(std::all_of(at, at + part, [](std::byte b) { return b == std::byte{0}; }));
                std::memset(at, 0x5A, part);
            }
            EXPECT_FALSE(range.extend(part).ok()) << "there are no more addresses";
            const PinnedRange moved = std::move(range);
            EXPECT_EQ(moved.data()[4 * part - 1], std::byte{0x5A});
        }
    std::printf("  %zu parts\n", parts);
}

TEST(PinnedRange, IsAlignedForHugePagesIfRequested) {
    for (std::size_t i = 1; i <= 16; ++i) {
        const auto range =
            PinnedRange::reserve(i * 4096 + kHuge, LanesKind::kCpu, {.huge_pages = true}).value();
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(range.data()) % kHuge, 0u);
    }
}

TEST(PinnedRange, WrongSizesAreRefused) {
    EXPECT_FALSE(PinnedRange::reserve(0, LanesKind::kCpu).ok());
    EXPECT_FALSE(PinnedRange::reserve(std::size_t{1} << 50, LanesKind::kCpu).ok());
    auto range = PinnedRange::reserve(8192, LanesKind::kCpu).value();
    EXPECT_FALSE(range.extend(0).ok());
    EXPECT_FALSE(range.extend(100).ok());
    EXPECT_FALSE(range.extend(12288).ok());
    EXPECT_TRUE(range.extend(8192).ok());
}

}  // namespace
}  // namespace gnstor::simt
