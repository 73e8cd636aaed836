#include "ssd/flash/sync_worker.hpp"

#include "base/last_wait.hpp"

#include <utility>

namespace gnstor::ssd {

SyncWorker::SyncWorker(std::function<bool()> sync) : sync_(std::move(sync)), thread_([this] { run(); }) {}

SyncWorker::~SyncWorker() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    asked_changed_.notify_all();
    {
        std::unique_lock lock(mutex_);
        LastWait{}(
            ended_, lock, [&] { return over_; }, "a store's sync has not ended");
    }
    thread_.join();
}

void SyncWorker::on_end(std::function<void()> call) {
    const std::lock_guard lock(mutex_);
    on_end_ = std::move(call);
}

std::uint64_t SyncWorker::ask() {
    std::uint64_t ticket = 0;
    {
        const std::lock_guard lock(mutex_);
        ticket = ++asked_;
    }
    asked_changed_.notify_one();
    return ticket;
}

SyncWorker::State SyncWorker::look(std::uint64_t ticket) const noexcept {
    // Acquire: pairs with run()'s release; what the caller does after kDone comes after the sync.
    if (done_.load(std::memory_order_acquire) >= ticket) return State::kDone;
    // Acquire: pairs with run()'s release store.
    return failed_.load(std::memory_order_acquire) ? State::kFailed : State::kBusy;
}

SyncWorker::State SyncWorker::wait(std::uint64_t ticket, std::chrono::seconds most) {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, most, [&] { return look(ticket) != State::kBusy; });
    return look(ticket);
}

void SyncWorker::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        // Relaxed: only this thread stores to it.
        const auto pending = [&] { return asked_ > done_.load(std::memory_order_relaxed); };
        const bool failed = failed_.load(std::memory_order_relaxed);
        asked_changed_.wait(lock, [&] { return stopping_ || (pending() && !failed); });
        if (stopping_) break;
        const std::uint64_t ticket = asked_;
        lock.unlock();
        const bool ok = sync_();
        lock.lock();
        // Release: pairs with look()'s acquire loads.
        if (ok) {
            done_.store(ticket, std::memory_order_release);
        } else {
            failed_.store(true, std::memory_order_release);
        }
        ended_.notify_all();
        if (on_end_) on_end_();
    }
    over_ = true;
    ended_.notify_all();
}

}  // namespace gnstor::ssd
