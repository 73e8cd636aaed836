// process.hpp: this process's standard descriptors, whether others live, and their pid files. Unix; one
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

/// First of all in main(): a standard descriptor that is closed would become that of the next file that is
/// opened, a store say, and what is printed would be written there. It is taken here by one that can be
/// neither read nor written (EBADF, as where it is closed).
void hold_standard_descriptors();
/// The program `name` beside this one, or what the environment variable GNSTORD names.
[[nodiscard]] std::filesystem::path find_daemon();
/// Whether errno says that a disk has no room.
[[nodiscard]] bool is_full(int why);
/// Whether a process of this user with that id is there.
[[nodiscard]] bool alive(pid_t pid);
/// Overwrites the file in place: on a full disk, the space of a file that a killed process left is enough.
/// A reader at the same time may see old and new bytes. A new file that cannot be written is removed.
Result<void> write_over(const std::filesystem::path& file, const std::string& text);
Result<void> write_pid_file(const std::filesystem::path& file, pid_t pid);
/// Nothing where there is no such file, or nothing sensible in it.
[[nodiscard]] std::optional<pid_t> read_pid_file(const std::filesystem::path& file);
/// Asks again and again (every 20 ms) until it is so, or the deadline has passed.
[[nodiscard]] bool wait_until(std::chrono::milliseconds deadline, const std::function<bool()>& condition);

}  // namespace gnstor::cli
