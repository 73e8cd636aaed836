// token_file.hpp: the file with the token of the HTTP interface: created atomically if absent.
//
// Mode 0600, owned by the user who runs the daemon; a file that other users may access is refused. Host code.
#pragma once

#include <gnstor/base/result.hpp>

#include <filesystem>
#include <string>

namespace gnstor::daemon {

/// Reads the token. kNotFound; kPermission: other users may access the file; kInvalidArgument: no valid token
/// in it.
Result<std::string> read_token(const std::filesystem::path& file);
/// The same, but creates the file with a new token of 256 random bits if there is none. Concurrent callers
/// get the same token.
Result<std::string> read_or_make_token(const std::filesystem::path& file);

}  // namespace gnstor::daemon
