// bench_command.cpp: gnstor bench: hands the words over to the benchmark program, gnstor_bench, which becomes
// this process.
//
// A program of its own, and no part of this one: it holds the kernels of all ways to initiate I/O, compiled
// for each kind of lanes, and the command line stands on no more layers than it needs.
#include "cli/cli.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace gnstor::cli {
namespace {

constexpr char kProgram[] = "gnstor_bench";
constexpr const char* kKinds[] = {"load", "paper", "path", "model", "deengine", "pool", "wire"};
constexpr char kExamples[] =
    "gnstor bench measures an array of its own, in memory, that goes away with it, or with --array one of "
    "other processes, as it is. Every option: gnstor bench load --help\n"
    "examples:\n"
    "  gnstor bench --path gnor,strong-cpu --bytes 4096,65536 --write-percent 0,100\n"
    "  gnstor bench --path gnor,gd,basic --clients 1,4 --seconds 0.5 --output json\n"
    "  gnstor bench paper --figure 13 --json figure-13.json      (the same command goes on where it was)";

/// Beside this program, where it is installed, or where the build puts it.
Result<std::filesystem::path> find_program() {
    std::error_code failed;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
    for (const auto& place : {self / kProgram, self / ".." / "bench" / kProgram})
        if (!failed && ::access(place.c_str(), X_OK) == 0) return place;
    return error(
        Errc::kNotFound,
        "{} is neither beside gnstor ({}) nor where a build puts it; build the target {}, or install it",
        kProgram, self.string(), kProgram);
}

/// Comes back only with an Error.
Error become(const std::filesystem::path& program, std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execv(program.c_str(), arguments.data());
    return error(Errc::kIo, "cannot start {}: {}", program.string(), std::strerror(errno));
}

}  // namespace

void add_bench_command(CLI::App& app, Context& context) {
    CLI::App* const bench =
        app.add_subcommand("bench", "IOPS, GB/s, latency and CPU time, by who initiates the I/O");
    bench->prefix_command();
    bench->fallthrough(false);
    bench->footer(kExamples);
    bench->callback([bench, &context] {
        context.action = [bench, &context]() -> int {
            const auto program = find_program();
            if (!program.ok()) return context.out.fail(program.error());
            std::vector<std::string> given = bench->remaining();
            std::vector<std::string> words{kProgram};
            const bool named =
                !given.empty() && std::any_of(std::begin(kKinds), std::end(kKinds),
                                              [&given](const char* kind) { return given.front() == kind; });
            if (!named) words.emplace_back("load");
            words.insert(words.end(), given.begin(), given.end());
            if (context.out.json) {
                const std::string& kind = words[1];
                if (kind != "load" && kind != "path") {
                    (void)context.out.fail(error(
                        Errc::kInvalidArgument,
                        "bench {} prints tables alone: leave --output json out, and give --json FILE behind "
                        "'bench {}' for a result that programs read",
                        kind, kind));
                    return kUsage;
                }
                words.insert(words.end(), {"--output", "json"});
            }
            return context.out.fail(become(*program, std::move(words)));
        };
    });
}

}  // namespace gnstor::cli
