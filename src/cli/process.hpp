// process.hpp: helpers for processes: standard descriptors, pid files, whether a process lives. Unix; one
// thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace gnstor::cli {

/// Call it first in main(). If a standard descriptor is closed, the next file that is opened, such as a
/// store, would get its number, and output would be written there. Fills each closed one with a descriptor
/// that can be neither read nor written (EBADF, as for a closed one).
void hold_standard_descriptors();
/// Path of gnstord: the environment variable GNSTORD, else beside this program.
[[nodiscard]] std::filesystem::path find_daemon();
/// Whether the errno `why` means a full disk or an exceeded quota.
[[nodiscard]] bool is_full(int why);
/// Whether a process with this id lives; reaps a child that has ended.
[[nodiscard]] bool alive(pid_t pid);
/// Overwrites the file in place: on a full disk, the blocks of an existing file are enough. Not atomic: a
/// concurrent reader may see old and new bytes. A new file that cannot be written is removed.
Result<void> write_over(const std::filesystem::path& file, const std::string& text);
Result<void> write_pid_file(const std::filesystem::path& file, pid_t pid);
/// nullopt if there is no such file, or no valid process id in it.
[[nodiscard]] std::optional<pid_t> read_pid_file(const std::filesystem::path& file);
/// Polls `condition` every 20 ms. False: the deadline passed before it was true.
[[nodiscard]] bool wait_until(std::chrono::milliseconds deadline, const std::function<bool()>& condition);

}  // namespace gnstor::cli
