#include "cli/source_file.hpp"

#include "ssd/flash/file/posix_file.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <streambuf>
#include <utility>
#include <vector>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = 256u << 10;
constexpr std::array<std::uint64_t, 8> kMadeAsTheyAreRead = {
    PROC_SUPER_MAGIC,   SYSFS_MAGIC,         DEBUGFS_MAGIC,    TRACEFS_MAGIC,
    CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, SECURITYFS_MAGIC, BPF_FS_MAGIC};

std::uint64_t believed_bytes(int fd, const struct stat& what) {
    if (!S_ISREG(what.st_mode) || what.st_size <= 0) return ~0ull;
    struct statfs system {};
    if (::fstatfs(fd, &system) != 0) return ~0ull;
    const auto type = static_cast<std::uint64_t>(system.f_type);
    const bool made =
        std::find(kMadeAsTheyAreRead.begin(), kMadeAsTheyAreRead.end(), type) != kMadeAsTheyAreRead.end();
    return made ? ~0ull : static_cast<std::uint64_t>(what.st_size);
}

class SourceBuffer final : public std::streambuf, public SourceFile {
  public:
    SourceBuffer(std::string name, ssd::FileDescriptor own, int fd, std::uint64_t bytes)
        : name_(std::move(name)),
          own_(std::move(own)),
          fd_(fd),
          bytes_(bytes),
          buffer_(kBufferBytes),
          stream_(this) {}
    std::istream& stream() override { return stream_; }
    [[nodiscard]] std::uint64_t bytes() const override { return bytes_; }
    [[nodiscard]] Result<void> state() const override { return state_; }

  protected:
    int_type underflow() override {
        ssize_t n = 0;
        do n = ::read(fd_, buffer_.data(), buffer_.size());
        while (n < 0 && errno == EINTR);
        if (n < 0) {
            state_ = error(Errc::kIo, "{} cannot be read: {}", name_, std::strerror(errno));
            stream_.setstate(std::ios::badbit);
        }
        if (n <= 0) return traits_type::eof();
        setg(buffer_.data(), buffer_.data(), buffer_.data() + n);
        return traits_type::to_int_type(*gptr());
    }

  private:
    const std::string name_;
    const ssd::FileDescriptor own_;
    const int fd_;
    const std::uint64_t bytes_;
    Result<void> state_;
    std::vector<char> buffer_;
    std::istream stream_;
};

}  // namespace

Result<std::unique_ptr<SourceFile>> SourceFile::open(const fs::path& path) {
    const bool standard_input = path == "-";
    ssd::FileDescriptor own(standard_input ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    const int fd = standard_input ? STDIN_FILENO : own.get();
    const std::string name = standard_input ? "standard input" : path.string();
    struct stat what {};
    if (fd < 0 || ::fstat(fd, &what) != 0)
        return error(Errc::kNotFound, "{} cannot be read: {}", name, std::strerror(errno));
    if (S_ISDIR(what.st_mode) && !standard_input)
        return error(Errc::kInvalidArgument, "{} is a folder; put its files one by one, or as an archive",
                     name);
    // Another process may have read a part of standard input already.
    const std::uint64_t bytes = standard_input ? ~0ull : believed_bytes(fd, what);
    return std::unique_ptr<SourceFile>(std::make_unique<SourceBuffer>(name, std::move(own), fd, bytes));
}

}  // namespace gnstor::cli
