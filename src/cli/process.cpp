#include "cli/process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <thread>

extern char** environ;

namespace gnstor::cli {
namespace {

bool is_full(int why) {
    return why == ENOSPC || why == EDQUOT;
}

/// What to do about a log that cannot be opened for this reason.
std::string advise_on_log(int why, const std::filesystem::path& log, const std::string& on_read_only) {
    if (why == EROFS) return "; " + on_read_only;
    if (is_full(why)) return "; free some disk space";
    if (why == EACCES || why == EPERM)
        return fmt::format(
            "; it or its folder {} belongs to another user or is not writable: make both writable, or choose "
            "another folder with --dir",
            log.parent_path().string());
    return "";
}

}  // namespace

void hold_standard_descriptors() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
        while (::fcntl(fd, F_GETFD) < 0) {
            const int held = ::open("/", O_PATH);  // the lowest one that is free
            if (held < 0) std::abort();
        }
}

std::filesystem::path find_daemon() {
    if (const char* named = std::getenv("GNSTORD"); named != nullptr && *named != 0) return named;
    std::error_code failed;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
    return failed ? std::filesystem::path("gnstord") : self.parent_path() / "gnstord";
}

Result<pid_t> spawn_detached(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                             const std::filesystem::path& log, const std::string& on_read_only) {
    std::vector<std::string> words{program.string()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    // Opened here, so that an error names the log and not the program. It is the program's descriptors 1
    // and 2.
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out < 0) {
        const int why = errno;
        return error(why == EROFS || why == EACCES ? Errc::kPermission : Errc::kIo,
                     "{} cannot be started: its log {} cannot be written: {}{}", program.filename().string(),
                     log.string(), std::strerror(why), advise_on_log(why, log, on_read_only));
    }
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, out, 2);
    // A session of its own: the terminal's hang-up and interrupts are not meant for it.
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    pid_t pid = 0;
    const int failed = ::posix_spawn(&pid, program.c_str(), &files, &attributes, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    ::close(out);
    if (failed != 0)
        return error(Errc::kIo, "{} cannot be started: {}; set GNSTORD to where gnstord is", program.string(),
                     std::strerror(failed));
    return pid;
}

bool alive(pid_t pid) {
    // A child that has ended is reaped here, so that it does not pass for a living one.
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

std::uintmax_t end_of_log(const std::filesystem::path& file) {
    std::error_code failed;
    const std::uintmax_t bytes = std::filesystem::file_size(file, failed);
    return failed ? 0 : bytes;
}

std::string last_words(const std::filesystem::path& file, std::uintmax_t from) {
    constexpr std::size_t kLines = 5;
    std::ifstream in(file);
    in.seekg(static_cast<std::streamoff>(from));
    std::deque<std::string> last;
    for (std::string line; std::getline(in, line);) {
        if (line.empty()) continue;
        last.push_back(line);
        if (last.size() > kLines) last.pop_front();
    }
    if (last.empty()) return "it said nothing in its log " + file.string();
    std::string text = last.back();
    if (last.size() == 1) return text + " (log: " + file.string() + ")";
    text += "\nits log " + file.string() + " ends with";
    for (const std::string& line : last) text += "\n  " + line;
    return text;
}

}  // namespace gnstor::cli
