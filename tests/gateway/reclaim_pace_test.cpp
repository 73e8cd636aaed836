// reclaim_pace_test.cpp: when broken connections are made anew, in simulated time.
#include "gateway/reclaim_pace.hpp"

#include <gtest/gtest.h>

namespace gnstor::gateway {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;
using Time = ReclaimPace::Clock::time_point;
constexpr Time kStart{std::chrono::hours(1)};

TEST(ReclaimPace, TheFirstAttemptIsDueAtOnce) {
    EXPECT_TRUE(ReclaimPace{}.due(kStart));
}

TEST(ReclaimPace, AfterAFailedAttemptTheNextIsDueOnceItsDurationHasPassedAgain) {
    ReclaimPace pace;
    pace.ended(kStart, kStart + seconds(1), false);
    EXPECT_FALSE(pace.due(kStart + milliseconds(1999)));
    EXPECT_TRUE(pace.due(kStart + seconds(2)));
}

TEST(ReclaimPace, AttemptsThatDelayOtherCommandsTakeATenthOfTheTimeAtMost) {
    ReclaimPace pace;
    pace.ended(kStart, kStart + seconds(2), true);
    EXPECT_FALSE(pace.due(kStart + milliseconds(21'999)));
    EXPECT_TRUE(pace.due(kStart + seconds(22)));
}

TEST(ReclaimPace, AQuickAttemptIsNotFollowedByAnotherAtOnce) {
    ReclaimPace pace;
    pace.ended(kStart, kStart + milliseconds(1), true);
    EXPECT_FALSE(pace.due(kStart + milliseconds(1000)));
    EXPECT_TRUE(pace.due(kStart + milliseconds(1001)));
}

}  // namespace
}  // namespace gnstor::gateway
