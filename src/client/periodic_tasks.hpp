// periodic_tasks.hpp: a proxy thread of the client: runs periodic work outside the I/O path: keep-alives,
// lease renewals, newer maps.
//
// A chore is a function that the proxy's thread alone calls, about once every `period`. Call add and remove
// from any thread. After remove returns, the chore is not running and never runs again. If a chore never
// returns, remove and the destructor warn for some minutes and then end the process (base/last_wait.hpp): the
// objects that the chore uses could never be freed.
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
    using ChoreId = std::uint64_t;
    PeriodicTasks();
    ~PeriodicTasks();
    PeriodicTasks(const PeriodicTasks&) = delete;
    PeriodicTasks& operator=(const PeriodicTasks&) = delete;

    ChoreId add(std::chrono::milliseconds period, std::function<void()> chore);
    void remove(ChoreId id);

  private:
    using Clock = std::chrono::steady_clock;
    struct Task {
        ChoreId id;
        std::chrono::milliseconds period;
        Clock::time_point next;
        /// Shared with the running call: the chore may be removed meanwhile.
        std::shared_ptr<std::function<void()>> run;
    };
    void loop();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<Task> chores_;
    ChoreId next_id_ = 1;
    ChoreId running_ = 0;  ///< 0: none
    bool stopping_ = false;
    bool ended_ = false;
    std::thread thread_;
};

}  // namespace gnstor::client
