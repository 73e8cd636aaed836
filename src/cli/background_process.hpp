// background_process.hpp: starts a program in a session of its own with its output in a log file, and passes
// the error that ends the program back to the process that started it. Unix; one thread.
//
// Both processes share a pipe; an environment variable names its descriptor. The error goes through the pipe
// as well as to the log, because a log on a full disk may lose all or part of it.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash/file/posix_file.hpp"

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gnstor::cli {

/// The starter's side.
class BackgroundProcess {
  public:
    /// Standard output and standard error are appended to `log`. `on_read_only`: advice in the error message
    /// if the log lies on a read-only file system.
    static Result<std::shared_ptr<BackgroundProcess>> start(const std::filesystem::path& program,
                                                            const std::vector<std::string>& arguments,
                                                            const std::filesystem::path& log,
                                                            const std::string& on_read_only);
    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] bool ended();
    /// Text for an error message; call it after the program has ended. The error from the pipe, the path of
    /// the log and, if the program logged several lines, the last of them. Without an error in the pipe: the
    /// last line of the log, or the exit status.
    [[nodiscard]] std::string why_it_ended() const;

  private:
    BackgroundProcess(std::filesystem::path log, std::uintmax_t log_from, ssd::FileDescriptor pipe)
        : log_(std::move(log)), log_from_(log_from), pipe_(std::move(pipe)) {}
    [[nodiscard]] std::string told() const;
    [[nodiscard]] std::vector<std::string> last_lines() const;
    [[nodiscard]] std::string exit_text() const;

    const std::filesystem::path log_;
    const std::uintmax_t log_from_;  ///< size of the log before the program was started, bytes
    const ssd::FileDescriptor pipe_;
    pid_t pid_ = 0;
    bool ended_ = false;
    std::optional<int> status_;  ///< from waitpid(); nullopt: reaped elsewhere
};

/// The started program's side. Does nothing in a program that BackgroundProcess did not start.
class Starter {
  public:
    /// Takes over the pipe that the environment variable names, and unsets the variable.
    static Starter from_environment();
    /// Sends the error that ends this program, in one write that never blocks.
    void tell(const std::string& error) const;

  private:
    explicit Starter(ssd::FileDescriptor pipe) : pipe_(std::move(pipe)) {}
    ssd::FileDescriptor pipe_;
};

}  // namespace gnstor::cli
