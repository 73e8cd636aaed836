// target_guard.hpp: which files `gnstor get` and `cat` never write: those that an array works with.
//
// Refused, before anything is opened for writing:
//   * a store, by its first bytes, wherever it lies, also a device;
//   * a file that somebody holds locked (flock, fcntl): a daemon's, a database's;
//   * a socket;
//   * whatever lies, or would lie, in a folder that holds an array: stores, records, token, logs;
//   * files of the array that is read and its token under any other name, as of a hard link.
// Reads only. One thread; call it before this process opens the array, whose locks it would meet.
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
