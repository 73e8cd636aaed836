#include "cli/background_process.hpp"

#include "cli/process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

extern char** environ;

namespace gnstor::cli {
namespace {

constexpr char kPipeVariable[] = "GNSTOR_START_PIPE";
constexpr int kPipeInProgram = 3;  // the first descriptor after the standard ones

/// Advice for an error message: the log cannot be opened, `why` is the errno.
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

/// Size of the log now, bytes: output of a program that is started afterwards begins there.
std::uintmax_t end_of_log(const std::filesystem::path& file) {
    std::error_code failed;
    const std::uintmax_t bytes = std::filesystem::file_size(file, failed);
    return failed ? 0 : bytes;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> all;
    for (std::string& word : words) all.push_back(word.data());
    all.push_back(nullptr);
    return all;
}

/// This program's environment, with the variable that names the pipe.
std::vector<std::string> program_environment() {
    std::vector<std::string> words;
    const std::string named = std::string(kPipeVariable) + "=";
    for (char** word = environ; *word != nullptr; ++word)
        if (!std::string_view(*word).starts_with(named)) words.emplace_back(*word);
    words.push_back(named + std::to_string(kPipeInProgram));
    return words;
}

/// posix_spawn() in a new session, so that the terminal's SIGHUP and SIGINT do not reach the program.
int spawn(pid_t& pid, std::vector<std::string> words, int out, int pipe) {
    std::vector<std::string> environment = program_environment();
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, out, 2);
    posix_spawn_file_actions_adddup2(&files, pipe, kPipeInProgram);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    const std::string program = words.front();
    const int failed = ::posix_spawn(&pid, program.c_str(), &files, &attributes, pointers(words).data(),
                                     pointers(environment).data());
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return failed;
}

}  // namespace

Result<std::shared_ptr<BackgroundProcess>> BackgroundProcess::start(const std::filesystem::path& program,
                                                                    const std::vector<std::string>& arguments,
                                                                    const std::filesystem::path& log,
                                                                    const std::string& on_read_only) {
    std::vector<std::string> words{program.string()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const std::uintmax_t log_from = end_of_log(log);
    // Opened here, so that an error names the log and not the program.
    const ssd::FileDescriptor out(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (out.get() < 0) {
        const int why = errno;
        return error(why == EROFS || why == EACCES ? Errc::kPermission : Errc::kIo,
                     "{} cannot be started: its log {} cannot be written: {}{}", program.filename().string(),
                     log.string(), std::strerror(why), advise_on_log(why, log, on_read_only));
    }
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return error(Errc::kIo, "{} cannot be started: a pipe to it cannot be created: {}",
                     program.filename().string(), std::strerror(errno));
    const ssd::FileDescriptor write_end(ends[1]);
    std::shared_ptr<BackgroundProcess> process(
        new BackgroundProcess(log, log_from, ssd::FileDescriptor(ends[0])));
    if (const int failed = spawn(process->pid_, std::move(words), out.get(), write_end.get()); failed != 0)
        return error(Errc::kIo,
                     "{} cannot be started: {}; set the environment variable GNSTORD to the path of the "
                     "program gnstord",
                     program.string(), std::strerror(failed));
    return process;
}

bool BackgroundProcess::ended() {
    if (ended_) return true;
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        status_ = status;
        ended_ = true;
    }
    return ended_ = ended_ || !alive(pid_);
}

std::string BackgroundProcess::told() const {
    std::string text;
    std::array<char, 4096> part{};
    for (ssize_t bytes = 0; (bytes = ::read(pipe_.get(), part.data(), part.size())) > 0;)
        text.append(part.data(), static_cast<std::size_t>(bytes));
    return text;
}

std::vector<std::string> BackgroundProcess::last_lines() const {
    constexpr std::size_t kLines = 5;
    std::ifstream in(log_);
    in.seekg(static_cast<std::streamoff>(log_from_));
    std::vector<std::string> last;
    for (std::string line; std::getline(in, line);) {
        if (line.empty()) continue;
        last.push_back(line);
        if (last.size() > kLines) last.erase(last.begin());
    }
    return last;
}

std::string BackgroundProcess::exit_text() const {
    if (status_ && WIFSIGNALED(*status_))
        return fmt::format("signal {} ({}) ended it", WTERMSIG(*status_), ::strsignal(WTERMSIG(*status_)));
    if (status_ && WIFEXITED(*status_))
        return fmt::format("it ended with exit code {}", WEXITSTATUS(*status_));
    return "it ended";
}

std::string BackgroundProcess::why_it_ended() const {
    const std::vector<std::string> lines = last_lines();
    std::string text = told();
    if (text.empty() && lines.empty())
        return fmt::format("{} and said nothing in its log {}", exit_text(), log_.string());
    if (text.empty()) text = lines.back();
    if (lines.size() <= 1) return text + " (log: " + log_.string() + ")";
    text += "\nits log " + log_.string() + " ends with";
    for (const std::string& line : lines) text += "\n  " + line;
    return text;
}

Starter Starter::from_environment() {
    const char* const named = std::getenv(kPipeVariable);
    const bool is_named = named != nullptr && named == std::to_string(kPipeInProgram);
    ::unsetenv(kPipeVariable);
    struct stat what = {};
    if (!is_named || ::fstat(kPipeInProgram, &what) != 0 || !S_ISFIFO(what.st_mode))
        return Starter(ssd::FileDescriptor());
    ::fcntl(kPipeInProgram, F_SETFD, FD_CLOEXEC);
    return Starter(ssd::FileDescriptor(kPipeInProgram));
}

void Starter::tell(const std::string& error) const {
    if (pipe_.get() >= 0) (void)!::write(pipe_.get(), error.data(), error.size());
}

}  // namespace gnstor::cli
