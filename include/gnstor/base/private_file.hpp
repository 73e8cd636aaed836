// private_file.hpp: small files with secrets, which only their owner may access; and files that are created
// completely or not at all. Host code; any thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace gnstor {

/// How messages call such a file, and what to do if others may have read it.
struct PrivateFileWords {
    std::string_view name;         ///< "token file"
    std::string_view replacement;  ///< "make a new token (remove the file and restart gnstord)"
};

/// Makes the folder of an array's keys, records and sockets if it is missing, with its parents. kPermission: it
/// belongs to another user than this process's and root, or every user may write in it. kIo: it cannot be made.
Result<void> make_private_folder(const std::filesystem::path& folder);

/// Reads at most `limit` bytes. kNotFound; kPermission: it cannot be read, belongs to another user than this
/// process's and root, or other users may access it; kInvalidArgument: it is no regular file.
Result<std::string> read_private_file(const std::filesystem::path& file, std::size_t limit,
                                      const PrivateFileWords& words);

/// Creates the file with these contents and this mode. If it exists already, that one is kept: of concurrent
/// callers the first one wins, and readers see a complete file or none.
Result<void> create_file(const std::filesystem::path& file, std::string_view text, mode_t mode,
                         std::string_view name);

/// Puts a private file of these contents (mode 0600) in the place of the one that may be there; durable.
/// Readers see the former contents or these. One caller at a time.
Result<void> replace_private_file(const std::filesystem::path& file, std::string_view text,
                                  std::string_view name);

}  // namespace gnstor
