// periodic_tasks.cpp: the periodic thread: runs tasks in order of due time.
#include "client/periodic_tasks.hpp"

#include "base/last_wait.hpp"

#include <algorithm>
#include <utility>

namespace gnstor::client {

namespace {
constexpr const char* kTaskHangs = "the client's periodic thread: a task has not returned";
}

PeriodicTasks::PeriodicTasks() : thread_([this] { loop(); }) {}

PeriodicTasks::~PeriodicTasks() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    {
        std::unique_lock lock(mutex_);
        LastWait{}(
            changed_, lock, [&] { return ended_; }, kTaskHangs);
    }
    thread_.join();
}

PeriodicTasks::TaskId PeriodicTasks::add(std::chrono::milliseconds period, std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    const TaskId id = next_id_++;
    tasks_.push_back(
        {id, period, Clock::now() + period, std::make_shared<std::function<void()>>(std::move(task))});
    changed_.notify_all();
    return id;
}

void PeriodicTasks::remove(TaskId id) {
    std::unique_lock lock(mutex_);
    tasks_.remove_if([id](const Task& c) { return c.id == id; });
    LastWait{}(
        changed_, lock, [&] { return running_ != id; }, kTaskHangs);
}

void PeriodicTasks::loop() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        const auto due = std::min_element(tasks_.begin(), tasks_.end(),
                                          [](const Task& a, const Task& b) { return a.next < b.next; });
        if (due == tasks_.end()) {
            changed_.wait(lock);
            continue;
        }
        // Copies the time, because the task may be removed during the wait; the loop then looks for the next
        // one again.
        const Clock::time_point next = due->next;
        if (next > Clock::now()) {
            changed_.wait_until(lock, next);
            continue;
        }
        due->next = Clock::now() + due->period;
        running_ = due->id;
        const auto run = due->run;  // the task may be removed while it runs
        lock.unlock();
        (*run)();
        lock.lock();
        running_ = 0;
        changed_.notify_all();
    }
    ended_ = true;
    changed_.notify_all();
}

}  // namespace gnstor::client
