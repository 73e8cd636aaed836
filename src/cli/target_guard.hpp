// target_guard.hpp: files that `gnstor get` and `cat` refuse to write: those of an array.
//
// Refused, before anything is opened for writing:
//   * a store, by its first bytes, wherever it lies, also a device;
//   * a file, given by its name, that another program holds locked (flock, fcntl), as daemons and databases
//   do;
//   * a socket;
//   * an existing or new file in the folder of an array: stores, records, token, logs;
//   * a hard link elsewhere to a file of the array that is read, or to its token.
// It opens files for reading alone. One thread. Call it before this process opens the array: it would take
// the array's own locks for those of another program.
#pragma once

#include <gnstor/base/result.hpp>

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <vector>

namespace gnstor::cli {

/// What belongs to the array that is read.
struct ArrayPlaces {
    std::vector<std::filesystem::path> folders;  ///< those that are not there count for nothing
    std::vector<std::filesystem::path> files;    ///< outside of them
};

/// `named`: what the user said, for messages. `real`: the same without symbolic links; empty: an open
/// descriptor of this process, which has no name. `there`: what it is, where it is anything.
Result<void> refuse_what_arrays_use(const std::filesystem::path& named, const std::filesystem::path& real,
                                    const std::optional<struct stat>& there, const ArrayPlaces& array);

}  // namespace gnstor::cli
