// posix_file.hpp: a file descriptor that closes itself, and reads and writes of whole ranges at an offset.
// Host code, any thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace gnstor::ssd {

/// A file descriptor, closed at the end. Move only.
class FileDescriptor {
  public:
    explicit FileDescriptor(int fd = -1) : fd_(fd) {}
    FileDescriptor(FileDescriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& o) noexcept {
        std::swap(fd_, o.fd_);
        return *this;
    }
    ~FileDescriptor();
    [[nodiscard]] int get() const { return fd_; }

  private:
    int fd_;
};

/// Moves `fd` above the standard descriptors if it is one of them: a program that was started without these
/// would otherwise print into its store. The old descriptor is closed; -1 and errno on failure.
[[nodiscard]] int above_standard(int fd);
/// The message of errno.
[[nodiscard]] std::string errno_text();
/// kCorrupt if errno says that the medium is unreadable (EIO), which concerns this store only; else kIo.
[[nodiscard]] Errc code_of_read();
/// Transfers the whole range, or returns false.
[[nodiscard]] bool read_all(int fd, void* to, std::size_t bytes, std::uint64_t at);
[[nodiscard]] bool write_all(int fd, const void* from, std::size_t bytes, std::uint64_t at);
/// flock(), retried for up to a second: the kernel may release the locks of a killed process a moment after
/// it is gone. False: errno says why; EWOULDBLOCK: another process holds the lock.
[[nodiscard]] bool lock_soon(int fd, int operation);
/// Zeroes `bytes` bytes from `at` on, by punching a hole if the file system can, else by writing.
[[nodiscard]] bool zero_all(int fd, std::uint64_t at, std::uint64_t bytes);
/// Reserves disk space without writing zeroes; true also if the file system (or device) cannot reserve.
[[nodiscard]] bool reserve_room(int fd, std::uint64_t at, std::uint64_t bytes);

}  // namespace gnstor::ssd
