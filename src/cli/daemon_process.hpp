// daemon_process.hpp: finds the gnstord process of a socket or a folder; the lock and pid files used for
// that. Unix; one thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace gnstor::cli {

/// The process that listens at a Unix socket (SO_PEERCRED); nullopt: none.
[[nodiscard]] std::optional<pid_t> listener_of(const std::filesystem::path& socket);

/// The process that a pid file names, if it has this lock file open; otherwise the process that has locked
/// that file: on a full disk the pid file may be missing, or left by an earlier process.
[[nodiscard]] std::optional<pid_t> holder_of(const std::filesystem::path& pid_file,
                                             const std::filesystem::path& lock_file);

/// The gnstord that serves a folder: holder_of() its pid and lock files, because a pid file may outlive its
/// process and the pid may have been reused.
[[nodiscard]] std::optional<pid_t> daemon_of(const std::filesystem::path& directory);

/// Whether the program of a process is gnstord, by its name.
[[nodiscard]] bool is_gnstord(pid_t pid);

/// A lock on a file or folder, held until this object is destroyed or the process ends.
class LockedFile {
  public:
    /// kBusy with message `taken` if another process holds it.
    static Result<std::unique_ptr<LockedFile>> take(const std::filesystem::path& file,
                                                    const std::string& taken);
    /// The same, but waits for the other process until the deadline. Blocks.
    static Result<std::unique_ptr<LockedFile>> take(const std::filesystem::path& file,
                                                    const std::string& taken,
                                                    std::chrono::milliseconds deadline);
    /// As the first take(), for a folder, which must exist.
    static Result<std::unique_ptr<LockedFile>> take_folder(const std::filesystem::path& folder,
                                                           const std::string& taken);
    [[nodiscard]] bool is_folder() const;
    ~LockedFile();
    LockedFile(const LockedFile&) = delete;
    LockedFile& operator=(const LockedFile&) = delete;

  private:
    explicit LockedFile(int fd) : fd_(fd) {}
    static Result<std::unique_ptr<LockedFile>> lock(int fd, const std::string& taken);
    const int fd_;
};

/// Removes a file in its destructor: after everything that the process opened later has been closed.
struct RemovedAtEnd {
    const std::filesystem::path path;
    explicit RemovedAtEnd(std::filesystem::path p) : path(std::move(p)) {}
    RemovedAtEnd(const RemovedAtEnd&) = delete;
    RemovedAtEnd& operator=(const RemovedAtEnd&) = delete;
    ~RemovedAtEnd() {
        std::error_code failed;
        std::filesystem::remove(path, failed);
    }
};

inline constexpr char kPidFile[] = "gnstord.pid";
inline constexpr char kLockFile[] = "gnstord.lock";
inline constexpr char kStartLockFile[] = "up.lock";  ///< held by `gnstor up` while it starts processes

}  // namespace gnstor::cli
