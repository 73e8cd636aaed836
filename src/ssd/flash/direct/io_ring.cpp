// io_ring.cpp: an IoQueue on io_uring. Built where liburing is found. One owner thread.
#include "base/last_wait.hpp"
#include "ssd/flash/direct/io_queue.hpp"

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace gnstor::ssd {

namespace {

class RingQueue final : public IoQueue {
  public:
    explicit RingQueue(int fd) : fd_(fd) {}
    RingQueue(const RingQueue&) = delete;
    RingQueue& operator=(const RingQueue&) = delete;
    ~RingQueue() override {
        if (!open_) return;
        // Buffers are freed after this: no operation of the kernel may still use them.
        const LastWait last;
        auto complain_at = std::chrono::steady_clock::now() + last.complain_every;
        Done ignored{};
        for (std::uint32_t complaints = 0; outstanding_ > 0;) {
            if (reap(ignored)) continue;
            (void)wait(std::chrono::milliseconds(100));
            if (std::chrono::steady_clock::now() < complain_at) continue;
            last.complain(++complaints,
                          "a disk does not complete the reads and writes that the kernel submitted to it");
            complain_at += last.complain_every;
        }
        ::io_uring_queue_exit(&ring_);
    }
    [[nodiscard]] int open(std::uint32_t depth) {
        const int rc = ::io_uring_queue_init(depth, &ring_, 0);
        open_ = rc == 0;
        return rc;
    }
    void write(const void* from, std::uint32_t bytes, std::uint64_t at, std::uint64_t token) override {
        io_uring_sqe* entry = next();
        ::io_uring_prep_write(entry, fd_, from, bytes, at);
        ::io_uring_sqe_set_data64(entry, token);
    }
    void read(void* to, std::uint32_t bytes, std::uint64_t at, std::uint64_t token) override {
        io_uring_sqe* entry = next();
        ::io_uring_prep_read(entry, fd_, to, bytes, at);
        ::io_uring_sqe_set_data64(entry, token);
    }
    void sync(std::uint64_t token) override {
        io_uring_sqe* entry = next();
        ::io_uring_prep_fsync(entry, fd_, IORING_FSYNC_DATASYNC);
        ::io_uring_sqe_set_data64(entry, token);
    }
    [[nodiscard]] bool submit() override {
        if (::io_uring_sq_ready(&ring_) == 0) return true;
        const int rc = ::io_uring_submit(&ring_);
        // The kernel may lack memory for a while; operations that it did not take stay queued.
        owed_ = ::io_uring_sq_ready(&ring_) != 0;
        return rc >= 0 || rc == -EAGAIN || rc == -EBUSY || rc == -EINTR;
    }
    [[nodiscard]] bool reap(Done& done) override {
        if (owed_) (void)submit();  // or a caller that only reaps waits for ever; submit() reports refusals
        io_uring_cqe* entry = nullptr;
        if (::io_uring_peek_cqe(&ring_, &entry) != 0) return false;
        done = {::io_uring_cqe_get_data64(entry), entry->res};
        ::io_uring_cqe_seen(&ring_, entry);
        --outstanding_;
        return true;
    }
    [[nodiscard]] bool wait(std::chrono::milliseconds most) override {
        if (!submit() || outstanding_ == 0) return false;
        io_uring_cqe* entry = nullptr;
        __kernel_timespec t{most.count() / 1000, (most.count() % 1000) * 1'000'000};
        return ::io_uring_wait_cqe_timeout(&ring_, &entry, &t) == 0;
    }
    [[nodiscard]] const char* kind() const override { return "io_uring"; }
    [[nodiscard]] bool overlaps() const override { return true; }

  private:
    io_uring_sqe* next() {
        // The owner keeps to the ring's depth: there is always an entry.
        io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
        if (entry == nullptr) std::abort();
        ++outstanding_;
        return entry;
    }

    int fd_;
    bool open_ = false;
    bool owed_ = false;  // the kernel has not taken all submitted operations yet
    std::uint32_t outstanding_ = 0;
    io_uring ring_{};
};

}  // namespace

Result<std::unique_ptr<IoQueue>> open_io_ring(int fd, std::uint32_t depth) {
    auto queue = std::make_unique<RingQueue>(fd);
    const int rc = queue->open(std::clamp(depth, 1u, 4096u));
    if (rc == -ENOMEM) {
        return error(Errc::kNoSpace,
                     "cannot create an io_uring of {} entries: the limit of locked memory is too low; raise "
                     "RLIMIT_MEMLOCK (ulimit -l)",
                     depth);
    }
    if (rc != 0) {
        return error(Errc::kUnsupported,
                     "cannot create an io_uring: {}; this kernel lacks it, or a sandbox or sysctl "
                     "kernel.io_uring_disabled forbids it",
                     std::strerror(-rc));
    }
    return std::unique_ptr<IoQueue>(std::move(queue));
}

}  // namespace gnstor::ssd
