// store_closing.hpp: whether a process that had SSD stores closed them before it ended.
//
// Its exit status is for its parent alone, and where a disk is full it can leave no word. So its stores are
// opened beside it while it has them, and their boot records are read when it has ended. Unix; one thread.
#pragma once

#include "ssd/flash/file/posix_file.hpp"

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace gnstor::cli {

class StoresInUse {
  public:
    /// Those that a process has open for writing; none where the kernel does not show this user its files. A
    /// store that is only viewed (on a read-only file system) is not among them.
    static StoresInUse of(pid_t pid);
    /// The stores in these folders. Any process may have used them last.
    static StoresInUse in(const std::vector<std::filesystem::path>& folders);
    /// To be asked when that process has ended: which stores still say that they are in use, or else that its
    /// pid file, which is removed after all else, is there; and what comes of that. Empty: all was closed.
    [[nodiscard]] std::string unfinished(const std::filesystem::path& pid_file, pid_t pid) const;
    /// Of processes that have ended before: which stores hold acknowledged data that does not survive a
    /// restart of the machine, and what to do. Empty: none does.
    [[nodiscard]] std::string lost_by_restart() const;

  private:
    struct OpenStore {
        std::string path;
        ssd::FileDescriptor file;
    };
    std::vector<OpenStore> stores_;
};

}  // namespace gnstor::cli
