// begun_store.hpp: the folder of a store that a put begins: gone again with what the put made in it, unless
// the put was done.
//
// A refused first put would otherwise leave a store whose size nobody chose. What was there before stays; so
// does what others have put into the folder meanwhile. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace gnstor::cli {

/// The name of the records beside the stores.
inline constexpr const char* kRecordsFile = "records.db";

class BegunStore {
  public:
    /// Before anything is made: looks which folders are missing.
    explicit BegunStore(const std::filesystem::path& directory);
    /// Unless it is kept: removes the records, where no store is left that they could be of, and the folders
    /// that were missing, as far as they are empty.
    ~BegunStore();
    BegunStore(const BegunStore&) = delete;
    BegunStore& operator=(const BegunStore&) = delete;

    void keep() { kept_ = true; }
    /// Unless it is kept: takes the stores' names away. While their drives have them locked, or another
    /// process could open them in between.
    void forget_stores(std::uint32_t ssds) const;

  private:
    const std::filesystem::path directory_;
    std::vector<std::filesystem::path> missing_;  ///< the deepest first
    bool kept_ = false;
};

}  // namespace gnstor::cli
