// target_guard.hpp: files that `gnstor get` and `cat` refuse to write: those of an array.
//
// Refused, before anything is opened for writing:
//   * a store, file or device, in any folder: recognised by its first bytes;
//   * a file, given by its name, that another program has locked (flock, fcntl), as daemons and databases do;
//   * a socket;
//   * an existing or new file in the folder of an array: stores, records, token, logs;
//   * a hard link elsewhere to a file of the array being read, or to its token.
// Opens files only for reading. One thread. Call it before this process opens the array: afterwards the
// array's own locks would count as another program's.
#pragma once

#include <gnstor/base/result.hpp>

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <vector>

namespace gnstor::cli {

/// Files and folders of the array being read.
struct ArrayPlaces {
    std::vector<std::filesystem::path> folders;  ///< missing ones are ignored
    std::vector<std::filesystem::path> files;    ///< outside of these folders
};

/// `named`: the path that the user gave, for messages. `real`: the same with symbolic links resolved; empty:
/// an open descriptor of this process, which has no name. `there`: stat of the target; nullopt: it does not
/// exist.
Result<void> refuse_what_arrays_use(const std::filesystem::path& named, const std::filesystem::path& real,
                                    const std::optional<struct stat>& there, const ArrayPlaces& array);

}  // namespace gnstor::cli
