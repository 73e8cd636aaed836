// last_wait_test.cpp: waits that cannot be given up.
#include "base/last_wait.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace gnstor {
namespace {

constexpr std::chrono::milliseconds kShort{5};

TEST(LastWait, ReturnsOnceItsConditionHolds) {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::unique_lock lock(mutex);
    std::thread other([&] {
        const std::lock_guard guard(mutex);
        done = true;
        changed.notify_all();
    });
    LastWait{}(
        changed, lock, [&] { return done; }, "nobody");
    EXPECT_TRUE(done);
    lock.unlock();
    other.join();
}

TEST(LastWait, WarnsAndContinuesToWait) {
    std::mutex mutex;
    std::condition_variable changed;
    std::unique_lock lock(mutex);
    std::uint32_t asked = 0;
    const LastWait patient{.complain_every = kShort, .complaints_most = 1000};
    patient(
        changed, lock, [&] { return ++asked == 10; }, "a test that is slow on purpose");
    EXPECT_EQ(asked, 10u);
}

TEST(LastWaitDeathTest, EndsTheProcessAndNamesTheThreadThatDoesNotAnswer) {
    const auto for_ever = [] {
        std::mutex mutex;
        std::condition_variable changed;
        std::unique_lock lock(mutex);
        const LastWait short_one{.complain_every = kShort, .complaints_most = 2};
        short_one(
            changed, lock, [] { return false; }, "somebody does not answer");
    };
    EXPECT_DEATH(for_ever(), "somebody does not answer: this process is terminated");
}

}  // namespace
}  // namespace gnstor
