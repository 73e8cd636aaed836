// target_file.hpp: the file that `gnstor get` writes: whole at the end, or untouched.
//
// Invariants
//   * nothing is made or opened before the first byte comes (or finish()), so what fails earlier leaves no
//     trace;
//   * a regular target, or none: a hidden file of a name of its own beside it (".NAME.gnstor-…"), renamed
//   over
//     it by finish(); gone with this object without that, and with the process on SIGINT, SIGTERM and SIGHUP.
//     A symbolic link stays: what it leads to is the target. Mode and, where allowed, owner are kept;
//   * a device, a FIFO: written straight into, neither truncated nor replaced;
//   * an open descriptor of this process (/dev/stdout, /dev/fd/5): written there, whatever it leads to.
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
    /// Looks at the target, changes nothing. kInvalidArgument for a folder and for what an array works with
    /// (target_guard.hpp); kNotFound without the folder that it is to lie in; kIo for what may not be
    /// written.
    static Result<std::unique_ptr<TargetFile>> at(const std::filesystem::path& path,
                                                  const ArrayPlaces& array = {});
    static Result<std::unique_ptr<TargetFile>> standard_output(const ArrayPlaces& array = {});
    virtual ~TargetFile() = default;
    [[nodiscard]] virtual std::ostream& stream() = 0;
    /// The first failure to make or write the file; the stream only knows that there was one.
    [[nodiscard]] virtual Result<void> state() const = 0;
    /// Whether what is said on standard output would come behind the contents.
    [[nodiscard]] virtual bool is_standard_output() const = 0;
    /// Everything has come: the target has it afterwards, or is as it was.
    virtual Result<void> finish() = 0;
};

}  // namespace gnstor::cli
