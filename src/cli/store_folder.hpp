// store_folder.hpp: the folder of a store while `put --store` works in it. If the first put of a folder
// fails, what it has made there is removed: stores, records and the folders that were missing.
//
// A failed first put would otherwise leave a store whose capacity its user did not choose. The folder is
// locked (flock) from before anything in it is looked at until all that is removed: another put, or a gnstord
// that starts there, neither sees half of a store nor loses what it makes itself. One thread.
#pragma once

#include "cli/daemon_process.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

namespace gnstor::cli {

class StoreFolder {
  public:
    /// Makes the folder where it is missing, and locks it. kBusy: another program has it locked.
    static Result<std::unique_ptr<StoreFolder>> take(const std::filesystem::path& directory);
    ~StoreFolder();
    StoreFolder(const StoreFolder&) = delete;
    StoreFolder& operator=(const StoreFolder&) = delete;

    /// Nothing is removed: there was a store before, or the put has succeeded.
    void keep() { kept_ = true; }
    /// Unless kept: removes the names of the stores. For a caller that has them open: until it closes them
    /// their locks keep every other program out.
    void forget_stores(std::uint32_t ssds) const;

  private:
    explicit StoreFolder(const std::filesystem::path& directory) : directory_(directory) {}

    const std::filesystem::path directory_;
    std::vector<std::filesystem::path> missing_;  ///< before take(), the deepest first
    std::unique_ptr<LockedFile> lock_;
    bool kept_ = false;
};

}  // namespace gnstor::cli
