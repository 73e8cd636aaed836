// contents_test.cpp: reads of a benchmark are checked by contents that no other block, volume or generation
// has.
#include "bench/contents.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace gnstor::bench {
namespace {

constexpr std::uint32_t kBytes = 4 * nvme::kBlockBytes;

class ContentsTest : public testing::Test {
  protected:
    struct alignas(16) Memory {
        std::byte bytes[kBytes];
    };
    const simt::SelfGroup self_ = simt::self(simt::Lane{});
    const Contents contents_{7, 3};
    Memory memory_{};
};

TEST_F(ContentsTest, FilledContentsMatch) {
    for (const std::uint64_t offset : {0ull, 512ull, 4096ull, 4096ull * 1000 + 3584, (1ull << 44) - kBytes}) {
        fill(self_, contents_, offset, kBytes, memory_.bytes);
        EXPECT_TRUE(matches(self_, contents_, offset, kBytes, memory_.bytes)) << offset;
    }
}

TEST_F(ContentsTest, AnyFlippedBitIsSeen) {
    fill(self_, contents_, 8192, kBytes, memory_.bytes);
    std::uint64_t flips = 0;
    for (std::uint32_t at = 0; at < kBytes; ++at) {
        const auto bit = std::byte{1} << (at % 8);
        memory_.bytes[at] ^= bit;
        ASSERT_FALSE(matches(self_, contents_, 8192, kBytes, memory_.bytes)) << "byte " << at;
        memory_.bytes[at] ^= bit;
        ++flips;
    }
    EXPECT_TRUE(matches(self_, contents_, 8192, kBytes, memory_.bytes));
    std::printf("GN_COUNT bench_flipped_bits=%llu\n", static_cast<unsigned long long>(flips));
}

TEST_F(ContentsTest, AnotherBlockVolumeOrGenerationDoesNotMatch) {
    fill(self_, contents_, 8192, 512, memory_.bytes);
    EXPECT_FALSE(matches(self_, contents_, 8192 + 512, 512, memory_.bytes));
    EXPECT_FALSE(matches(self_, contents_, 8192 + 4096, 512, memory_.bytes));
    EXPECT_FALSE(matches(self_, Contents{7, 4}, 8192, 512, memory_.bytes));
    EXPECT_FALSE(matches(self_, Contents{8, 3}, 8192, 512, memory_.bytes));
}

TEST_F(ContentsTest, PartsFilledSeparatelyEqualTheWhole) {
    for (std::uint32_t at = 0; at < kBytes; at += 512)
        fill(self_, contents_, 4096 + at, 512, memory_.bytes + at);
    EXPECT_TRUE(matches(self_, contents_, 4096, kBytes, memory_.bytes));
}

TEST_F(ContentsTest, KeysOfManyBlocksDiffer) {
    std::set<std::uint64_t> keys;
    for (std::uint16_t volume = 1; volume <= 4; ++volume)
        for (std::uint64_t seed = 1; seed <= 2; ++seed)
            for (std::uint64_t block = 0; block < 4096; ++block)
                keys.insert(Contents{seed, volume}.key(block));
    EXPECT_EQ(keys.size(), 4u * 2 * 4096);
}

}  // namespace
}  // namespace gnstor::bench
