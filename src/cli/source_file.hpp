// source_file.hpp: what `gnstor put` reads: a file, or standard input, from its beginning to its end.
//
// A length is promised only for a regular file whose size can be believed: one of no bytes may be made as it
// is read (/proc), and so may any of a file system without a medium (/sys). What has no length is read to
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
    /// "-": standard input. kNotFound for what cannot be opened, kInvalidArgument for a folder.
    static Result<std::unique_ptr<SourceFile>> open(const std::filesystem::path& path);
    virtual ~SourceFile() = default;
    [[nodiscard]] virtual std::istream& stream() = 0;
    /// ~0: not known before it was read.
    [[nodiscard]] virtual std::uint64_t bytes() const = 0;
    /// The first failure to read it; the stream only knows that there was one.
    [[nodiscard]] virtual Result<void> state() const = 0;
};

}  // namespace gnstor::cli
