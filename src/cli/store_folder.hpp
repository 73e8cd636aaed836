// store_folder.hpp: the folder of a store, locked while `put --store` works in it. If the first put in a
// folder fails, everything that it made there is removed: stores, records and the folders that were missing.
// Otherwise a store would remain whose capacity the user did not choose.
//
// The lock (flock) is taken before anything in the folder is read and held until the removal is complete:
// another put, or a gnstord that starts there, neither sees half a store nor loses files that it made. One
// thread.
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

    /// Call it if there is neither a store nor records: what is made from now on is removed again, unless
    /// keep() is called.
    void begin() { removes_ = true; }
    /// The put has succeeded: nothing is removed.
    void keep() { removes_ = false; }
    /// Between begin() and keep(): unlinks the stores. The caller still has them open, and their locks keep
    /// other programs out until it closes them.
    void forget_stores(std::uint32_t ssds) const;

  private:
    explicit StoreFolder(const std::filesystem::path& directory) : directory_(directory) {}

    const std::filesystem::path directory_;
    std::vector<std::filesystem::path> missing_;  ///< folders that take() made, the deepest first
    std::unique_ptr<LockedFile> lock_;
    bool removes_ = false;
};

}  // namespace gnstor::cli
