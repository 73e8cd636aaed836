// connection_pool.hpp: threads for the connections of an HTTP server, and how many connections there may be.
//
// httplib queues whatever is accepted, without a limit: a few silent peers more than threads, and descriptors
// fill up while everybody waits. Here those beyond the limit are turned away at once, by the thread that
// accepts: it calls their task with turning_away() set, in which the server says 503 and closes.
#pragma once

#include <httplib.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>

namespace gnstor::daemon {

/// enqueue() and shutdown() from the thread that accepts; tasks run on the pool's threads.
class ConnectionPool final : public httplib::TaskQueue {
  public:
    ConnectionPool(std::size_t threads, std::size_t connections_max)
        : connections_max_(connections_max), pool_(threads) {}

    // Newer versions of httplib want to know whether it was taken: it always is.
    auto enqueue(std::function<void()> task) -> decltype(std::declval<httplib::TaskQueue&>().enqueue(
        std::declval<std::function<void()>>())) override {
        using Answer = decltype(pool_.enqueue(task));
        if (open_.fetch_add(1) >= connections_max_) {
            turning_away() = true;
            task();
            turning_away() = false;
            open_.fetch_sub(1);
            return Answer(true);
        }
        return pool_.enqueue([this, task = std::move(task)] {
            task();
            open_.fetch_sub(1);
        });
    }
    void shutdown() override { pool_.shutdown(); }

    /// Whether the task that this thread runs is of a connection too many.
    static bool& turning_away() {
        thread_local bool away = false;
        return away;
    }

  private:
    const std::size_t connections_max_;
    std::atomic<std::size_t> open_{0};
    httplib::ThreadPool pool_;
};

}  // namespace gnstor::daemon
