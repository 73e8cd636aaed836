// put_intent.hpp: the sign in a store's folder that the put of an object goes on: an empty file,
// NAME.putting.
//
// Invariants
//   * it is stable before begin() returns, and gone for good, also after a power cut, when end() returns;
//   * so an object whose put was reported as done has none, whatever became of its records since.
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

    /// Names whose puts were killed, or are over but for their last step.
    [[nodiscard]] static std::vector<std::string> left_behind(const std::filesystem::path& folder);
    static Result<void> forget(const std::filesystem::path& folder, const std::string& name);

  private:
    PutIntent(std::filesystem::path folder, std::string name)
        : folder_(std::move(folder)), name_(std::move(name)) {}
    const std::filesystem::path folder_;
    const std::string name_;
};

}  // namespace gnstor::cli
