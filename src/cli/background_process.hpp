// background_process.hpp: a program that is started in a session of its own and logs to a file, and how it
// tells its starter why it did not start. Unix; one thread.
//
// The starter and the program share a pipe, whose descriptor an environment variable names. The log may be on
// a full disk, which takes nothing or a part of an error; the pipe takes it whole.
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
    /// Standard output and error are appended to `log`. `on_read_only`: the advice where the log lies on a
    /// read-only file system.
    static Result<std::shared_ptr<BackgroundProcess>> start(const std::filesystem::path& program,
                                                            const std::vector<std::string>& arguments,
                                                            const std::filesystem::path& log,
                                                            const std::string& on_read_only);
    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] bool ended();
    /// For an error message, when it has ended: its error, then where the log is, and the last lines that it
    /// wrote there, where there are more. If it told no error: its last line, or how it ended.
    [[nodiscard]] std::string why_it_ended() const;

  private:
    BackgroundProcess(std::filesystem::path log, std::uintmax_t log_from, ssd::FileDescriptor pipe)
        : log_(std::move(log)), log_from_(log_from), pipe_(std::move(pipe)) {}
    [[nodiscard]] std::string told() const;
    [[nodiscard]] std::vector<std::string> last_lines() const;
    [[nodiscard]] std::string exit_text() const;

    const std::filesystem::path log_;
    const std::uintmax_t log_from_;  ///< where it ended before the program was started
    const ssd::FileDescriptor pipe_;
    pid_t pid_ = 0;
    bool ended_ = false;
    std::optional<int> status_;  ///< of waitpid(); nothing: another one has reaped it
};

/// The program's side. Without a starter nothing is told.
class Starter {
  public:
    /// What the environment names, which is removed from it.
    static Starter from_environment();
    /// The error that ends this program, in one call. Never waits.
    void tell(const std::string& error) const;

  private:
    explicit Starter(ssd::FileDescriptor pipe) : pipe_(std::move(pipe)) {}
    ssd::FileDescriptor pipe_;
};

}  // namespace gnstor::cli
