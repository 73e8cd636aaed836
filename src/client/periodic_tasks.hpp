// periodic_tasks.hpp: a periodic thread of the client: runs periodic work outside the I/O path: keep-alives,
// lease renewals, newer maps.
//
// A task is a function that the periodic thread alone calls, about once every `period`. Call add and remove
// from any thread. After remove returns, the task is not running and never runs again. If a task never
// returns, remove and the destructor warn for some minutes and then end the process (base/last_wait.hpp): the
// objects that the task uses could never be freed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

namespace gnstor::client {

class PeriodicTasks {
  public:
    using TaskId = std::uint64_t;
    PeriodicTasks();
    ~PeriodicTasks();
    PeriodicTasks(const PeriodicTasks&) = delete;
    PeriodicTasks& operator=(const PeriodicTasks&) = delete;

    TaskId add(std::chrono::milliseconds period, std::function<void()> task);
    void remove(TaskId id);

  private:
    using Clock = std::chrono::steady_clock;
    struct Task {
        TaskId id;
        std::chrono::milliseconds period;
        Clock::time_point next;
        /// Shared with the running call: the task may be removed meanwhile.
        std::shared_ptr<std::function<void()>> run;
    };
    void loop();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<Task> tasks_;
    TaskId next_id_ = 1;
    TaskId running_ = 0;  ///< 0: none
    bool stopping_ = false;
    bool ended_ = false;
    std::thread thread_;
};

}  // namespace gnstor::client
