// output.hpp: what the gnstor command shows: tables for people, JSON for programs, errors, progress. One
// thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace gnstor::cli {

inline constexpr int kOk = 0, kFailed = 1, kUsage = 2;

/// Rows under a heading; columns as wide as their widest cell, the last one ragged. `right`: columns of
/// numbers.
[[nodiscard]] std::string table(const std::vector<std::string>& heading,
                                const std::vector<std::vector<std::string>>& rows,
                                const std::vector<bool>& right);

/// "1 store", "2 stores".
[[nodiscard]] std::string counted(std::uint64_t n, const char* thing);

class Output {
  public:
    bool json = false;
    /// What programs get; nothing for people.
    void document(const nlohmann::json& value) const;
    /// What people get; nothing for programs.
    void text(const std::string& lines) const;
    /// What the process exits with, `code` being what its command came to: kFailed, too, where standard
    /// output did not take all that was said.
    [[nodiscard]] int finish(int code) const;
    /// To standard error, in the form asked for; returns kFailed.
    [[nodiscard]] int fail(const Error& e) const;
};

/// How far a copy is, as its line says: a bar and what is left where the total is known (not ~0).
[[nodiscard]] std::string progress_text(const std::string& what, std::uint64_t bytes, std::uint64_t total,
                                        double seconds);

/// A line on a terminal, drawn at the first step that is not the last, then ten times a second, and cleared
/// at the end. Nothing where standard error is no terminal, or with `quiet`, for a terminal that shows the
/// data.
class ProgressLine {
  public:
    ProgressLine(std::string what, std::uint64_t total, bool quiet = false);  ///< total ~0: unknown
    ~ProgressLine();
    void at(std::uint64_t bytes) { at(bytes, total_); }
    void at(std::uint64_t bytes, std::uint64_t total);

  private:
    const std::string what_;
    const std::uint64_t total_;
    const bool terminal_;
    bool drawn_ = false;
    std::chrono::steady_clock::time_point started_, last_;
};

}  // namespace gnstor::cli
