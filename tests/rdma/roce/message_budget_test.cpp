// message_budget_test.cpp: floods of messages of connection management, and those who mean it.
#include <gtest/gtest.h>
#include <gnstor/base/hash.hpp>

#include "cm_rig.hpp"
#include "rdma/roce/message_rate_limiter.hpp"

using namespace gnstor;
using namespace gnstor::rdma::roce;
using samples::address_of;

namespace {

constexpr TimeNs kSecond = 1'000'000'000;

/// `floods` addresses send so many a second each; one honest peer connects ten times a second. How many of
/// its messages of 20 seconds were looked at, of all that were.
struct Outcome {
    std::uint32_t honest = 0, flood = 0;
};
Outcome contend(std::uint32_t floods, std::uint64_t a_second, bool known = false) {
    MessageRateLimiter budget({.seed = 99});
    Outcome out;
    const TimeNs step = kSecond / a_second;
    TimeNs honest_at = kSecond;
    for (TimeNs now = kSecond; now < 21 * kSecond; now += step) {
        for (std::uint32_t i = 0; i < floods; ++i)
            out.flood += budget.take(now, address_of(i), false) ? 1 : 0;
        for (; honest_at <= now; honest_at += kSecond / 10)
            out.honest += budget.take(now, address_of(200), known) ? 1 : 0;
    }
    return out;
}

TEST(MessageRateLimiter, OnePeersFloodTakesHalfAtMostAndFloodsOfAFewPeersDoNotBlockOthers) {
    const Outcome one = contend(1, 100'000);
    EXPECT_EQ(one.honest, 200u);
    EXPECT_LE(one.flood, 20u * 5'000 + 1'024);
    EXPECT_GE(one.flood, 20u * 5'000);
    for (const std::uint32_t floods : {2u, 5u, 20u, 60u}) {
        const Outcome several = contend(floods, 20'000);
        EXPECT_EQ(several.honest, 200u) << floods;
        EXPECT_LE(several.flood, 20u * 10'000 + 2'048) << "work is bounded";
        EXPECT_GE(several.flood, 20u * 9'000) << "the budget must be used";
    }
}

TEST(MessageRateLimiter, AKnownPeerUsesNothingOfTheCommonBudget) {
    MessageRateLimiter budget({.at_once = 4, .a_second = 1, .seed = 7});
    for (std::uint32_t i = 0; i < 100; ++i) (void)budget.take(1, address_of(i), false);
    EXPECT_FALSE(budget.take(1, address_of(120), false));
    EXPECT_TRUE(budget.take(1, address_of(121), true));
}

TEST(MessageRateLimiter, ManyConnectionsOfOnePeerAtOnceAreServed) {
    MessageRateLimiter budget({.seed = 3});
    for (std::uint32_t i = 0; i < 1'000; ++i) ASSERT_TRUE(budget.take(kSecond, address_of(1), false)) << i;
    EXPECT_TRUE(budget.take(kSecond, address_of(2), false));
}

TEST(MessageRateLimiter, AClockThatStopsOrGoesBackAddsNoBudget) {
    MessageRateLimiter budget({.of_source_at_once = 8, .of_source_a_second = 1, .seed = 3});
    for (std::uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(budget.take(5 * kSecond, address_of(1), true));
    EXPECT_FALSE(budget.take(5 * kSecond, address_of(1), true));
    EXPECT_FALSE(budget.take(kSecond, address_of(1), true));
    EXPECT_TRUE(budget.take(6 * kSecond, address_of(1), true));
    EXPECT_FALSE(budget.take(6 * kSecond, address_of(1), true));
}

}  // namespace
