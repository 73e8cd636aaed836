#include "ssd/flash/direct/io_queue.hpp"

#include <gnstor/base/log.hpp>

#include "ssd/flash/sync_worker.hpp"

#include <unistd.h>

#include <cerrno>
#include <deque>

namespace gnstor::ssd {

namespace {

/// Reads and writes complete before they return; syncs run on a thread.
class PlainQueue final : public IoQueue {
  public:
    PlainQueue(int fd, std::function<void()> on_end)
        : fd_(fd), worker_([fd] { return ::fdatasync(fd) == 0; }) {
        worker_.on_end(std::move(on_end));
    }
    void write(const void* from, std::uint32_t bytes, std::uint64_t at, std::uint64_t token) override {
        const ssize_t n = ::pwrite(fd_, from, bytes, static_cast<off_t>(at));
        done_.push_back({token, n < 0 ? -errno : n});
    }
    void read(void* to, std::uint32_t bytes, std::uint64_t at, std::uint64_t token) override {
        const ssize_t n = ::pread(fd_, to, bytes, static_cast<off_t>(at));
        done_.push_back({token, n < 0 ? -errno : n});
    }
    void sync(std::uint64_t token) override {
        sync_token_ = token;
        ticket_ = worker_.ask();
    }
    [[nodiscard]] bool submit() override { return true; }
    [[nodiscard]] bool reap(Done& done) override {
        if (!done_.empty()) {
            done = done_.front();
            done_.pop_front();
            return true;
        }
        if (ticket_ == 0) return false;
        const SyncWorker::State state = worker_.look(ticket_);
        if (state == SyncWorker::State::kBusy) return false;
        done = {sync_token_, state == SyncWorker::State::kDone ? 0 : -EIO};
        ticket_ = 0;
        return true;
    }
    [[nodiscard]] bool wait(std::chrono::milliseconds most) override {
        if (!done_.empty()) return true;
        if (ticket_ == 0) return false;
        const auto seconds = std::chrono::ceil<std::chrono::seconds>(most);
        return worker_.wait(ticket_, seconds) != SyncWorker::State::kBusy;
    }
    [[nodiscard]] const char* kind() const override { return "blocking reads and writes"; }

  private:
    int fd_;
    std::deque<Done> done_;
    std::uint64_t sync_token_ = 0;
    std::uint64_t ticket_ = 0;  // 0: no sync in flight
    SyncWorker worker_;
};

}  // namespace

#if !defined(GN_WITH_LIBURING)
Result<std::unique_ptr<IoQueue>> open_io_ring(int, std::uint32_t) {
    return error(Errc::kUnsupported, "this program was built without liburing");
}
#endif

Result<std::unique_ptr<IoQueue>> open_io_queue(int fd, std::uint32_t depth, IoQueueKind kind,
                                               std::function<void()> on_end) {
    if (kind != IoQueueKind::kPlain) {
        Result<std::unique_ptr<IoQueue>> ring = open_io_ring(fd, depth);
        if (ring.ok() || kind == IoQueueKind::kRing) return ring;
        log_warn(
            "a store is accessed by blocking reads and writes, one at a time, because io_uring cannot be "
            "used: {}",
            ring.error().message);
    }
    return std::unique_ptr<IoQueue>(std::make_unique<PlainQueue>(fd, std::move(on_end)));
}

}  // namespace gnstor::ssd
