// What a reactor promises its users: who polls, when polling is over, that wakes are not lost, that idling is
// cheap.
#include <gnstor/base/reactor.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

#include "support/count.hpp"

namespace gnstor {
namespace {

std::uint64_t wall_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

std::unique_ptr<Reactor> started(const char* name, ReactorOptions options = {}) {
    return std::move(Reactor::start(name, options)).value();
}

/// Counts polls; tells a waiting thread when a number of them has happened.
class CountingPoller : public Poller {
  public:
    std::uint32_t poll() override {
        if (inside_.exchange(true)) overlapped_ = true;
        const std::uint64_t n = polls_.fetch_add(1) + 1;
        if (n == awaited_.load()) {
            const std::lock_guard lock(mutex_);
            reached_.notify_all();
        }
        inside_ = false;
        return 0;
    }
    void await_more(std::uint64_t more) {
        std::unique_lock lock(mutex_);
        const std::uint64_t target = polls_.load() + more;
        awaited_ = target;
        reached_.wait_for(lock, std::chrono::seconds(60), [&] { return polls_.load() >= target; });
        ASSERT_GE(polls_.load(), target) << "the reactor stopped polling";
    }
    std::uint64_t polls() const { return polls_; }
    bool overlapped() const { return overlapped_; }

  private:
    std::atomic<std::uint64_t> polls_{0}, awaited_{0};
    std::atomic<bool> inside_{false}, overlapped_{false};
    std::mutex mutex_;
    std::condition_variable reached_;
};

TEST(Reactor, RefusesInvalidNamesAndSleepTimes) {
    EXPECT_FALSE(Reactor::start("").ok());
    EXPECT_FALSE(Reactor::start("a-name-of-16-chr").ok());
    EXPECT_FALSE(Reactor::start("r", {.spin_us = 1, .sleep_min_us = 0, .sleep_max_us = 1}).ok());
    EXPECT_FALSE(Reactor::start("r", {.spin_us = 1, .sleep_min_us = 10, .sleep_max_us = 9}).ok());
    EXPECT_FALSE(
        Reactor::start("r", {.spin_us = 1, .sleep_min_us = 10, .sleep_max_us = 4'000'000'000u}).ok());
}

TEST(Reactor, RunsWorkOnItsOwnNamedThread) {
    const auto reactor = started("gn-test-nic-0");
    char name[16] = {};
    std::thread::id id, nested;
    reactor->run([&] {
        pthread_getname_np(pthread_self(), name, sizeof name);
        id = std::this_thread::get_id();
        reactor->run([&] { nested = std::this_thread::get_id(); });  // at once, not queued: else a deadlock
    });
    EXPECT_STREQ(name, "gn-test-nic-0");
    EXPECT_EQ(reactor->name(), "gn-test-nic-0");
    EXPECT_NE(id, std::this_thread::get_id());
    EXPECT_EQ(id, nested);
}

TEST(Reactor, NeverPollsAfterRemoveReturned) {
    const auto reactor = started("gn-test");
    for (int i = 0; i < 300; ++i) {
        auto poller = std::make_unique<CountingPoller>();
        reactor->add(*poller);
        if (i % 3 == 0) poller->await_more(2);
        reactor->remove(*poller);
        const std::uint64_t polls = poller->polls();
        reactor->run([] {});
        ASSERT_EQ(poller->polls(), polls);
        ASSERT_FALSE(poller->overlapped());
        poller.reset();  // a later poll would be a use after free: for the sanitizers
    }
}

TEST(Reactor, SurvivesAddRemoveRunAndWakeFromManyThreadsAtOnce) {
    const auto reactor = started("gn-test");
    std::atomic<std::uint64_t> runs{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 150; ++i) {
                CountingPoller mine;
                reactor->add(mine);
                reactor->run([&] { ++runs; });
                reactor->wake();
                reactor->remove(mine);
                EXPECT_GE(mine.polls() + 1, 1u);
                EXPECT_FALSE(mine.overlapped());
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(runs, 900u);
}

/// Answers a word: work that a wake() announces.
class EchoPoller : public Poller {
  public:
    std::uint32_t poll() override {
        const std::uint32_t asked = question.load(std::memory_order_acquire);
        if (asked == answer.load(std::memory_order_relaxed)) return 0;
        answer.store(asked, std::memory_order_release);
        answer.notify_all();
        return 1;
    }
    std::atomic<std::uint32_t> question{0}, answer{0};
};

TEST(Reactor, AWakeIsNeverLost) {
    // Sleeps of up to a second: 2000 exchanges would take half an hour if wakes were lost.
    const auto reactor =
        started("gn-test", {.spin_us = 0, .sleep_min_us = 1'000'000, .sleep_max_us = 1'000'000});
    EchoPoller echo;
    reactor->add(echo);
    for (std::uint32_t i = 1; i <= 2000; ++i) {
        echo.question.store(i, std::memory_order_release);
        reactor->wake();
        echo.answer.wait(i - 1);
        ASSERT_EQ(echo.answer.load(), i);
    }
    reactor->remove(echo);
    test::count("base_reactor_wakes", 2000);
}

TEST(Reactor, FindsWorkOfPollersThatCannotWakeItByPolling) {
    const auto reactor = started("gn-test", {.spin_us = 5, .sleep_min_us = 50, .sleep_max_us = 500});
    EchoPoller echo;
    reactor->add(echo);
    for (std::uint32_t i = 1; i <= 200; ++i) {
        echo.question.store(i, std::memory_order_release);  // a doorbell in plain memory: no wake()
        echo.answer.wait(i - 1);
        ASSERT_EQ(echo.answer.load(), i);
    }
    reactor->remove(echo);
}

/// Takes 100 us at least for each of `rounds` rounds of work, then has none.
class WorkingPoller : public Poller {
  public:
    explicit WorkingPoller(std::uint32_t rounds) : left_(rounds) {}
    std::uint32_t poll() override {
        if (left_ == 0) {
            done_ = true;
            done_.notify_all();
            return 0;
        }
        --left_;
        for (const std::uint64_t end = wall_ns() + kRoundNs; wall_ns() < end;) {
        }
        return 1;
    }
    void await_end() const { done_.wait(false); }
    static constexpr std::uint64_t kRoundNs = 100'000;

  private:
    std::uint32_t left_;  // the reactor's thread alone
    std::atomic<bool> done_{false};
};

TEST(Reactor, RoundsWithWorkAreBusyTimeAndRoundsWithoutAreNot) {
    const std::uint64_t began = wall_ns();
    const auto reactor = started("gn-test");
    CountingPoller idle;
    reactor->add(idle);
    idle.await_more(200);  // spins, sleeps, is woken for nothing
    reactor->wake();
    idle.await_more(20);
    EXPECT_EQ(reactor->busy_time_ns(), 0u);
    WorkingPoller working(50);
    reactor->add(working);
    working.await_end();
    const std::uint64_t busy = reactor->busy_time_ns();
    EXPECT_GT(busy, 50 * WorkingPoller::kRoundNs / 10 * 9)
        << "by two clocks, hence not to the last nanosecond";
    EXPECT_LE(busy, wall_ns() - began);
    idle.await_more(50);
    const std::uint64_t later = reactor->busy_time_ns();
    EXPECT_LT(later, busy + WorkingPoller::kRoundNs) << "rounds without work were counted";
    reactor->remove(working);
    reactor->remove(idle);
}

TEST(Reactor, SleepsItsLongestSleepBetweenIdleRoundsOf200Pollers) {
    // The processor time of an idle reactor is that of its rounds times their number. Their number is judged
    // here: a sleep never ends early, so that many rounds need at least that many sleeps of time. The time of
    // a round depends on the machine and is only printed.
    ReactorOptions options;
    options.spin_us = 0;        // rounds without a sleep would count, too
    options.sleep_deep_us = 0;  // deep sleeps would make the rounds five times rarer
    const auto reactor = started("gn-test", options);
    std::vector<std::unique_ptr<CountingPoller>> pollers;
    for (int i = 0; i < 200; ++i) {
        pollers.push_back(std::make_unique<CountingPoller>());
        reactor->add(*pollers.back());
    }
    const auto polls_of_all = [&] {
        std::vector<std::uint64_t> polls;
        reactor->run([&] {  // between two rounds
            for (const auto& poller : pollers) polls.push_back(poller->polls());
        });
        return polls;
    };
    const std::vector<std::uint64_t> before = polls_of_all();
    CountingPoller& last = *pollers.back();
    last.await_more(20);  // sleeps double until they are the longest

    const std::uint64_t cpu = reactor->cpu_time_ns();
    const std::uint64_t wall = wall_ns();
    const std::uint64_t polls = last.polls();
    last.await_more(400);
    const std::uint64_t rounds = last.polls() - polls;
    const std::uint64_t lasted_us = (wall_ns() - wall) / 1000;
    const std::uint64_t cpu_used = reactor->cpu_time_ns() - cpu;
    std::printf("[   DID    ] idle with 200 pollers: %llu rounds, %.1f us CPU each, %.2f %% of a core\n",
                static_cast<unsigned long long>(rounds),
                static_cast<double>(cpu_used) / 1e3 / static_cast<double>(rounds),
                static_cast<double>(cpu_used) / 10 / static_cast<double>(lasted_us));
    test::count("base_reactor_idle_rounds", rounds);
    // The first of the sleeps may have begun before the clock was read.
    EXPECT_GE(lasted_us, (rounds - 2) * options.sleep_max_us)
        << "an idle reactor does not sleep between rounds";
    const std::vector<std::uint64_t> after = polls_of_all();
    for (std::size_t i = 0; i < pollers.size(); ++i)
        EXPECT_EQ(after[i] - before[i], after.back() - before.back())
            << "poller " << i << " is not polled once a round";
    for (auto& poller : pollers) reactor->remove(*poller);
}

/// Takes bytes from a pipe and tells a waiting thread how many there were.
class PipePoller : public Poller {
  public:
    PipePoller() { EXPECT_EQ(pipe2(ends_, O_NONBLOCK | O_CLOEXEC), 0); }
    ~PipePoller() override {
        close(ends_[0]);
        close(ends_[1]);
    }
    std::uint32_t poll() override {
        char byte;
        if (read(ends_[0], &byte, 1) != 1) return 0;
        const std::lock_guard lock(mutex_);
        ++taken_;
        changed_.notify_all();
        return 1;
    }
    void put() const { ASSERT_EQ(write(ends_[1], "x", 1), 1); }
    bool await(std::uint32_t taken, std::chrono::milliseconds most) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, most, [&] { return taken_ >= taken; });
    }
    [[nodiscard]] int fd() const { return ends_[0]; }

  private:
    int ends_[2] = {-1, -1};
    std::uint32_t taken_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
};

// Every sleep is a second long, so that what ends one early is seen.
constexpr ReactorOptions kLongSleeps{.spin_us = 0,
                                     .sleep_min_us = 1'000'000,
                                     .sleep_max_us = 1'000'000,
                                     .deep_after_us = 0,
                                     .sleep_deep_us = 0};

TEST(Reactor, ASleepEndsWhenAWatchedDescriptorIsReadableOrWakeIsCalled) {
    const auto reactor = started("gn-test", kLongSleeps);
    PipePoller pipe;
    reactor->add(pipe);
    reactor->watch(pipe.fd());
    constexpr std::uint32_t kRounds = 40;
    const std::uint64_t began = wall_ns();
    for (std::uint32_t i = 1; i <= kRounds; ++i) {
        pipe.put();
        ASSERT_TRUE(pipe.await(i, std::chrono::seconds(30)));
        reactor->run([] {});  // a wake() of the same sleeper
        reactor->wake();
    }
    EXPECT_LT(wall_ns() - began, kRounds * 250'000'000ull)
        << "packets did not wake the reactor, which slept until its sleep time was over";
    reactor->unwatch(pipe.fd());
    // Back on the futex: nothing but the end of the sleep, or a wake(), brings the poller to look.
    reactor->run([] {});
    reactor->remove(pipe);
    PipePoller other;
    reactor->add(other);
    reactor->unwatch(other.fd());  // never watched
    other.put();
    reactor->wake();
    EXPECT_TRUE(other.await(1, std::chrono::seconds(30)));
    reactor->remove(other);
}

TEST(Reactor, AlsoSleepsWhileItWatchesDescriptors) {
    const auto reactor = started("gn-test", kLongSleeps);
    PipePoller pipe;
    CountingPoller idle;
    reactor->watch(pipe.fd());
    reactor->add(idle);
    reactor->run([] {});
    const std::uint64_t began = wall_ns(), polls = idle.polls();
    idle.await_more(2);
    const std::uint64_t rounds = idle.polls() - polls;
    EXPECT_LT(rounds, 3 + 10 * (wall_ns() - began) / 1'000'000'000u) << "the reactor polls without sleeping";
    reactor->remove(idle);
    reactor->unwatch(pipe.fd());
}

}  // namespace
}  // namespace gnstor
