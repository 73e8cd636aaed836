// store_closing.hpp: whether a process closed its SSD stores before it ended.
//
// Only its parent gets the exit status, and on a full disk the process cannot write a message. So the caller
// opens the same stores while the process has them, and reads their boot records after it has ended. Unix;
// one thread.
#pragma once

#include "ssd/flash/file/posix_file.hpp"

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace gnstor::cli {

class StoresInUse {
  public:
    /// The stores that a process has open for writing; empty if this user may not read its /proc/PID/fd.
    /// Stores that it opened read-only (on a read-only file system) are not included.
    static StoresInUse of(pid_t pid);
    /// The stores in these folders. Any process may have used them last.
    static StoresInUse in(const std::vector<std::filesystem::path>& folders);
    /// Call it after that process has ended. Text for an error message: the stores whose boot records are not
    /// clean or, if all are, that the pid file (which is removed last) still exists; and the consequence.
    /// Empty: all was closed.
    [[nodiscard]] std::string unfinished(const std::filesystem::path& pid_file, pid_t pid) const;
    /// For processes that ended earlier: the stores whose acknowledged data a restart of the machine would
    /// lose, and what to do. Empty: none.
    [[nodiscard]] std::string lost_by_restart() const;

  private:
    struct OpenStore {
        std::string path;
        ssd::FileDescriptor file;
    };
    std::vector<OpenStore> stores_;
};

}  // namespace gnstor::cli
