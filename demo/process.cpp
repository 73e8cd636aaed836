// process.cpp: spawns a tool, reads what it prints, within a deadline.
#include "process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

extern char** environ;

namespace gnstor::demo {
namespace {

using Clock = std::chrono::steady_clock;

/// Reads until end of file or the deadline; false at the deadline.
bool drain(int fd, std::string& out, Clock::time_point deadline) {
    char buffer[65536];
    while (true) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        if (left <= 0) return false;
        pollfd p{fd, POLLIN, 0};
        if (poll(&p, 1, static_cast<int>(left)) <= 0) continue;
        const ssize_t n = read(fd, buffer, sizeof buffer);
        if (n == 0) return true;
        if (n < 0 && errno != EINTR) return true;
        if (n > 0) out.append(buffer, static_cast<std::size_t>(n));
    }
}

std::vector<char*> environment_in_c_locale(std::string& locale) {
    std::vector<char*> environment;
    for (char** e = environ; *e != nullptr; ++e)
        if (std::strncmp(*e, "LC_ALL=", 7) != 0) environment.push_back(*e);
    environment.push_back(locale.data());
    environment.push_back(nullptr);
    return environment;
}

}  // namespace

Result<ProcessOutput> run_process(const std::vector<std::string>& arguments, std::uint32_t timeout_ms,
                                  Shield shield) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error(Errc::kIo, "cannot create a pipe for {}: {}", arguments[0], std::strerror(errno));
    std::vector<std::string> copies = arguments;
    std::vector<char*> argv;
    for (std::string& a : copies) argv.push_back(a.data());
    argv.push_back(nullptr);
    std::string locale = "LC_ALL=C";
    std::vector<char*> environment = environment_in_c_locale(locale);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    // Signals that this process holds back are its own affair.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    const int apart = shield == Shield::kFromTerminal ? POSIX_SPAWN_SETPGROUP : 0;
    posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | apart));
    pid_t child = -1;
    const int failed = posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environment.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (failed != 0) {
        close(ends[0]);
        return error(Errc::kIo, "cannot run '{}': {}; is it installed?", arguments[0], std::strerror(failed));
    }
    ProcessOutput output{};
    const bool in_time = drain(ends[0], output.out, Clock::now() + std::chrono::milliseconds(timeout_ms));
    close(ends[0]);
    if (!in_time) kill(child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!in_time) return error(Errc::kTimedOut, "'{}' did not end within {} ms", arguments[0], timeout_ms);
    output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return output;
}

}  // namespace gnstor::demo
