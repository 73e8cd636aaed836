// main.cpp: ./run demo. Stores real files in an array on this machine, then lets a kernel look through them
// by itself, and holds every answer against the system's own tools. The command line and the input; the steps
// are in demo.cpp.
#include <gnstor/base/units.hpp>
#include <gnstor/nvme/command.hpp>
#include <gnstor/placement/placement.hpp>
#include <gnstor/simt/launch.hpp>

#include "demo.hpp"
#include "kill.hpp"
#include "own_array.hpp"
#include "scan.hpp"

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace gnstor::demo {
namespace {

namespace fs = std::filesystem;

/// A folder that goes away with the demo.
class Workspace {
  public:
    static Result<Workspace> make() {
        std::string name = (fs::temp_directory_path() / "gnstor-demo-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr)
            return error(Errc::kIo, "cannot make a folder in {}; set TMPDIR to one that can be written",
                         fs::temp_directory_path().string());
        return Workspace(fs::path(name));
    }
    Workspace(Workspace&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    Workspace& operator=(Workspace&&) = delete;
    ~Workspace() {
        std::error_code ignored;
        if (!path_.empty()) fs::remove_all(path_, ignored);
    }
    [[nodiscard]] const fs::path& path() const { return path_; }

  private:
    explicit Workspace(fs::path path) : path_(std::move(path)) {}
    fs::path path_;
};

/// What an array has that the demo starts, and what one that others serve can be told.
Result<void> check_remote(const Options& options, const CLI::App& app) {
    if (!options.remote.wanted) {
        for (const char* option : {"--nodes", "--token-file", "--address"})
            if (app.count(option) > 0)
                return error(Errc::kInvalidArgument, "{} is for an array of other processes (--remote)",
                             option);
        return {};
    }
    for (const char* option : {"--corrupt", "--kill", "--strict", "--engine-threads"})
        if (app.count(option) > 0)
            return error(Errc::kInvalidArgument,
                         "{} is for an array in the demo's own process; leave it, or --remote, out", option);
    if (!options.remote.array.empty()) {
        for (const char* option : {"--ssds", "--nodes"})
            if (app.count(option) > 0)
                return error(Errc::kInvalidArgument,
                             "{} says what array the demo starts; {} runs already, and is taken as it is",
                             option, options.remote.array);
        return {};
    }
    if (app.count("--token-file") > 0)
        return error(Errc::kInvalidArgument,
                     "--token-file goes with an array's address (--remote http://...)");
    if (options.remote.nodes > options.ssds ||
        (options.remote.nodes != 0 && options.ssds % options.remote.nodes != 0))
        return error(Errc::kInvalidArgument, "--ssds {} cannot be shared by --nodes {} alike", options.ssds,
                     options.remote.nodes);
    return {};
}

Result<void> check(const Options& options) {
    if (options.pattern.empty() || options.pattern.size() > kPatternBytesMax ||
        options.pattern.find('\n') != std::string::npos)
        return error(Errc::kInvalidArgument, "--pattern takes 1 to {} bytes on one line", kPatternBytesMax);
    if (options.ssds < kReplicas || options.ssds > placement::kMaxSlots)
        return error(Errc::kInvalidArgument, "--ssds takes {} to {}", kReplicas, placement::kMaxSlots);
    if (options.kill && options.corrupt)
        return error(Errc::kInvalidArgument, "--kill and --corrupt are two demos; ask for one at a time");
    return {};
}

/// The exit code.
Result<int> start(const Options& options) {
    // Lanes are looked at before anything is made, by the process that will use them: CUDA survives no fork.
    GN_ASSIGN(const simt::LanesKind kind, simt::parse_lanes(options.lanes));
    const bool own_array = options.remote.wanted && options.remote.array.empty();
    if (!options.kill && !own_array) GN_TRY(simt::check_lanes(kind));
    std::printf("GNStor demo on %s lanes\n", options.lanes.c_str());
    GN_ASSIGN(const Workspace workspace, Workspace::make());
    heading(1, "Input");
    GN_ASSIGN(const std::uint64_t bytes_max, parse_bytes(options.max_bytes));
    GN_ASSIGN(const Archive archive, make_archive(options.input, workspace.path(), bytes_max));
    std::printf("   %s: %zu files, %llu bytes, %llu blocks of 4 KiB\n", options.input.c_str(),
                archive.members.size(), static_cast<unsigned long long>(archive.bytes),
                static_cast<unsigned long long>((archive.bytes + nvme::kBlockBytes - 1) / nvme::kBlockBytes));
    if (own_array) return run_with_own_array(options, workspace.path(), archive);
    GN_ASSIGN(const bool agreed, options.kill ? run_with_kills(options, workspace.path(), archive)
                                              : run_demo(options, workspace.path(), archive, Life{}));
    return agreed ? 0 : 1;
}

Result<int> start_checked(const Options& options, const CLI::App& app) {
    GN_TRY(check(options));
    GN_TRY(check_remote(options, app));
    return start(options);
}

}  // namespace
}  // namespace gnstor::demo

int main(int argc, char** argv) {
    gnstor::demo::Options options;
    CLI::App app{"Stores real files in an array on this machine and lets a kernel grep them.", "gnstor_demo"};
    app.add_option("--lanes", options.lanes, "what runs the kernel: cpu or gpu")->capture_default_str();
    app.add_option("--input", options.input, "a folder or a file")->capture_default_str();
    app.add_option("--pattern", options.pattern, "what to look for (a fixed string)")->capture_default_str();
    app.add_option("--max-bytes", options.max_bytes, "how much of the input at most")->capture_default_str();
    app.add_option("--ssds", options.ssds, "how many SSDs")->capture_default_str();
    app.add_option("--engine-threads", options.engine_threads,
                   "threads for NIC and SSDs; 0: half of the cores")
        ->capture_default_str();
    app.add_option("--seed", options.seed, "of the order in which the kernel reads")->capture_default_str();
    app.add_flag("--strict", options.strict, "the software NIC checks everything");
    app.add_flag("--corrupt", options.corrupt,
                 "flip one byte in a store: the demo must notice, and ends with 1");
    app.add_flag("--kill", options.kill,
                 "kill the process of the array again and again (SIGKILL), in the middle of its work: the "
                 "answers must be the same");
    CLI::Option* const remote =
        app.add_option("--remote", options.remote.array,
                       "an array of other processes: unix:PATH or http://HOST:PORT of its gnstord; without "
                       "either, one is started and taken down at the end")
            ->expected(0, 1)
            ->default_str("");
    app.add_option("--nodes", options.remote.nodes,
                   "of an array that --remote starts: processes of SSDs; 0: gnstord has them")
        ->check(CLI::Range(0, 16))
        ->capture_default_str();
    app.add_option("--token-file", options.remote.token_file,
                   "with --remote http://...: gnstord's token; default: what GNSTOR_TOKEN_FILE names");
    app.add_option("--address", options.remote.address, "with --remote: own IP address on the udp wire");
    app.footer(
        "Examples:\n"
        "  gnstor_demo --input /usr/include --pattern sizeof\n"
        "  gnstor_demo --remote                     (2 nodes and gnstord as processes, over shared memory)\n"
        "  gnstor_demo --remote --nodes 0           (gnstord has the SSDs, over shared memory)\n"
        "  gnstor_demo --remote unix:.gnstor/gnstord.sock");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& wrong) {
        return app.exit(wrong) == 0 ? 0 : 2;
    }
    options.remote.wanted = remote->count() > 0;
    if (const char* named = std::getenv("GNSTOR_TOKEN_FILE");
        named != nullptr && app.count("--token-file") == 0)
        options.remote.token_file = named;
    const auto code = gnstor::demo::start_checked(options, app);
    if (!code.ok()) {
        std::fprintf(stderr, "demo: %s\n", code.error().message.c_str());
        return code.error().code == gnstor::Errc::kInvalidArgument ? 2 : 1;
    }
    return *code;
}
