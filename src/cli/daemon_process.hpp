// daemon_process.hpp: which process is the gnstord behind a socket or of a folder. Unix; one thread; changes
// nothing.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>

namespace gnstor::cli {

/// The process that listens at a Unix socket, as the kernel knows it (SO_PEERCRED); nothing where nobody
/// does.
[[nodiscard]] std::optional<pid_t> listener_of(const std::filesystem::path& socket);

/// The gnstord that serves a folder: what its pid file names, if that process holds the folder's lock file
/// open. A pid file may outlive its process, and its number may be another's by now.
[[nodiscard]] std::optional<pid_t> daemon_of(const std::filesystem::path& directory);

/// Whether the program of a process is gnstord, by its name.
[[nodiscard]] bool is_gnstord(pid_t pid);

inline constexpr char kPidFile[] = "gnstord.pid";
inline constexpr char kLockFile[] = "gnstord.lock";

}  // namespace gnstor::cli
