// sync_worker.hpp: a thread that makes a store stable while its drive keeps running; one sync serves all
// waiting requests.
//
// Any thread may request a sync; each request has a ticket, which is done when a sync that began after the
// request has ended. After a failure, every ticket that is not yet done fails. The destructor waits for a
// sync in progress (base/last_wait.hpp).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace gnstor::ssd {

class SyncWorker {
  public:
    /// `sync` runs on the worker's thread: true if it succeeded.
    explicit SyncWorker(std::function<bool()> sync);
    ~SyncWorker();
    SyncWorker(const SyncWorker&) = delete;
    SyncWorker& operator=(const SyncWorker&) = delete;

    enum class State : std::uint8_t { kBusy, kDone, kFailed };
    [[nodiscard]] std::uint64_t ask();
    [[nodiscard]] State look(std::uint64_t ticket) const noexcept;
    /// kBusy: not ended within `most`.
    [[nodiscard]] State wait(std::uint64_t ticket, std::chrono::seconds most);
    /// `call` runs on the worker's thread when tickets have ended, to wake a poller. Set it before the first
    /// ask().
    void on_end(std::function<void()> call);

  private:
    void run();

    std::function<bool()> sync_;
    std::function<void()> on_end_;
    std::mutex mutex_;
    std::condition_variable asked_changed_;
    std::condition_variable ended_;
    std::uint64_t asked_ = 0;  // guarded by mutex_
    bool stopping_ = false;    // guarded by mutex_
    bool over_ = false;        // guarded by mutex_
    std::atomic<std::uint64_t> done_{0};
    std::atomic<bool> failed_{false};
    std::thread thread_;  // last: it uses all of the above
};

}  // namespace gnstor::ssd
