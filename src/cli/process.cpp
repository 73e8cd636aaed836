#include "cli/process.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

namespace gnstor::cli {

bool is_full(int why) {
    return why == ENOSPC || why == EDQUOT;
}

void hold_standard_descriptors() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
        while (::fcntl(fd, F_GETFD) < 0) {
            const int held = ::open("/", O_PATH);  // open() takes the lowest free number
            if (held < 0) std::abort();
        }
}

std::filesystem::path find_daemon() {
    if (const char* named = std::getenv("GNSTORD"); named != nullptr && *named != 0) return named;
    std::error_code failed;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
    return failed ? std::filesystem::path("gnstord") : self.parent_path() / "gnstord";
}

bool alive(pid_t pid) {
    // Reaps a child that has ended: kill() below would still find the zombie.
    if (::waitpid(pid, nullptr, WNOHANG) == pid) return false;
    return ::kill(pid, 0) == 0 || errno == EPERM;
}

Result<void> write_over(const std::filesystem::path& file, const std::string& text) {
    const auto refuse = [&file] {
        const int why = errno;
        const char* const what_to_do = is_full(why) ? "; free some disk space" : "";
        return error(Errc::kIo, "{} cannot be written: {}{}", file.string(), std::strerror(why), what_to_do);
    };
    std::error_code failed;
    const bool is_new = !std::filesystem::exists(file, failed);
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return refuse();
    const auto written = ::pwrite(fd, text.data(), text.size(), 0);
    if (written >= 0 && static_cast<std::size_t>(written) < text.size()) errno = ENOSPC;
    const bool good =
        written == static_cast<ssize_t>(text.size()) && ::ftruncate(fd, static_cast<off_t>(text.size())) == 0;
    const Result<void> done = good ? Result<void>{} : refuse();
    ::close(fd);
    if (!good && is_new) std::filesystem::remove(file, failed);
    return done;
}

Result<void> write_pid_file(const std::filesystem::path& file, pid_t pid) {
    return write_over(file, fmt::format("{}\n", pid));
}

std::optional<pid_t> read_pid_file(const std::filesystem::path& file) {
    std::ifstream in(file);
    pid_t pid = 0;
    if (!(in >> pid) || pid <= 1) return std::nullopt;
    return pid;
}

bool wait_until(std::chrono::milliseconds deadline, const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (!condition()) {
        if (std::chrono::steady_clock::now() >= end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
}

}  // namespace gnstor::cli
