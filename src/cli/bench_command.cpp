// bench_command.cpp: gnstor bench: passes its arguments to the benchmark program, gnstor_bench, which
// replaces this process (exec).
//
// It is a program of its own because it contains the kernels of all ways to initiate I/O, compiled for each
// kind of lanes; the command line depends on no more layers than it needs.
#include "cli/cli.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <system_error>

namespace gnstor::cli {
namespace {

constexpr char kProgram[] = "gnstor_bench";
constexpr std::initializer_list<const char*> kKinds = {"load",     "paper", "path", "model",
                                                       "deengine", "pool",  "wire"};
constexpr char kExamples[] =
    "IOPS, GB/s, latency and CPU time for each way to initiate I/O\n"
    "usage: gnstor bench [load|paper|path|model|deengine|pool|wire] [options]     (default: load)\n"
    "The measured array is in memory and is removed at the end. With --array (before or after 'bench'), load "
    "and path measure an existing array of other processes instead.\n"
    "examples:\n"
    "  gnstor bench --path gnor,strong-cpu --bytes 4096,65536 --write-percent 0,100\n"
    "  gnstor bench --path gnor,gd,basic --clients 1,4 --seconds 0.5 --output json\n"
    "  gnstor bench paper --figure 13 --json figure-13.json      (run again, it continues where it stopped)\n"
    "options of load (for the others: gnstor bench KIND --help):\n\n";

/// Searches beside this program, where it is installed, and where the build puts it.
Result<std::filesystem::path> find_program() {
    std::error_code failed;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
    for (const auto& place : {self / kProgram, self / ".." / "bench" / kProgram})
        if (!failed && ::access(place.c_str(), X_OK) == 0) return place;
    return error(Errc::kNotFound,
                 "the program {} is neither in the folder of gnstor ({}) nor in the bench folder of a build; "
                 "build the target {}, or install it",
                 kProgram, self.string(), kProgram);
}

/// Returns only if exec fails.
Error become(const std::filesystem::path& program, std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::signal(SIGPIPE, SIG_DFL);  // main() ignores it for this program alone
    ::execv(program.c_str(), arguments.data());
    return error(Errc::kIo, "cannot start {}: {}", program.string(), std::strerror(errno));
}

bool is_one_of(const std::string& word, std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(), [&word](const char* one) { return word == one; });
}

/// Whether this kind can measure an array of other processes and print JSON.
bool measures_arrays(const std::string& kind) {
    return is_one_of(kind, {"load", "path"});
}

/// Passes gnstor's own --array (or $GNSTOR_ARRAY) on, so that this array is measured.
Result<void> name_array(const Context& context, std::vector<std::string>& words) {
    const bool named = std::any_of(words.begin(), words.end(), [](const std::string& word) {
        return word == "--array" || word.starts_with("--array=");
    });
    if (context.array.empty() || named) return {};
    const std::string& kind = words[1];
    const char* const environment = std::getenv("GNSTOR_ARRAY");
    const bool told_here = environment == nullptr || context.array != environment;
    if (!measures_arrays(kind)) {
        if (!told_here) return {};
        return error(Errc::kInvalidArgument,
                     "bench {} measures only an array that it creates itself: leave --array out (only load "
                     "and path take it)",
                     kind);
    }
    if (!told_here)
        std::fprintf(stderr, "gnstor: bench %s measures the array at %s (GNSTOR_ARRAY)\n", kind.c_str(),
                     context.array.c_str());
    words.insert(words.end(), {"--array", context.array});
    if (context.array.starts_with("http"))
        words.insert(words.end(), {"--token-file", context.token_path().string()});
    if (!context.tls.ca_file.empty()) words.insert(words.end(), {"--tls-ca", context.tls.ca_file.string()});
    if (!context.tls.fingerprint.empty())
        words.insert(words.end(), {"--tls-fingerprint", context.tls.fingerprint});
    return {};
}

/// The command line of the benchmark program.
Result<std::vector<std::string>> words_of(const Context& context, const std::vector<std::string>& given) {
    std::vector<std::string> words{kProgram};
    if (given.empty() || !is_one_of(given.front(), kKinds)) words.emplace_back("load");
    words.insert(words.end(), given.begin(), given.end());
    const std::string& kind = words[1];
    if (context.out.json) {
        if (!measures_arrays(kind))
            return error(Errc::kInvalidArgument,
                         "bench {} prints only tables: leave --output json out, and give --json FILE after "
                         "'bench {}' for a result that programs can read",
                         kind, kind);
        words.insert(words.end(), {"--output", "json"});
    }
    GN_TRY(name_array(context, words));
    return words;
}

}  // namespace

void add_bench_command(CLI::App& app, Context& context) {
    CLI::App* const bench =
        app.add_subcommand("bench", "measure IOPS, GB/s, latency and CPU time for each way to initiate I/O");
    bench->prefix_command();
    bench->fallthrough(false);
    bench->set_help_flag();  // the benchmark program lists its own options
    bench->callback([bench, &context] {
        context.action = [bench, &context]() -> int {
            const std::vector<std::string> given = bench->remaining();
            const bool helps = !given.empty() && is_one_of(given.front(), {"-h", "--help"});
            if (helps) {
                std::fputs(kExamples, stdout);
                std::fflush(stdout);
            }
            const auto program = find_program();
            if (!program.ok()) return context.out.fail(program.error());
            auto words = helps ? Result<std::vector<std::string>>({kProgram, "load", "--help"})
                               : words_of(context, given);
            if (words.ok()) return context.out.fail(become(*program, std::move(*words)));
            (void)context.out.fail(words.error());
            return kUsage;
        };
    });
}

}  // namespace gnstor::cli
