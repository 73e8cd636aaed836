// put_intent.hpp: marks the put of an object as in progress: an empty file NAME.putting in the store's
// folder.
//
// Invariants
//   * the file is on stable storage when begin() returns; its removal is stable when end() returns;
//   * so an object whose put was reported as done has no such file, even if its records went back to an older
//     state since.
// One thread; the folder is locked by the process that has its array open.
#pragma once

#include <gnstor/base/result.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::cli {

class PutIntent {
  public:
    static Result<std::unique_ptr<PutIntent>> begin(const std::filesystem::path& folder,
                                                    const std::string& name);
    Result<void> end() { return forget(folder_, name_); }

    /// Names of objects whose put was killed before end(): the object may be whole or not.
    [[nodiscard]] static std::vector<std::string> left_behind(const std::filesystem::path& folder);
    static Result<void> forget(const std::filesystem::path& folder, const std::string& name);

  private:
    PutIntent(std::filesystem::path folder, std::string name)
        : folder_(std::move(folder)), name_(std::move(name)) {}
    const std::filesystem::path folder_;
    const std::string name_;
};

}  // namespace gnstor::cli
