// Two threads, one ring: everything arrives once, whole and in order (run under ThreadSanitizer too).
#include <gnstor/base/hash.hpp>
#include <gnstor/base/spsc_ring.hpp>

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/count.hpp"
#include "support/seed.hpp"

namespace gnstor {
namespace {

struct Descriptor {
    std::uint64_t number;
    std::uint64_t check;
};

TEST(SpscRing, RefusesCapacitiesThatAreNoPowerOfTwo) {
    for (std::size_t capacity : {0u, 1u, 3u, 100u, (1u << 24) + 1, 1u << 25}) {
        const auto ring = SpscRing<int>::create(capacity);
        ASSERT_FALSE(ring.ok()) << capacity;
        EXPECT_EQ(ring.error().code, Errc::kInvalidArgument);
    }
}

TEST(SpscRing, HoldsExactlyItsCapacity) {
    auto ring = std::move(SpscRing<int>::create(8)).value();
    for (int round = 0; round < 5; ++round) {
        for (int i = 0; i < 8; ++i) ASSERT_TRUE(ring->try_push(i));
        ASSERT_FALSE(ring->try_push(99));
        ASSERT_EQ(ring->size_now(), 8u);
        int value = -1;
        for (int i = 0; i < 8; ++i) {
            ASSERT_TRUE(ring->try_pop(value));
            ASSERT_EQ(value, i);
        }
        ASSERT_FALSE(ring->try_pop(value));
    }
}

TEST(SpscRing, HandsEverythingOverInOrderBetweenTwoThreads) {
    constexpr std::uint64_t kEntries = 300'000;
    for (std::size_t capacity : {2u, 64u, 1024u}) {
        auto ring = std::move(SpscRing<Descriptor>::create(capacity)).value();
        const std::uint64_t seed = test::run_seed();
        std::thread producer([&] {
            SplitMix64 random(seed);
            std::vector<Descriptor> batch(33);
            for (std::uint64_t sent = 0; sent < kEntries;) {
                const std::uint64_t want = std::min<std::uint64_t>(1 + random.below(33), kEntries - sent);
                for (std::uint64_t i = 0; i < want; ++i) batch[i] = {sent + i, mix64(sent + i)};
                const std::size_t n = ring->push_some(std::span(batch.data(), want));
                sent += n;
                if (n == 0) std::this_thread::yield();
            }
        });
        SplitMix64 random(seed + 1);
        std::vector<Descriptor> batch(33);
        std::uint64_t got = 0;
        std::uint64_t wrong = 0;
        while (got < kEntries) {
            const std::size_t n = ring->pop_some(std::span(batch.data(), 1 + random.below(33)));
            for (std::size_t i = 0; i < n; ++i, ++got)
                if (batch[i].number != got || batch[i].check != mix64(got)) ++wrong;
            if (n == 0) std::this_thread::yield();
        }
        producer.join();
        EXPECT_EQ(wrong, 0u) << "capacity " << capacity;
        EXPECT_EQ(ring->size_now(), 0u);
        test::count("base_ring_entries", got);
    }
}

}  // namespace
}  // namespace gnstor
