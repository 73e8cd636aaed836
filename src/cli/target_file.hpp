// target_file.hpp: the file that `gnstor get` writes: whole at the end, or untouched.
//
// Invariants
//   * nothing is made or opened before the first byte is written (or finish()), so an earlier failure leaves
//     no trace;
//   * a regular or missing target: the contents go to a hidden temporary file beside it (".NAME.gnstor-…"),
//     which finish() renames over the target. Without finish() the destructor removes it; so do SIGINT,
//     SIGTERM and SIGHUP. A symbolic link stays: the file that it points to is replaced. Mode and, where
//     allowed, owner are kept;
//   * a device or a FIFO is written directly, neither truncated nor replaced;
//   * an open descriptor of this process (/dev/stdout, /dev/fd/5) is written directly, also if it is a
//     regular file.
// One thread; one object at a time, because a process has one set of signal handlers.
#pragma once

#include <gnstor/base/result.hpp>

#include "cli/target_guard.hpp"

#include <filesystem>
#include <memory>
#include <ostream>
#include <string>

namespace gnstor::cli {

class TargetFile {
  public:
    /// Checks the target, changes nothing. kInvalidArgument for a folder and for files that an array uses
    /// (target_guard.hpp); kNotFound if its parent folder is missing; kIo if it cannot be written.
    static Result<std::unique_ptr<TargetFile>> at(const std::filesystem::path& path,
                                                  const ArrayPlaces& array = {});
    static Result<std::unique_ptr<TargetFile>> standard_output(const ArrayPlaces& array = {});
    virtual ~TargetFile() = default;
    [[nodiscard]] virtual std::ostream& stream() = 0;
    /// The first error in making or writing the file; the stream itself only has a flag.
    [[nodiscard]] virtual Result<void> state() const = 0;
    /// Whether the contents go to standard output, so that a message there would follow them.
    [[nodiscard]] virtual bool is_standard_output() const = 0;
    /// Call it after the last byte. The target then has the new contents; after a failure a regular one is
    /// unchanged.
    virtual Result<void> finish() = 0;
};

}  // namespace gnstor::cli
