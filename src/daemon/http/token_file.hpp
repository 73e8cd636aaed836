// token_file.hpp: the file that holds the token of the HTTP interface: made where there is none, never half.
//
// Mode 0600, of the user who runs the daemon: what others may read is no secret and is refused. Host code.
#pragma once

#include <gnstor/base/result.hpp>

#include <filesystem>
#include <string>

namespace gnstor::daemon {

/// The token in a file. kNotFound; kPermission where others may read it; kInvalidArgument where it holds
/// none.
Result<std::string> read_token(const std::filesystem::path& file);
/// The same, with a new one of 256 random bits where there is no file. Two who begin at once get the same.
Result<std::string> read_or_make_token(const std::filesystem::path& file);

}  // namespace gnstor::daemon
