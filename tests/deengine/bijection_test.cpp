// bijection_test.cpp: nothing of a key is lost between it and its slot.
#include "deengine/map/bijection.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace gnstor::deengine {
namespace {

RC_GTEST_PROP(Bijection, InvertsAtEveryWidth, (std::uint64_t seed, std::uint64_t x)) {
    for (std::uint32_t width = 1; width <= 64; ++width) {
        const Bijection b(width, seed);
        const std::uint64_t mask = width == 64 ? ~0ull : (1ull << width) - 1;
        const std::uint64_t y = b.forward(x & mask);
        RC_ASSERT(y <= mask);
        RC_ASSERT(b.inverse(y) == (x & mask));
        RC_ASSERT(b.forward(b.inverse(x & mask)) == (x & mask));
    }
}

TEST(Bijection, IsAPermutationOfEverySmallWidth) {
    std::uint64_t cases = 0;
    for (std::uint32_t width = 1; width <= 16; ++width) {
        const Bijection b(width, 42 + width);
        std::vector<bool> seen(1u << width, false);
        for (std::uint64_t x = 0; x < seen.size(); ++x, ++cases) {
            const std::uint64_t y = b.forward(x);
            ASSERT_LT(y, seen.size());
            ASSERT_FALSE(seen[y]) << "two inputs, one output at width " << width;
            seen[y] = true;
        }
    }
    std::printf("bijection: %llu inputs, exhaustive to 16 bits\n", static_cast<unsigned long long>(cases));
}

RC_GTEST_PROP(BucketSplit, JoinsWhatItSplitForAnyNumberOfBuckets, (std::uint64_t x, std::uint32_t raw)) {
    x &= (1ull << BucketSplit::kKeyBits) - 1;
    const std::uint32_t any = *rc::gen::inRange<std::uint32_t>(1, 1u << 31);
    for (const std::uint32_t buckets :
         {any, raw % 1000 + 1, 1u, 2u, 1u << 20, (1u << 20) + 1, (1u << 31) - 1, 1u << 31}) {
        const BucketSplit s(buckets);
        for (const std::uint64_t v : {x, std::uint64_t{0}, std::uint64_t{(1ull << BucketSplit::kKeyBits) - 1},
                                      std::uint64_t{x ^ 1}}) {
            const auto parts = s.split(v);
            RC_ASSERT(parts.bucket < buckets);
            RC_ASSERT(parts.remainder < (1ull << s.remainder_bits()));
            RC_ASSERT(s.join(parts) == v);
        }
    }
}

TEST(BucketSplit, SpreadsNeighbouringKeysEvenly) {
    const Bijection b(BucketSplit::kKeyBits, 5);
    const BucketSplit s(1000);
    std::vector<std::uint32_t> count(1000, 0);
    for (std::uint64_t x = 0; x < 1'000'000; ++x) ++count[s.split(b.forward((7ull << 32) + x)).bucket];
    for (const std::uint32_t c : count) {
        EXPECT_GT(c, 800u);  // six standard deviations of a uniform spread are 190
        EXPECT_LT(c, 1200u);
    }
}

}  // namespace
}  // namespace gnstor::deengine
