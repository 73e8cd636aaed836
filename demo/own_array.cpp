// own_array.cpp: 'gnstor up', the demo's steps in a child process, 'gnstor down'.
//
// A process of its own for the steps, so that whatever ends it (a signal, a defect) the array is taken down.
// Signals are blocked here and taken by sigtimedwait; the child has them as usual.
#include "own_array.hpp"

#include "process.hpp"
#include "site.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace gnstor::demo {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kUpMs = 90'000, kDownMs = 90'000;

/// The gnstor command: what GNSTOR names, beside this program, or where a build puts it.
Result<fs::path> find_gnstor() {
    if (const char* named = std::getenv("GNSTOR"); named != nullptr && *named != '\0') return fs::path(named);
    std::error_code failed;
    const fs::path self = fs::read_symlink("/proc/self/exe", failed).parent_path();
    for (const fs::path& place : {self / "gnstor", self / ".." / "bin" / "gnstor"})
        if (!failed && ::access(place.c_str(), X_OK) == 0) return place;
    return error(Errc::kNotFound,
                 "--remote starts an array with the command gnstor, which was found neither next to the demo "
                 "nor in the build folder ({}); build the targets gnstor and gnstord, set GNSTOR to the "
                 "command's path, or name an array that already runs (--remote unix:PATH)",
                 self.string());
}

sigset_t ending_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, number);
    return set;
}

/// Signals of the terminal wait from here on until this object goes.
class SignalsHeld {
  public:
    SignalsHeld() {
        sigset_t set = ending_signals();
        sigaddset(&set, SIGCHLD);
        pthread_sigmask(SIG_BLOCK, &set, &before_);
    }
    ~SignalsHeld() { restore(); }
    SignalsHeld(const SignalsHeld&) = delete;
    SignalsHeld& operator=(const SignalsHeld&) = delete;
    void restore() const { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_{};
};

/// Where the array's stores and logs lie: in memory where that has room, as its SSDs stand for fast ones (a
/// busy disk would hold a node up for seconds); else below the demo's own folder. Goes with this object.
class ArrayFolder {
  public:
    ArrayFolder(const fs::path& work, const Archive& archive) : path_(work / "array") {
        std::error_code failed;
        const fs::space_info memory = fs::space(kMemory, failed);
        if (failed || memory.available / 4 < archive.bytes * kReplicas) return;
        std::string name = (fs::path(kMemory) / "gnstor-demo-XXXXXX").string();
        if (::mkdtemp(name.data()) != nullptr) path_ = made_ = name;
    }
    ~ArrayFolder() {
        std::error_code ignored;
        if (!made_.empty()) fs::remove_all(made_, ignored);
    }
    ArrayFolder(const ArrayFolder&) = delete;
    ArrayFolder& operator=(const ArrayFolder&) = delete;
    [[nodiscard]] const fs::path& path() const { return path_; }

  private:
    static constexpr char kMemory[] = "/dev/shm";
    fs::path path_, made_;
};

class OwnArray {
  public:
    OwnArray(fs::path gnstor, fs::path folder) : gnstor_(std::move(gnstor)), folder_(std::move(folder)) {}
    ~OwnArray() {
        if (!down_) (void)down();
    }
    OwnArray(const OwnArray&) = delete;
    OwnArray& operator=(const OwnArray&) = delete;

    Result<void> up(const Options& options, const Archive& archive) {
        const std::uint32_t nodes = options.remote.nodes;
        const std::uint32_t each = nodes == 0 ? options.ssds : options.ssds / nodes;
        std::vector<std::string> words{"up",
                                       "--ssds",
                                       std::to_string(each),
                                       "--capacity",
                                       fmt::format("{}MiB", capacity_for(archive, options.ssds) >> 20),
                                       "--durability",
                                       "process"};
        if (nodes != 0) words.insert(words.end(), {"--nodes", std::to_string(nodes)});
        down_ = false;
        GN_TRY(run(std::move(words), kUpMs, "the array could not be started"));
        std::ifstream(folder_ / "gnstord.pid") >> gnstord_;
        if (gnstord_ > 0) return {};
        return error(Errc::kState,
                     "there is no file with gnstord's process id in {}, although the array was started",
                     folder_.string());
    }
    Result<void> down() {
        down_ = true;
        // The steps may have ended while it stood still.
        if (gnstord_ > 0) ::kill(gnstord_, SIGCONT);
        return run({"down"}, kDownMs, "the array could not be stopped");
    }
    [[nodiscard]] pid_t gnstord() const { return gnstord_; }
    [[nodiscard]] std::string address() const { return "unix:" + (folder_ / "gnstord.sock").string(); }

  private:
    /// What gnstor said, but for its advice.
    static void say(const std::string& text) {
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);)
            if (!line.starts_with("next:")) std::printf("   %s\n", line.c_str());
    }
    Result<void> run(std::vector<std::string> words, std::uint32_t timeout_ms, const char* failed) {
        words.insert(words.begin(), gnstor_.string());
        words.insert(words.end(), {"--dir", folder_.string()});
        GN_ASSIGN(const ProcessOutput done, run_process(words, timeout_ms, Shield::kFromTerminal));
        if (done.exit_code == 0) {
            say(done.out);
            return {};
        }
        return error(Errc::kIo, "{}: '{}' ended with exit status {}", failed,
                     fmt::format("gnstor {}", words[1]), done.exit_code);
    }

    const fs::path gnstor_, folder_;
    pid_t gnstord_ = 0;
    bool down_ = true;
};

/// The steps, in a child: its exit code, as main() would have it.
[[noreturn]] void run_steps(const Options& options, const fs::path& work, const Archive& archive) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::setvbuf(stdout, nullptr, _IOLBF, 4096);
    int code = 1;
    {
        const Result<bool> agreed = run_demo(options, work, archive, Life{});
        if (!agreed.ok()) std::fprintf(stderr, "demo: %s\n", agreed.error().message.c_str());
        code = agreed.ok() && *agreed ? 0 : 1;
    }
    std::fflush(nullptr);
    ::_exit(code);
}

/// Waits until the child has ended, or a signal came: then it is killed.
int attend(pid_t child) {
    sigset_t wanted = ending_signals();
    sigaddset(&wanted, SIGCHLD);
    int signal = 0, status = 0;
    while (true) {
        if (::waitpid(child, &status, WNOHANG) == child) break;
        const int came = ::sigwaitinfo(&wanted, nullptr);
        if (came < 0 || came == SIGCHLD) continue;
        signal = came;
        ::kill(child, SIGKILL);
        while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        break;
    }
    // In a terminal the child has got the signal as well, and may have been the quicker.
    if (signal == 0 && WIFSIGNALED(status)) {
        sigset_t pending;
        sigpending(&pending);
        for (const int number : {SIGINT, SIGTERM, SIGHUP})
            if (sigismember(&pending, number) == 1) signal = number;
    }
    if (signal != 0) return 128 + signal;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// What is worth looking at after a failure; everything else goes with the demo.
void keep_logs(const fs::path& folder, const fs::path& work) {
    std::error_code ignored;
    const fs::path kept = work.string() + "-logs";
    for (auto it = fs::recursive_directory_iterator(folder, ignored);
         !ignored && it != fs::recursive_directory_iterator(); it.increment(ignored)) {
        if (it->path().extension() != ".log") continue;
        fs::create_directories(kept, ignored);
        fs::copy_file(it->path(), kept / it->path().filename(), ignored);
    }
    std::printf("   the logs of its processes are kept in %s\n", kept.c_str());
}

}  // namespace

Result<int> run_with_own_array(const Options& given, const fs::path& work, const Archive& archive) {
    GN_ASSIGN(const fs::path gnstor, find_gnstor());
    const SignalsHeld held;
    const ArrayFolder place(work, archive);
    const fs::path& folder = place.path();
    OwnArray array(gnstor, folder);
    Options options = given;
    const std::uint32_t nodes = options.remote.nodes;
    std::printf("   its array: %s, in processes of their own; stores and logs in %s\n",
                nodes == 0 ? "gnstord with the SSDs"
                           : fmt::format("gnstord and {} node{}", nodes, nodes == 1 ? "" : "s").c_str(),
                folder.c_str());
    std::fflush(nullptr);
    if (auto up = array.up(options, archive); !up.ok()) {
        keep_logs(folder, work);
        return std::move(up).error();
    }
    options.remote.array = array.address();
    options.remote.gnstord = array.gnstord();
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child < 0) return error(Errc::kIo, "cannot start a process: {}", std::strerror(errno));
    if (child == 0) {
        held.restore();
        run_steps(options, work, archive);
    }
    const int code = attend(child);
    const bool interrupted = code == 128 + SIGINT || code == 128 + SIGTERM || code == 128 + SIGHUP;
    if (code != 0 && !interrupted) keep_logs(folder, work);
    GN_TRY(array.down());
    return code;
}

}  // namespace gnstor::demo
