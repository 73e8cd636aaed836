#include "ssd/flash/file/posix_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace gnstor::ssd {

FileDescriptor::~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
}

int above_standard(int fd) {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    const int above = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int failed = errno;
    ::close(fd);
    errno = failed;
    return above;
}

std::string errno_text() {
    return std::strerror(errno);
}

Errc code_of_read() {
    return errno == EIO ? Errc::kCorrupt : Errc::kIo;
}

bool read_all(int fd, void* to, std::size_t bytes, std::uint64_t at) {
    auto* p = static_cast<char*>(to);
    while (bytes > 0) {
        const ssize_t n = ::pread(fd, p, bytes, static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        at += static_cast<std::uint64_t>(n);
        bytes -= static_cast<std::size_t>(n);
    }
    return true;
}

bool write_all(int fd, const void* from, std::size_t bytes, std::uint64_t at) {
    const auto* p = static_cast<const char*>(from);
    while (bytes > 0) {
        const ssize_t n = ::pwrite(fd, p, bytes, static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        at += static_cast<std::uint64_t>(n);
        bytes -= static_cast<std::size_t>(n);
    }
    return true;
}

bool lock_soon(int fd, int operation) {
    constexpr std::chrono::milliseconds kPatience{1000}, kStep{5};
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (::flock(fd, operation | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK || std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::sleep_for(kStep);
    }
    return true;
}

bool zero_all(int fd, std::uint64_t at, std::uint64_t bytes) {
    if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
                    static_cast<off_t>(bytes)) == 0) {
        return true;
    }
    const std::vector<char> zeroes(1u << 20);
    for (; bytes > 0;) {
        const std::size_t now = std::min<std::uint64_t>(bytes, zeroes.size());
        if (!write_all(fd, zeroes.data(), now, at)) return false;
        at += now;
        bytes -= now;
    }
    return true;
}

bool reserve_room(int fd, std::uint64_t at, std::uint64_t bytes) {
    int rc = 0;
    do {
        rc = ::fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at), static_cast<off_t>(bytes));
    } while (rc != 0 && errno == EINTR);
    return rc == 0 || errno == EOPNOTSUPP || errno == ENODEV;
}

}  // namespace gnstor::ssd
