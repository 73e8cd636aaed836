// daemon_process.hpp: which process is the gnstord behind a socket or of a folder, and the files by which
// that is known. Unix; one thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace gnstor::cli {

/// The process that listens at a Unix socket, as the kernel knows it (SO_PEERCRED); nothing where nobody
/// does.
[[nodiscard]] std::optional<pid_t> listener_of(const std::filesystem::path& socket);

/// The process that a pid file names, if it holds this lock file open; failing that, who has locked that
/// file: where the disk was full there is no pid file, or one of an earlier process.
[[nodiscard]] std::optional<pid_t> holder_of(const std::filesystem::path& pid_file,
                                             const std::filesystem::path& lock_file);

/// The gnstord that serves a folder: holder_of() its pid file and lock file. A pid file may outlive its
/// process, and its number may be another's by now.
[[nodiscard]] std::optional<pid_t> daemon_of(const std::filesystem::path& directory);

/// Whether the program of a process is gnstord, by its name.
[[nodiscard]] bool is_gnstord(pid_t pid);

/// A lock on a file or folder, held until this object or the process goes.
class LockedFile {
  public:
    /// kBusy with `taken` where another process holds it.
    static Result<std::unique_ptr<LockedFile>> take(const std::filesystem::path& file,
                                                    const std::string& taken);
    /// The same of a folder, which has to be there.
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

/// A file that is removed when this object goes: of a process, after all that it opened since.
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

}  // namespace gnstor::cli
