// proxy.hpp: the client's proxy thread: does on the CPU, now and then, what is not I/O: keep-alives, lease
// renewals, newer maps.
//
// A chore is called from the proxy's thread alone, about once every `period`, and keeps what it remembers;
// add and remove from any thread. After remove returns, the chore is not running and never will be again. A
// chore that does not return ends the process after some minutes of words (base/last_wait.hpp): nobody could
// take away what it uses.
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

class Proxy {
  public:
    using ChoreId = std::uint64_t;
    Proxy();
    ~Proxy();
    Proxy(const Proxy&) = delete;
    Proxy& operator=(const Proxy&) = delete;

    ChoreId add(std::chrono::milliseconds period, std::function<void()> chore);
    void remove(ChoreId id);

  private:
    using Clock = std::chrono::steady_clock;
    struct Chore {
        ChoreId id;
        std::chrono::milliseconds period;
        Clock::time_point next;
        std::shared_ptr<std::function<void()>> run;  ///< shared with the run: it may be removed meanwhile
    };
    void loop();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<Chore> chores_;
    ChoreId next_id_ = 1;
    ChoreId running_ = 0;  ///< 0: none
    bool stopping_ = false;
    bool ended_ = false;
    std::thread thread_;
};

}  // namespace gnstor::client
