// kill.cpp: starts the process of the array, listens how far it is, kills it, and starts the next one.
#include "kill.hpp"

#include <gnstor/base/hash.hpp>
#include <gnstor/nvme/command.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gnstor::demo {
namespace {

enum class Moment : std::uint8_t { kStoring, kOpening, kLooking };
constexpr std::array kPlan = {Moment::kStoring, Moment::kStoring, Moment::kOpening, Moment::kStoring,
                              Moment::kOpening, Moment::kLooking, Moment::kOpening, Moment::kLooking};
constexpr std::array<const char*, 3> kMomentNames = {"storing", "opening", "looking"};
constexpr std::uint32_t kOpeningBitsMax = 6;  ///< killed within 2^0 .. 2^5 ms of its start
constexpr std::uint32_t kHurryMsMax = 6;

/// A process, and the end of the pipe on which it tells its progress.
struct Process {
    pid_t pid;
    int progress;
};

/// How a process ended, and how far it had come.
struct Ending {
    bool killed;
    int exit_code;
    std::uint32_t stored_blocks;
};

Result<Process> start(const Options& options, const std::filesystem::path& work, const Archive& archive,
                      Life life) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        return error(Errc::kIo, "cannot create a pipe: {}", std::strerror(errno));
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid < 0) {
        const int why = errno;
        ::close(ends[0]);
        ::close(ends[1]);
        return error(Errc::kIo, "cannot start a process: {}", std::strerror(why));
    }
    if (pid == 0) {
        ::close(ends[0]);
        ::signal(SIGPIPE, SIG_IGN);
        // Whole lines, so that what was said before a kill is seen.
        std::setvbuf(stdout, nullptr, _IOLBF, 4096);
        life.progress = ends[1];
        int code = 2;
        {
            const Result<bool> agreed = run_demo(options, work, archive, life);
            if (!agreed.ok()) std::fprintf(stderr, "demo: %s\n", agreed.error().message.c_str());
            code = agreed.ok() ? (*agreed ? 0 : 1) : 2;
        }
        std::fflush(nullptr);
        ::_exit(code);
    }
    ::close(ends[1]);
    return Process{pid, ends[0]};
}

/// Waits for the next message. False: the process has closed its end (it has ended), or `wait_ms` are over.
bool next_message(int fd, int wait_ms, Progress& progress) {
    pollfd p{fd, POLLIN, 0};
    if (::poll(&p, 1, wait_ms) <= 0) return false;
    return ::read(fd, &progress, sizeof progress) == static_cast<ssize_t>(sizeof progress);
}

class Killer {
  public:
    Killer(std::uint64_t seed, std::uint32_t blocks) : random_(seed), blocks_(blocks) {}

    /// Listens to a process and kills it as the plan says; to the end of the plan, then lets it live.
    Ending attend(const Process& process, std::uint32_t stored) {
        Ending ending{false, 0, stored};
        Progress message{};
        bool due = false;
        const std::uint32_t wanted =
            stored + 1 + static_cast<std::uint32_t>(random_.below((blocks_ - stored) / 2 + 1));
        if (left() && moment() == Moment::kOpening) {
            // At any instruction of its opening, or a little later: short times are as likely as long ones.
            listen(process, static_cast<int>(random_.below(1ull << random_.below(kOpeningBitsMax))), ending,
                   message, Progress::kLooking);
            due = true;
        }
        while (!due && next_message(process.progress, -1, message)) {
            if (message.kind == Progress::kStored) ending.stored_blocks = message.blocks;
            const bool stored_enough =
                message.kind == Progress::kStored && moment_is(Moment::kStoring) && message.blocks >= wanted;
            due = left() && (stored_enough || message.kind == Progress::kLooking);
        }
        if (due) {
            listen(process, static_cast<int>(random_.below(kHurryMsMax)), ending, message, ~0u);
            ::kill(process.pid, SIGKILL);
        }
        // What it had told before it was killed counts.
        listen(process, -1, ending, message, ~0u);
        ::close(process.progress);
        int status = 0;
        while (::waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
        }
        ending.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && due;
        ending.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (ending.killed) count(message.kind == Progress::kLooking);
        return ending;
    }
    [[nodiscard]] std::uint32_t kills() const { return next_; }
    /// A process that starts now is killed: at the latest while it looks.
    [[nodiscard]] bool left() const { return next_ < kPlan.size(); }
    [[nodiscard]] std::string summary() const {
        if (next_ == 0) return {};
        return fmt::format("{} times by SIGKILL: {} storing, {} opening, {} looking", next_, counts_[0],
                           counts_[1], counts_[2]);
    }
    [[nodiscard]] const char* last_moment() const { return kMomentNames[last_]; }

  private:
    [[nodiscard]] Moment moment() const { return kPlan[next_]; }
    [[nodiscard]] bool moment_is(Moment m) const { return left() && moment() == m; }
    /// Takes messages for `wait_ms` (-1: to the end), or until one of kind `until`.
    static void listen(const Process& process, int wait_ms, Ending& ending, Progress& message,
                       std::uint32_t until) {
        while (next_message(process.progress, wait_ms, message)) {
            if (message.kind == Progress::kStored) ending.stored_blocks = message.blocks;
            if (message.kind == until) return;
        }
    }
    void count(bool looking) {
        last_ = looking ? 2 : static_cast<std::size_t>(moment());
        ++counts_[last_];
        ++next_;
    }

    SplitMix64 random_;
    const std::uint32_t blocks_;
    std::size_t next_ = 0;
    std::size_t last_ = 0;
    std::array<std::uint32_t, 3> counts_{};
};

}  // namespace

Result<bool> run_with_kills(const Options& options, const std::filesystem::path& work,
                            const Archive& archive) {
    const auto blocks =
        static_cast<std::uint32_t>((archive.bytes + nvme::kBlockBytes - 1) / nvme::kBlockBytes);
    Killer killer(options.seed, blocks);
    Life life;
    for (;; ++life.number) {
        life.kills = killer.summary();
        life.doomed = killer.left();
        GN_ASSIGN(const Process process, start(options, work, archive, life));
        const Ending ending = killer.attend(process, life.stored_blocks);
        if (!ending.killed) {
            if (ending.exit_code == 0 || ending.exit_code == 1) return ending.exit_code == 0;
            return error(Errc::kState, "the process that runs the array ended with exit status {}",
                         ending.exit_code);
        }
        life.stored_blocks = ending.stored_blocks;
        std::printf("   process %u was killed (SIGKILL) while %s: %u of %u blocks were acknowledged\n",
                    life.number, killer.last_moment(), life.stored_blocks, blocks);
    }
}

}  // namespace gnstor::demo
