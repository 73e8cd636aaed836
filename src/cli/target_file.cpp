// target_file.cpp: writes the temporary file, removes it on signals, renames it over the target.
#include "cli/target_file.hpp"

#include <fmt/core.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <streambuf>
#include <vector>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTargetBufferBytes = 64u << 10;
constexpr std::size_t kNameBytesMax = 200;  // of NAME_MAX; the rest is for what makes the name unique
constexpr int kLinksMost = 40;              // the kernel's own limit
constexpr int kNamesTried = 16;
constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

// Static, because a signal handler has no arguments: the file to remove, and whether there is one.
std::array<char, PATH_MAX> removed_path;
std::atomic<bool> removed_armed{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler takes no locks");

extern "C" void remove_and_end(int signal) {
    const int before = errno;
    // Pairs with the release in RemovedOnSignal: removed_path is complete.
    if (removed_armed.load(std::memory_order_acquire)) (void)::unlink(removed_path.data());
    errno = before;
    (void)::raise(signal);  // SA_RESETHAND: ends the process, by this signal, when the handler returns
}

/// While it lives, the signals that end this process remove the file first.
class RemovedOnSignal {
  public:
    explicit RemovedOnSignal(const std::string& path) {
        std::memcpy(removed_path.data(), path.c_str(), path.size() + 1);
        // Pairs with the acquire in remove_and_end(), which another thread may run.
        removed_armed.store(true, std::memory_order_release);
        struct sigaction action {};
        action.sa_handler = remove_and_end;
        action.sa_flags = static_cast<int>(SA_RESETHAND);
        for (std::size_t i = 0; i < kSignals.size(); ++i) {
            (void)::sigaction(kSignals[i], nullptr, &before_[i]);
            if (before_[i].sa_handler != SIG_IGN) (void)::sigaction(kSignals[i], &action, nullptr);
        }
    }
    ~RemovedOnSignal() {
        // Pairs with the acquire in remove_and_end(): from here on another process may use the name.
        removed_armed.store(false, std::memory_order_release);
        for (std::size_t i = 0; i < kSignals.size(); ++i)
            (void)::sigaction(kSignals[i], &before_[i], nullptr);
    }
    RemovedOnSignal(const RemovedOnSignal&) = delete;
    RemovedOnSignal& operator=(const RemovedOnSignal&) = delete;

  private:
    std::array<struct sigaction, kSignals.size()> before_{};
};

class TargetBuffer final : public std::streambuf, public TargetFile {
  public:
    /// `there`: stat of the target; nullopt: it does not exist. `straight`: writes the target itself, without
    /// a temporary file. `own`: the target is this open descriptor.
    TargetBuffer(fs::path path, std::optional<struct stat> there, bool straight, std::optional<int> own = {})
        : path_(std::move(path)),
          there_(there),
          straight_(straight),
          own_(own),
          buffer_(kTargetBufferBytes),
          stream_(this) {
        setp(buffer_.data(), buffer_.data() + buffer_.size());
    }
    ~TargetBuffer() override {
        if (fd_ >= 0) ::close(fd_);
        if (!part_.empty()) (void)::unlink(part_.c_str());
    }
    TargetBuffer(const TargetBuffer&) = delete;
    TargetBuffer& operator=(const TargetBuffer&) = delete;

    std::ostream& stream() override { return stream_; }
    [[nodiscard]] Result<void> state() const override { return state_; }
    [[nodiscard]] bool is_standard_output() const override {
        struct stat out {};
        return there_ && ::fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == there_->st_dev &&
               out.st_ino == there_->st_ino;
    }

    Result<void> finish() override {
        if (!drain()) return state_;
        // Synced before the rename: after a power cut the name leads to all of the new contents, or to the
        // old.
        if (!straight_ && ::fsync(fd_) != 0 && errno != EINVAL)  // EINVAL: no fsync on that file system
            return failed(fmt::format("{} could not be written to its end", path_.string()));
        const int fd = fd_;
        fd_ = -1;
        if (::close(fd) != 0)
            return failed(fmt::format("{} could not be written to its end", path_.string()));
        if (straight_) return {};
        if (::rename(part_.c_str(), path_.c_str()) != 0)
            return failed(fmt::format("{} cannot be replaced", path_.string()));
        part_.clear();
        on_signal_.reset();
        return {};
    }

  protected:
    int_type overflow(int_type c) override {
        if (!drain()) return traits_type::eof();
        if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
        return traits_type::not_eof(c);
    }
    std::streamsize xsputn(const char* data, std::streamsize size) override {
        if (size <= epptr() - pptr()) return std::streambuf::xsputn(data, size);
        return drain() && write(data, static_cast<std::size_t>(size)) ? size : 0;
    }
    int sync() override { return 0; }  // finish() writes the rest

  private:
    Result<void> failed(const std::string& what) {
        return state_ = error(Errc::kIo, "{}: {}", what, std::strerror(errno));
    }

    bool drain() {
        if (!state_.ok() || (fd_ < 0 && !open())) return false;
        const auto size = static_cast<std::size_t>(pptr() - pbase());
        setp(buffer_.data(), buffer_.data() + buffer_.size());
        return write(buffer_.data(), size);
    }

    bool write(const char* data, std::size_t size) {
        while (size > 0) {
            const ssize_t n = ::write(fd_, data, size);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) {
                (void)failed(fmt::format("{} could not be written to its end", path_.string()));
                return false;
            }
            data += n;
            size -= static_cast<std::size_t>(n);
        }
        return true;
    }

    bool open() {
        if (straight_) {
            do
                fd_ = own_ ? ::fcntl(*own_, F_DUPFD_CLOEXEC, 0)
                           : ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
            while (fd_ < 0 && errno == EINTR);
            if (fd_ < 0) (void)failed(fmt::format("{} cannot be written", path_.string()));
            return fd_ >= 0;
        }
        std::random_device random;
        for (int tried = 0; fd_ < 0 && tried < kNamesTried; ++tried) {
            const std::string name = path_.filename().string().substr(0, kNameBytesMax);
            const std::string part =
                (path_.parent_path() / fmt::format(".{}.gnstor-{:08x}{:08x}", name, random(), random()))
                    .string();
            if (part.size() >= PATH_MAX) {
                errno = ENAMETOOLONG;
                break;
            }
            // Armed before the file exists, so that a signal cannot leave it behind.
            on_signal_.emplace(part);
            // The umask decides the mode of a new file; a replacement is private until keep_owner_and_mode().
            fd_ = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, there_ ? 0600 : 0666);
            if (fd_ >= 0) {
                part_ = part;
                break;
            }
            on_signal_.reset();
            if (errno != EEXIST && errno != EINTR) break;
        }
        if (fd_ < 0) {
            const fs::path folder = path_.parent_path();
            (void)failed(fmt::format("{} cannot be written: no file can be made beside it in {}",
                                     path_.string(), folder.empty() ? "." : folder.string()));
            return false;
        }
        return !there_ || keep_owner_and_mode();
    }

    bool keep_owner_and_mode() {
        mode_t mode = there_->st_mode & 0777u;
        // If neither owner nor group can be set, the old group's rights must not go to another group.
        if (::fchown(fd_, there_->st_uid, there_->st_gid) != 0 &&
            ::fchown(fd_, static_cast<uid_t>(-1), there_->st_gid) != 0)
            mode &= ~static_cast<mode_t>(070);
        if (::fchmod(fd_, mode) == 0) return true;
        (void)failed(fmt::format(
            "the temporary file {} cannot be given the mode of the file that it replaces", part_));
        return false;
    }

    const fs::path path_;
    const std::optional<struct stat> there_;
    const bool straight_;
    const std::optional<int> own_;
    int fd_ = -1;
    std::string part_;  ///< the temporary file; empty: there is none
    std::optional<RemovedOnSignal> on_signal_;
    Result<void> state_;
    std::vector<char> buffer_;
    std::ostream stream_;
};

/// The end of a chain of symbolic links; it need not exist.
Result<fs::path> without_links(const fs::path& path) {
    fs::path at = path;
    std::error_code failed;
    for (int links = 0; fs::is_symlink(at, failed); ++links) {
        const fs::path to = fs::read_symlink(at, failed);
        if (failed || links == kLinksMost)
            return error(Errc::kIo, "{} cannot be written: its symbolic links cannot be followed",
                         path.string());
        at = to.is_absolute() ? to : at.parent_path() / to;
    }
    return at;
}

/// The descriptor of this process that the path names, as /dev/stdout, /dev/fd/5 and links to them do. Such a
/// target is not reopened: the descriptor has a file offset, which other writers share.
std::optional<int> own_descriptor(const fs::path& path) {
    const fs::path descriptors = fmt::format("/proc/{}/fd", ::getpid());
    fs::path at = path;
    std::error_code failed;
    for (int links = 0; links < kLinksMost && fs::is_symlink(at, failed); ++links) {
        const fs::path parent = at.has_parent_path() ? at.parent_path() : fs::path(".");
        if (fs::canonical(parent, failed) == descriptors && !failed) return std::atoi(at.filename().c_str());
        const fs::path to = fs::read_symlink(at, failed);
        if (failed) break;
        at = to.is_absolute() ? to : at.parent_path() / to;
    }
    return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<TargetFile>> TargetFile::at(const fs::path& path, const ArrayPlaces& array) {
    struct stat info {};
    const bool there = ::stat(path.c_str(), &info) == 0;
    if (!there && errno != ENOENT)
        return error(Errc::kIo, "{} cannot be written: {}", path.string(), std::strerror(errno));
    const std::optional<struct stat> what = there ? std::optional<struct stat>(info) : std::nullopt;
    if (there && S_ISDIR(info.st_mode))
        return error(Errc::kInvalidArgument, "{} is a folder; name the file to write in it", path.string());
    if (const std::optional<int> own = there ? own_descriptor(path) : std::nullopt) {
        GN_TRY(refuse_what_arrays_use(path, {}, what, array));
        return std::unique_ptr<TargetFile>(std::make_unique<TargetBuffer>(path, what, true, own));
    }
    GN_ASSIGN(const fs::path real, without_links(path));
    GN_TRY(refuse_what_arrays_use(path, real, what, array));
    if (there && ::access(path.c_str(), W_OK) != 0)
        return error(Errc::kIo, "{} cannot be written: {}; name another file", path.string(),
                     std::strerror(errno));
    if (there && !S_ISREG(info.st_mode))
        return std::unique_ptr<TargetFile>(std::make_unique<TargetBuffer>(path, what, true));
    struct stat folder {};
    const fs::path parent = real.has_parent_path() ? real.parent_path() : fs::path(".");
    if (::stat(parent.c_str(), &folder) != 0 || !S_ISDIR(folder.st_mode) || !real.has_filename())
        return error(Errc::kNotFound, "{} cannot be written: there is no folder {}; make it first (mkdir -p)",
                     path.string(), parent.string());
    return std::unique_ptr<TargetFile>(std::make_unique<TargetBuffer>(real, what, false));
}

Result<std::unique_ptr<TargetFile>> TargetFile::standard_output(const ArrayPlaces& array) {
    struct stat info {};
    if (::fstat(STDOUT_FILENO, &info) != 0)
        return error(Errc::kIo, "standard output cannot be written: {}", std::strerror(errno));
    // By this path the guard can read the contents, if /proc is mounted.
    GN_TRY(refuse_what_arrays_use(fmt::format("/proc/self/fd/{}", STDOUT_FILENO), {}, info, array));
    return std::unique_ptr<TargetFile>(
        std::make_unique<TargetBuffer>("standard output", info, true, STDOUT_FILENO));
}

}  // namespace gnstor::cli
