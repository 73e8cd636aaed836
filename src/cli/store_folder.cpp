#include "cli/store_folder.hpp"

#include "daemon/records/sqlite_store.hpp"

#include <fmt/core.h>

#include <system_error>

namespace gnstor::cli {

namespace fs = std::filesystem;

Result<std::unique_ptr<StoreFolder>> StoreFolder::take(const fs::path& directory) {
    std::unique_ptr<StoreFolder> folder(new StoreFolder(directory));
    std::error_code failed;
    for (fs::path at = directory;
         !at.empty() && fs::symlink_status(at, failed).type() == fs::file_type::not_found;
         at = at.parent_path())
        if (at.has_filename()) folder->missing_.push_back(at);
    fs::create_directories(directory, failed);
    if (failed)
        return error(Errc::kIo, "the folder {} cannot be made: {}", directory.string(), failed.message());
    Result<std::unique_ptr<LockedFile>> lock = LockedFile::take_folder(
        directory, fmt::format("the folder {} is in use by gnstord or another put; wait until the put has "
                               "ended, or stop gnstord with 'gnstor down'",
                               directory.string()));
    if (!lock.ok()) return lock.error();
    folder->lock_ = std::move(lock).value();
    return folder;
}

StoreFolder::~StoreFolder() {
    std::error_code failed;
    if (!removes_) return;
    for (const char* part : {"", "-wal", "-shm", "-journal"})
        fs::remove(directory_ / fmt::format("{}{}", daemon::kRecordsFile, part), failed);
    for (const fs::path& made : missing_)
        if (!fs::remove(made, failed)) return;
}

void StoreFolder::forget_stores(std::uint32_t ssds) const {
    std::error_code failed;
    for (std::uint32_t i = 0; i < ssds && removes_; ++i)
        fs::remove(directory_ / fmt::format("ssd-{}.store", i), failed);
}

}  // namespace gnstor::cli
