// store_files.hpp: the files of SSDs' stores in an array's folder, by their names.
#pragma once

#include <filesystem>
#include <vector>

namespace gnstor::cli {

/// ssd-*.store in this folder, in order of their names; none where the folder cannot be read.
std::vector<std::filesystem::path> store_files(const std::filesystem::path& folder);

}  // namespace gnstor::cli
