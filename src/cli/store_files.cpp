#include "cli/store_files.hpp"

#include <algorithm>
#include <string>

namespace gnstor::cli {

Result<std::vector<std::filesystem::path>> store_files(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    std::error_code failed;
    for (auto it = std::filesystem::directory_iterator(folder, failed);
         !failed && it != std::filesystem::directory_iterator(); it.increment(failed)) {
        const std::string name = it->path().filename().string();
        if (name.starts_with("ssd-") && name.ends_with(".store")) files.push_back(it->path());
    }
    if (failed && failed != std::errc::no_such_file_or_directory)
        return error(Errc::kIo, "the folder {} cannot be read: {}", folder.string(), failed.message());
    std::sort(files.begin(), files.end());
    return files;
}

}  // namespace gnstor::cli
