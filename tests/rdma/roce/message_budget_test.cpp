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
Outcome contend(std::uint32_t floods, std::uint64_t a_second, MessageOf of = MessageOf::kStranger) {
    MessageRateLimiter budget({.seed = 99});
    Outcome out;
    const TimeNs step = kSecond / a_second;
    TimeNs honest_at = kSecond;
    for (TimeNs now = kSecond; now < 21 * kSecond; now += step) {
        for (std::uint32_t i = 0; i < floods; ++i)
            out.flood += budget.take(now, address_of(i), MessageOf::kStranger) ? 1 : 0;
        for (; honest_at <= now; honest_at += kSecond / 10)
            out.honest += budget.take(now, address_of(200), of) ? 1 : 0;
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
    for (std::uint32_t i = 0; i < 100; ++i) (void)budget.take(1, address_of(i), MessageOf::kStranger);
    EXPECT_FALSE(budget.take(1, address_of(120), MessageOf::kStranger));
    EXPECT_TRUE(budget.take(1, address_of(121), MessageOf::kPeer));
}

TEST(MessageRateLimiter, ManyConnectionsOfOnePeerAtOnceAreServed) {
    MessageRateLimiter budget({.seed = 3});
    for (std::uint32_t i = 0; i < 1'000; ++i)
        ASSERT_TRUE(budget.take(kSecond, address_of(1), MessageOf::kStranger)) << i;
    EXPECT_TRUE(budget.take(kSecond, address_of(2), MessageOf::kStranger));
}

TEST(MessageRateLimiter, AFloodUnderAPeersAddressDoesNotBlockItsMessagesAboutConnections) {
    MessageRateLimiter budget({.seed = 5});
    std::uint32_t dropped = 0;
    for (std::uint32_t i = 0; i < 100'000; ++i)
        dropped += budget.take(kSecond + i * 1'000, address_of(1), MessageOf::kPeer) ? 0 : 1;
    EXPECT_GT(dropped, 90'000u) << "the flood must be limited";
    std::uint32_t processed = 0;
    for (std::uint32_t i = 0; i < 100'000; ++i)
        processed += budget.take(2 * kSecond, address_of(1), MessageOf::kConnection) ? 1 : 0;
    EXPECT_EQ(processed, 1024u) << "a peer that floods its own connections must be limited, too";
}

TEST(MessageRateLimiter, AnIdIsNotGuessedByRtusInAnyReasonableTime) {
    MessageRateLimiter budget({.seed = 6});
    std::uint32_t believed = 0;
    constexpr TimeNs kTime = 20 * kSecond;  // at 50,000 a second
    for (TimeNs now = kSecond; now < kSecond + kTime; now += 20'000)
        believed += budget.take_ready(now, address_of(1)) ? 1 : 0;
    EXPECT_GE(believed, 1024u) << "a peer that connects many times at once";
    EXPECT_LE(believed, 1024u + 32 * 20);
    EXPECT_TRUE(budget.take_ready(kSecond, address_of(2)));
}

TEST(MessageRateLimiter, AClockThatStopsOrGoesBackAddsNoBudget) {
    MessageRateLimiter budget({.of_source_at_once = 8, .of_source_a_second = 1, .seed = 3});
    for (std::uint32_t i = 0; i < 8; ++i)
        EXPECT_TRUE(budget.take(5 * kSecond, address_of(1), MessageOf::kPeer));
    EXPECT_FALSE(budget.take(5 * kSecond, address_of(1), MessageOf::kPeer));
    EXPECT_FALSE(budget.take(kSecond, address_of(1), MessageOf::kPeer));
    EXPECT_TRUE(budget.take(6 * kSecond, address_of(1), MessageOf::kPeer));
    EXPECT_FALSE(budget.take(6 * kSecond, address_of(1), MessageOf::kPeer));
}

}  // namespace
