// output.hpp: what the gnstor command shows: tables for people, JSON for programs, errors, progress. One
// thread.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/base/units.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace gnstor::cli {

inline constexpr int kOk = 0, kFailed = 1, kUsage = 2;

/// A text table: columns as wide as their widest cell, the last one not padded. `right`: for each column,
/// whether to right-align it (numbers).
[[nodiscard]] std::string table(const std::vector<std::string>& heading,
                                const std::vector<std::vector<std::string>>& rows,
                                const std::vector<bool>& right);

class Output {
  public:
    bool json = false;
    /// Printed with --output json only.
    void document(const nlohmann::json& value) const;
    /// Printed without --output json only.
    void text(const std::string& lines) const;
    /// Flushes standard output and returns the exit code: `code`, or kFailed if standard output could not be
    /// written.
    [[nodiscard]] int finish(int code) const;
    /// Prints the error to standard error, as text or JSON; returns kFailed.
    [[nodiscard]] int fail(const Error& e) const;
};

/// Text of a progress line; with a bar and the remaining time if `total` is known (not ~0).
[[nodiscard]] std::string progress_text(const std::string& what, std::uint64_t bytes, std::uint64_t total,
                                        double seconds);

/// A progress line on the terminal: drawn at the first step unless that completes the copy, redrawn at most
/// ten times a second, erased by the destructor. Draws nothing if standard error is no terminal, or with
/// `quiet`, for a terminal that shows the data itself.
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
