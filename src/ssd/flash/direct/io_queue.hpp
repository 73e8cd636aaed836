// io_queue.hpp: reads and writes of one file descriptor that go on while their caller does something else.
//
// By io_uring where this build and this machine have it; else plain calls that end before they return, with a
// thread for syncs alone. One owner thread. What is queued may be sent by submit() alone; a buffer belongs to
// the queue until its token was reaped. The destructor waits for what was sent.
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
    /// fdatasync: of every write that was reaped before.
    virtual void sync(std::uint64_t token) = 0;
    /// Hands what was queued to the kernel; what it cannot take for now follows at later calls, reap()
    /// included. False: it takes nothing any more.
    [[nodiscard]] virtual bool submit() = 0;
    /// One that has ended, in any order.
    [[nodiscard]] virtual bool reap(Done& done) = 0;
    /// Submits, and waits until something has ended, at most so long. False: nothing has.
    [[nodiscard]] virtual bool wait(std::chrono::milliseconds most) = 0;
    [[nodiscard]] virtual const char* kind() const = 0;
    /// Whether operations go on while the caller does something else.
    [[nodiscard]] virtual bool overlaps() const { return false; }
};

enum class IoQueueKind : std::uint8_t {
    kAuto,  ///< io_uring if it can be had, else plain calls (the log says why)
    kRing,
    kPlain,
};

/// For at most `depth` operations at once (1 to 4096). `on_end` may be called, on another thread, when a sync
/// has ended that only polling would see.
Result<std::unique_ptr<IoQueue>> open_io_queue(int fd, std::uint32_t depth, IoQueueKind kind,
                                               std::function<void()> on_end);
/// The ring; kUnsupported where the build or the kernel has none.
Result<std::unique_ptr<IoQueue>> open_io_ring(int fd, std::uint32_t depth);

}  // namespace gnstor::ssd
