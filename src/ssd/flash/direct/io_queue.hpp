// io_queue.hpp: asynchronous reads, writes and syncs of one file descriptor.
//
// Uses io_uring where this build and this machine have it; else plain calls that complete before they return,
// and a thread for syncs only. One owner thread. Only submit() is sure to start what was queued; a buffer
// belongs to the queue until its token is reaped. The destructor waits for what was submitted.
#pragma once

#include <gnstor/base/result.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace gnstor::ssd {

class IoQueue {
  public:
    struct Done {
        std::uint64_t token;
        std::int64_t result;  ///< bytes, or minus errno
    };
    virtual ~IoQueue() = default;
    virtual void write(const void* from, std::uint32_t bytes, std::uint64_t at, std::uint64_t token) = 0;
    virtual void read(void* to, std::uint32_t bytes, std::uint64_t at, std::uint64_t token) = 0;
    /// fdatasync: covers every write that was reaped before.
    virtual void sync(std::uint64_t token) = 0;
    /// Hands queued operations to the kernel; those that it cannot take now follow in later calls, of reap()
    /// too. False: the kernel takes no more operations.
    [[nodiscard]] virtual bool submit() = 0;
    /// One ended operation, in any order. False: none has ended.
    [[nodiscard]] virtual bool reap(Done& done) = 0;
    /// Submits, and waits until an operation has ended, at most `most`. False: none has ended.
    [[nodiscard]] virtual bool wait(std::chrono::milliseconds most) = 0;
    [[nodiscard]] virtual const char* kind() const = 0;
    /// Whether operations run while the caller continues.
    [[nodiscard]] virtual bool overlaps() const { return false; }
};

enum class IoQueueKind : std::uint8_t {
    kAuto,  ///< io_uring if available, else plain calls (the log says why)
    kRing,
    kPlain,
};

/// A queue of at most `depth` operations at once (1 to 4096). `on_end` may be called, on another thread, when
/// a sync has ended, so that the owner polls again.
Result<std::unique_ptr<IoQueue>> open_io_queue(int fd, std::uint32_t depth, IoQueueKind kind,
                                               std::function<void()> on_end);
/// An io_uring queue; kUnsupported if the build or the kernel has none.
Result<std::unique_ptr<IoQueue>> open_io_ring(int fd, std::uint32_t depth);

}  // namespace gnstor::ssd
