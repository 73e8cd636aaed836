// Group copies move every byte once and no other, at any alignment and length, however many lanes share the
// work.
#include "support/test_warp.hpp"

#include <gnstor/base/hash.hpp>
#include <gnstor/simt/copy.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/count.hpp"
#include "support/seed.hpp"

namespace gnstor::simt {
namespace {

struct Case {
    std::uint32_t to_offset, from_offset, bytes;
};

/// A destination with guards, checked after the copy.
class Field {
  public:
    explicit Field(std::uint64_t seed) : from_(kBytes), to_(kBytes, 0xEE) {
        SplitMix64 random(seed);
        for (auto& b : from_) b = static_cast<std::uint8_t>(random.next());
    }
    std::uint8_t* to(const Case& c) { return align(to_) + c.to_offset; }
    const std::uint8_t* from(const Case& c) { return align(from_) + c.from_offset; }
    testing::AssertionResult copied(const Case& c) {
        if (std::memcmp(to(c), from(c), c.bytes) != 0) return testing::AssertionFailure() << "bytes differ";
        std::memset(to(c), 0xEE, c.bytes);
        for (std::size_t i = 0; i < to_.size(); ++i)
            if (to_[i] != 0xEE) return testing::AssertionFailure() << "touched byte " << i << " outside";
        return testing::AssertionSuccess();
    }

  private:
    static constexpr std::size_t kBytes = 16384 + 256;
    static std::uint8_t* align(std::vector<std::uint8_t>& v) {
        return v.data() + (128 - reinterpret_cast<std::uintptr_t>(v.data()) % 128) % 128;
    }
    std::vector<std::uint8_t> from_, to_;
};

std::vector<Case> cases() {
    std::vector<Case> all;
    for (std::uint32_t to : {0u, 1u, 4u, 8u, 15u, 16u})
        for (std::uint32_t from : {0u, 1u, 4u, 7u, 8u, 16u})
            for (std::uint32_t bytes : {0u, 1u, 15u, 16u, 17u, 127u, 128u, 512u, 4096u, 5003u})
                all.push_back({to, from, bytes});
    return all;
}

TEST(Copy, ALaneAloneCopiesEveryByteAndNoOther) {
    Field field(test::run_seed());
    for (const Case& c : cases()) {
        copy16(self(Lane{}), field.to(c), field.from(c), c.bytes);
        ASSERT_TRUE(field.copied(c)) << c.to_offset << " " << c.from_offset << " " << c.bytes;
    }
}

// The GPU's paths, run here rank after rank; a single lane (size 1) walks line by line.
TEST(Copy, TheSharesOfAllRanksCoverTheWhole) {
    Field field(test::run_seed());
    std::uint64_t done = 0;
    for (const std::uint32_t size : {1u, 2u, 7u, 31u, 32u}) {
        for (const Case& c : cases()) {
            for (std::uint32_t rank = 0; rank < size; ++rank) {
                const std::uint32_t apart = c.to_offset ^ c.from_offset;
                if (apart % 16 == 0)
                    detail_copy::copy_by<detail_copy::Word16>(field.to(c), field.from(c), c.bytes, rank,
                                                              size);
                else if (apart % 8 == 0)
                    detail_copy::copy_by<std::uint64_t>(field.to(c), field.from(c), c.bytes, rank, size);
                else if (apart % 4 == 0)
                    detail_copy::copy_by<std::uint32_t>(field.to(c), field.from(c), c.bytes, rank, size);
                else
                    detail_copy::copy_by<std::uint8_t>(field.to(c), field.from(c), c.bytes, rank, size);
            }
            ASSERT_TRUE(field.copied(c))
                << size << " lanes: " << c.to_offset << " " << c.from_offset << " " << c.bytes;
            ++done;
        }
    }
    test::count("simt_copies", done);
    ASSERT_GE(done, 1800u);
}

TEST(Copy, ASingleLaneNeverLoadsTwiceInARowFromOneLine) {
    const detail_copy::Walk walk{256, 32, 8, 0, 1};  // 4 KiB in words of 16 bytes
    std::vector<bool> seen(256);
    for (std::uint64_t i = 0; i < walk.steps(); ++i) {
        const std::uint64_t at = walk.at(i);
        ASSERT_LT(at, 256u);
        ASSERT_FALSE(seen[at]);
        seen[at] = true;
        if (i > 0) {
            ASSERT_NE(at / 8, walk.at(i - 1) / 8) << "step " << i;
        }
    }
}

TEST(Copy, AGroupOfTestLanesCopiesAndSees) {
    for (const std::uint32_t w : {1u, 2u, 7u, 32u}) {
        Field field(test::run_seed());
        for (const Case& c : {Case{0, 0, 4096}, Case{3, 5, 777}, Case{8, 0, 512}, Case{5, 5, 100}}) {
            std::uint32_t wrong = 0;
            const auto result =
                run_test_warps({.warps = 1, .lanes = w, .seed = test::run_seed()}, [&](Lane lane) {
                    const MaskGroup g = warp(lane);
                    copy16(g, field.to(c), field.from(c), c.bytes);
                    g.sync();
                    if (std::memcmp(field.to(c), field.from(c), c.bytes) != 0)
                        fetch_add<Scope::kBlock>(&wrong, 1u);
                });
            ASSERT_TRUE(result.ok()) << result.error().message;
            EXPECT_EQ(wrong, 0u);
            ASSERT_TRUE(field.copied(c));
        }
    }
}

TEST(Copy, BulkWithoutAGpuIsAPlainCopy) {
    Field field(test::run_seed());
    const Case c{0, 16, 4096};
    copy_bulk(Lane{}, field.to(c), field.from(c), c.bytes, {});
    ASSERT_TRUE(field.copied(c));
}

TEST(Copy, WordsArriveThroughRelaxedStores) {
    std::uint32_t from[16], to[16] = {}, back[16] = {};
    for (std::uint32_t i = 0; i < 16; ++i) from[i] = i * 77 + 1;
    store_words_relaxed<Scope::kSystem>(to, from, 16);
    load_words_relaxed<Scope::kSystem>(back, to, 16);
    EXPECT_EQ(std::memcmp(from, back, sizeof from), 0);
}

}  // namespace
}  // namespace gnstor::simt
