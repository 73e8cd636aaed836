// fio.cpp: fio as a process of its own, with a deadline; its file, and what it says.
#include "fio.hpp"

#include <gnstor/base/units.hpp>
#include <gnstor/simt/time.hpp>

#include "contents.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

extern char** environ;

namespace gnstor::bench {
namespace {

constexpr char kMemoryFolder[] = "/dev/shm";
constexpr std::uint64_t kStartNs = 60'000'000'000;  // beyond the measured time: to start, lay out, end

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// Waits until the process ends; ends it when it takes longer.
Result<int> wait_for(pid_t child, std::uint64_t longest_ns) {
    const std::uint64_t end_ns = simt::now_ns() + longest_ns;
    int status = 0;
    for (;;) {
        const pid_t ended = ::waitpid(child, &status, WNOHANG);
        if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
        if (ended < 0 && errno != EINTR)
            return error(Errc::kIo, "cannot wait for fio: {}", std::strerror(errno));
        if (simt::now_ns() > end_ns) {
            ::kill(child, SIGKILL);
            ::waitpid(child, &status, 0);
            return error(Errc::kTimedOut, "fio did not end within {} s and was killed",
                         longest_ns / 1'000'000'000);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

/// Runs fio; what it writes on either stream goes to `output`. Its exit status; 127: there is none.
Result<int> run_program(std::vector<std::string> words, const std::filesystem::path& output,
                        std::uint64_t longest_ns) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    const int failed = ::posix_spawnp(&child, "fio", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed == ENOENT) return 127;
    if (failed != 0) return error(Errc::kIo, "cannot start fio: {}", std::strerror(failed));
    return wait_for(child, longest_ns);
}

Result<void> fill_file(const std::filesystem::path& path, std::uint64_t bytes) {
    constexpr std::uint64_t kPiece = 1u << 20;
    std::vector<std::uint64_t> piece(kPiece / 8);
    std::ofstream file(path, std::ios::binary);
    for (std::uint64_t at = 0; at < bytes && file; at += kPiece) {
        const std::uint64_t key = Contents{1, 1}.key(at / nvme::kBlockBytes);
        for (std::uint64_t i = 0; i < piece.size(); ++i) piece[i] = Contents::word(key, i);
        file.write(reinterpret_cast<const char*>(piece.data()),
                   static_cast<std::streamsize>(std::min(kPiece, bytes - at)));
    }
    if (file.flush()) return {};
    return error(Errc::kNoSpace, "cannot write {} to {} for fio; choose another --store, or --no-fio",
                 format_bytes(bytes), path.parent_path().string());
}

/// The member of an object, or null; whatever it is.
const nlohmann::json& member(const nlohmann::json& object, const char* name) {
    static const nlohmann::json nothing;
    return object.is_object() && object.contains(name) ? object[name] : nothing;
}
double number(const nlohmann::json& object, const char* name) {
    const nlohmann::json& value = member(object, name);
    return value.is_number() ? value.get<double>() : 0.0;
}

}  // namespace

Result<Repeat> fio_repeat(const std::string& output, bool write) {
    const auto begin = output.find("\n{") == std::string::npos ? output.find('{') : output.find("\n{") + 1;
    const nlohmann::json run = begin == std::string::npos
                                   ? nlohmann::json{}
                                   : nlohmann::json::parse(output.substr(begin), nullptr, false);
    const nlohmann::json& jobs = member(run, "jobs");
    if (!jobs.is_array() || jobs.empty())
        return error(Errc::kCorrupt, "the output of fio is not a result in JSON: {}", output.substr(0, 200));
    const nlohmann::json& job = jobs[0];
    if (number(job, "error") != 0) return error(Errc::kIo, "fio failed: error {}", number(job, "error"));
    const nlohmann::json& done = member(job, write ? "write" : "read");
    Repeat r;
    r.seconds = number(done, "runtime") / 1e3;
    r.operations = static_cast<std::uint64_t>(number(done, "total_ios"));
    r.bytes = static_cast<std::uint64_t>(number(done, "io_bytes"));
    if (!(r.seconds > 0) || r.operations == 0)
        return error(Errc::kCorrupt,
                     "the result of fio contains no completed operation; give it more time with --seconds");
    const nlohmann::json& latency = member(done, "lat_ns");
    const auto at = [&latency](const char* percent) {
        return static_cast<std::uint32_t>(std::min(4e9, number(member(latency, "percentile"), percent)));
    };
    r.latency = Latency{number(latency, "mean"),
                        at("50.000000"),
                        at("99.000000"),
                        at("99.900000"),
                        static_cast<std::uint32_t>(std::min(4e9, number(latency, "max"))),
                        r.operations};
    r.lane_cpu_seconds =
        (number(job, "usr_cpu") + number(job, "sys_cpu")) / 100 * number(job, "job_runtime") / 1e3;
    return r;
}

Result<std::unique_ptr<Fio>> Fio::open(const std::filesystem::path& where, std::uint64_t bytes) {
    std::unique_ptr<Fio> fio(new Fio);
    fio->bytes_ = bytes;
    fio->in_memory_ = where.empty();
    std::error_code failed;
    const std::filesystem::path folder = where.empty() ? std::filesystem::path(kMemoryFolder) : where;
    const auto room = std::filesystem::space(folder, failed);
    if (failed || room.available < bytes)
        return error(Errc::kNoSpace, "{} has no room for fio's test file of {}", folder.string(),
                     format_bytes(bytes));
    std::string name = (folder / "gnstor-fio-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
        return error(Errc::kIo, "cannot create a folder in {}: {}", folder.string(), std::strerror(errno));
    fio->folder_ = name;
    const std::filesystem::path said = fio->folder_ / "version";
    GN_ASSIGN(const int status, run_program({"fio", "--version"}, said, kStartNs));
    if (status != 0) return error(Errc::kUnsupported, "fio is not installed (package fio)");
    fio->version_ = text_of(said);
    while (!fio->version_.empty() && fio->version_.back() == '\n') fio->version_.pop_back();
    GN_TRY(fill_file(fio->folder_ / "file", bytes));
    return fio;
}

Fio::~Fio() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

Result<Repeat> Fio::run(const FioRun& r) const {
    const std::filesystem::path output = folder_ / "output";
    std::vector<std::string> words{"fio",
                                   "--name=gnstor",
                                   "--filename=" + (folder_ / "file").string(),
                                   fmt::format("--size={}", bytes_),
                                   "--ioengine=io_uring",
                                   r.write ? "--rw=randwrite" : "--rw=randread",
                                   fmt::format("--bs={}", r.bytes),
                                   fmt::format("--iodepth={}", r.depth),
                                   fmt::format("--numjobs={}", r.threads),
                                   fmt::format("--runtime={}ms", std::max(1.0, std::round(r.seconds * 1e3))),
                                   fmt::format("--randseed={}", r.order_seed),
                                   fmt::format("--iodepth_batch_submit={}", std::min(8u, r.depth)),
                                   "--iodepth_batch_complete_min=1",
                                   fmt::format("--iodepth_batch_complete_max={}", r.depth),
                                   "--thread",
                                   "--time_based",
                                   "--norandommap",
                                   "--invalidate=0",
                                   "--fadvise_hint=0",
                                   "--fixedbufs",
                                   "--registerfiles",
                                   "--group_reporting",
                                   "--lat_percentiles=1",
                                   "--clat_percentiles=0",
                                   "--percentile_list=50:99:99.9",
                                   "--output-format=json"};
    if (r.direct) words.emplace_back("--direct=1");
    if (r.dsync && r.write) words.emplace_back("--sync=dsync");
    if (r.sqpoll) words.emplace_back("--sqthread_poll=1");
    GN_ASSIGN(const int status,
              run_program(std::move(words), output, kStartNs + static_cast<std::uint64_t>(r.seconds * 1e9)));
    const std::string said = text_of(output);
    if (status != 0)
        return error(Errc::kIo, "fio ended with exit status {}: {}", status, said.substr(0, 300));
    return fio_repeat(said, r.write);
}

}  // namespace gnstor::bench
