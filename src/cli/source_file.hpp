// source_file.hpp: the input of `gnstor put`: a file or standard input, read once from beginning to end.
//
// The length is known only for a regular file whose st_size is reliable: a file of size 0 may be generated as
// it is read (/proc), and so may any file of a kernel file system (/sys). Input of unknown length is read to
// its end first (spool.hpp). One thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstdint>
#include <filesystem>
#include <istream>
#include <memory>

namespace gnstor::cli {

class SourceFile {
  public:
    /// "-": standard input. kNotFound if it cannot be opened, kInvalidArgument for a folder.
    static Result<std::unique_ptr<SourceFile>> open(const std::filesystem::path& path);
    virtual ~SourceFile() = default;
    [[nodiscard]] virtual std::istream& stream() = 0;
    /// ~0: unknown until it has been read.
    [[nodiscard]] virtual std::uint64_t bytes() const = 0;
    /// The first read error; the stream itself only has a flag.
    [[nodiscard]] virtual Result<void> state() const = 0;
};

}  // namespace gnstor::cli
