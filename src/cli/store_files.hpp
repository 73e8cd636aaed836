// store_files.hpp: the files of SSDs' stores in an array's folder, by their names.
#pragma once

#include <gnstor/base/result.hpp>

#include <filesystem>
#include <vector>

namespace gnstor::cli {

/// ssd-*.store in this folder, in order of their names; none if there is no such folder. kIo: it cannot be
/// read.
Result<std::vector<std::filesystem::path>> store_files(const std::filesystem::path& folder);

}  // namespace gnstor::cli
