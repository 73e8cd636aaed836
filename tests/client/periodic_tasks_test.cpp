// periodic_tasks_test.cpp: the client's periodic thread runs tasks again and again, and none once it was
// removed.
#include "client/periodic_tasks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <vector>

#include "support/count.hpp"

namespace gnstor::client::periodic_tasks_test {

using namespace std::chrono_literals;

/// Waits until the tasks have run so often; gtest's own deadline is the test program's.
void wait_until(const std::atomic<std::uint64_t>& runs, std::uint64_t wanted) {
    while (runs.load() < wanted) std::this_thread::yield();
}

TEST(PeriodicTasks, RunsEachTaskPeriodically) {
    std::atomic<std::uint64_t> a{0}, b{0};
    PeriodicTasks tasks;
    (void)tasks.add(1ms, [&] { ++a; });
    (void)tasks.add(2ms, [&] { ++b; });
    wait_until(a, 20);
    wait_until(b, 10);
    test::count("proxy_chores_run", a + b);
}

TEST(PeriodicTasks, ASlowTaskDelaysTheOthersButDoesNotStopThem) {
    std::atomic<std::uint64_t> slow{0}, quick{0};
    std::binary_semaphore go{0};
    PeriodicTasks tasks;
    (void)tasks.add(1ms, [&] {
        if (++slow == 1) go.acquire();
    });
    wait_until(slow, 1);
    (void)tasks.add(1ms, [&] { ++quick; });
    EXPECT_EQ(quick.load(), 0u) << "one thread runs all tasks";
    go.release();
    wait_until(quick, 5);
    wait_until(slow, 3);
}

TEST(PeriodicTasks, ATaskKeepsItsStateBetweenRuns) {
    std::atomic<std::uint64_t> newest{0};
    PeriodicTasks tasks;
    (void)tasks.add(1ms, [&newest, own = std::uint64_t{0}]() mutable { newest = ++own; });
    wait_until(newest, 5);
}

TEST(PeriodicTasks, RemoveWaitsForTheRunningTaskWhichNeverRunsAgain) {
    for (int round = 0; round < 30; ++round) {
        std::atomic<std::uint64_t> runs{0}, other{0};
        std::atomic<bool> inside{false};
        PeriodicTasks tasks;  // goes first: its tasks count to the end
        const auto id = tasks.add(1ms, [&] {
            inside = true;
            ++runs;
            std::this_thread::yield();
            inside = false;
        });
        (void)tasks.add(1ms, [&] { ++other; });
        wait_until(runs, 1 + static_cast<std::uint64_t>(round) % 3);
        tasks.remove(id);
        EXPECT_FALSE(inside.load());
        const std::uint64_t after = runs.load();
        wait_until(other, other.load() + 3);
        EXPECT_EQ(runs.load(), after);
    }
}

TEST(PeriodicTasks, TasksMayBeAddedAndRemovedFromManyThreads) {
    std::atomic<std::uint64_t> runs{0};
    PeriodicTasks tasks;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 200; ++i) {
                const auto id = tasks.add(std::chrono::milliseconds(i % 3), [&] { ++runs; });
                if (i % 5 == 0) wait_until(runs, runs.load() + 1);
                tasks.remove(id);
            }
        });
    for (auto& t : threads) t.join();
    const std::uint64_t after = runs.load();
    std::atomic<std::uint64_t> other{0};
    (void)tasks.add(1ms, [&] { ++other; });
    wait_until(other, 3);
    EXPECT_EQ(runs.load(), after) << "a removed task ran";
    tasks.remove(12345);  // nobody: nothing happens
    test::count("proxy_chores_run", after);
}

TEST(PeriodicTasks, ATaskThatTheThreadSleepsForMayBeRemoved) {
    std::atomic<std::uint64_t> runs{0};
    PeriodicTasks tasks;
    for (std::uint64_t i = 1; i <= 50; ++i) {
        const auto soonest =
            tasks.add(1h, [] { ADD_FAILURE() << "a task with a period of 1 h ran at once"; });
        const auto later = tasks.add(2h, [] { ADD_FAILURE() << "a task with a period of 2 h ran at once"; });
        tasks.remove(soonest);
        const auto now = tasks.add(0ms, [&] { ++runs; });  // wakes the thread out of its wait
        wait_until(runs, runs.load() + 1);
        tasks.remove(now);
        tasks.remove(later);
    }
}

TEST(PeriodicTasks, MayBeDestroyedWhileTasksAreRegistered) {
    std::atomic<std::uint64_t> runs{0};
    {
        PeriodicTasks tasks;
        (void)tasks.add(1ms, [&] { ++runs; });
        (void)tasks.add(24h, [&] { ADD_FAILURE() << "a task with a period of 24 h ran at once"; });
        wait_until(runs, 1);
    }
    SUCCEED();
}

}  // namespace gnstor::client::periodic_tasks_test
