// sync_worker.hpp: a thread that makes a store stable while its drive goes on: what waits is served by one
// sync.
//
// Any thread may ask; each ask has a ticket, and a ticket is done when a sync that began after it has ended.
// After a failure every ticket fails that is not done yet. The destructor waits for
// a sync in progress (base/last_wait.hpp).
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
    /// kBusy: the deadline passed.
    [[nodiscard]] State wait(std::uint64_t ticket, std::chrono::seconds most);
    /// Called on the worker's thread when tickets have ended: to wake who polls. Set before the first ask.
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
