#include "cli/begun_store.hpp"

#include <fmt/core.h>

#include <system_error>

namespace gnstor::cli {

namespace fs = std::filesystem;

BegunStore::BegunStore(const fs::path& directory) : directory_(directory) {
    std::error_code failed;
    for (fs::path at = directory;
         !at.empty() && fs::symlink_status(at, failed).type() == fs::file_type::not_found;
         at = at.parent_path())
        if (at.has_filename()) missing_.push_back(at);
}

BegunStore::~BegunStore() {
    std::error_code failed;
    // Records of stores that others have begun meanwhile are theirs.
    if (!kept_ && !fs::exists(directory_ / "ssd-0.store", failed))
        for (const char* part : {"", "-wal", "-shm", "-journal"})
            fs::remove(directory_ / fmt::format("{}{}", kRecordsFile, part), failed);
    for (const fs::path& folder : missing_)
        if (kept_ || !fs::remove(folder, failed)) return;
}

void BegunStore::forget_stores(std::uint32_t ssds) const {
    std::error_code failed;
    for (std::uint32_t i = 0; i < ssds && !kept_; ++i)
        fs::remove(directory_ / fmt::format("ssd-{}.store", i), failed);
}

}  // namespace gnstor::cli
