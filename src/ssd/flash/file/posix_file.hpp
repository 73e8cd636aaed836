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

/// The same file under a descriptor above the standard ones, where `fd` is one of these: a program that was
/// started without them would otherwise print into its store. `fd` is closed then; -1 and errno where it
/// fails.
[[nodiscard]] int above_standard(int fd);
/// What errno says.
[[nodiscard]] std::string errno_text();
/// kCorrupt where errno says that the medium cannot be read (EIO), which is of this one store; else kIo.
[[nodiscard]] Errc code_of_read();
/// All of the range, or false.
[[nodiscard]] bool read_all(int fd, void* to, std::size_t bytes, std::uint64_t at);
[[nodiscard]] bool write_all(int fd, const void* from, std::size_t bytes, std::uint64_t at);
/// flock(), tried again for up to a second: the kernel may let go of what a killed process had locked a
/// moment after that process is gone. False: errno says why; EWOULDBLOCK, that somebody holds it.
[[nodiscard]] bool lock_soon(int fd, int operation);
/// Zeroes from `at` on; by punching a hole where the file system can, else by writing.
[[nodiscard]] bool zero_all(int fd, std::uint64_t at, std::uint64_t bytes);
/// Reserves room on the disk, without writing zeroes; a file system (or a device) that cannot reserve is
/// taken as it is.
[[nodiscard]] bool reserve_room(int fd, std::uint64_t at, std::uint64_t bytes);

}  // namespace gnstor::ssd
