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
            return error(Errc::kIo, "cannot create a folder in {}; set TMPDIR to a folder that is writable",
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
        for (const char* option : {"--nodes", "--token-file", "--tls-ca", "--tls-fingerprint", "--address"})
            if (app.count(option) > 0)
                return error(Errc::kInvalidArgument,
                             "{} applies only to an array of other processes; add --remote", option);
        return {};
    }
    for (const char* option : {"--corrupt", "--kill", "--strict", "--engine-threads"})
        if (app.count(option) > 0)
            return error(
                Errc::kInvalidArgument,
                "{0} applies only to an array in the demo's own process; leave out either {0} or --remote",
                option);
    if (!options.remote.array.empty()) {
        for (const char* option : {"--ssds", "--nodes"})
            if (app.count(option) > 0)
                return error(Errc::kInvalidArgument,
                             "{} describes an array that the demo starts itself, but {} names an array that "
                             "already runs; leave out one of them",
                             option, options.remote.array);
        return {};
    }
    for (const char* option : {"--token-file", "--tls-ca", "--tls-fingerprint"})
        if (app.count(option) > 0)
            return error(Errc::kInvalidArgument,
                         "{} is used only with the address of an array (--remote https://HOST:PORT)", option);
    if (options.remote.nodes > options.ssds ||
        (options.remote.nodes != 0 && options.ssds % options.remote.nodes != 0))
        return error(Errc::kInvalidArgument, "--ssds {} cannot be divided equally among --nodes {}",
                     options.ssds, options.remote.nodes);
    return {};
}

/// How an array of other processes is named and reached.
CLI::Option* add_remote_options(CLI::App& app, Remote& remote) {
    CLI::Option* const wanted =
        app.add_option(
               "--remote", remote.array,
               "use an array of other processes, named by unix:PATH, https://HOST:PORT or "
               "http://HOST:PORT of its gnstord; without an address, the demo starts such an array and "
               "stops it at the end")
            ->expected(0, 1)
            ->default_str("");
    app.add_option("--nodes", remote.nodes,
                   "number of node processes that serve the SSDs of an array that --remote starts; 0: "
                   "gnstord serves the SSDs")
        ->check(CLI::Range(0, 16))
        ->capture_default_str();
    app.add_option(
        "--token-file", remote.token_file,
        "file with gnstord's access token, for --remote https://... or http://...; default: the file "
        "that GNSTOR_TOKEN_FILE names");
    app.add_option(
        "--tls-ca", remote.tls_ca,
        "file with the CA of gnstord's certificate, for --remote https://...; default: the file that "
        "GNSTOR_TLS_CA names, else the system's CAs");
    app.add_option("--tls-fingerprint", remote.tls_fingerprint,
                   "SHA256:... of gnstord's certificate, for --remote https://...; default: "
                   "GNSTOR_TLS_FINGERPRINT");
    app.add_option("--address", remote.address, "this machine's IP address on the udp wire, for --remote");
    return wanted;
}

Result<void> check(const Options& options) {
    if (options.pattern.empty() || options.pattern.size() > kPatternBytesMax ||
        options.pattern.find('\n') != std::string::npos)
        return error(Errc::kInvalidArgument, "--pattern takes 1 to {} bytes on one line", kPatternBytesMax);
    if (options.ssds < kReplicas || options.ssds > placement::kMaxSlots)
        return error(Errc::kInvalidArgument, "--ssds takes {} to {}", kReplicas, placement::kMaxSlots);
    if (options.kill && options.corrupt)
        return error(Errc::kInvalidArgument,
                     "--kill and --corrupt cannot be combined; give only one of them");
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
    CLI::App app{
        "Stores real files in an array on this machine, and searches them for a string with a GPU kernel.",
        "gnstor_demo"};
    app.add_option("--lanes", options.lanes, "what runs the kernel: cpu or gpu")->capture_default_str();
    app.add_option("--input", options.input, "folder or file to store")->capture_default_str();
    app.add_option("--pattern", options.pattern,
                   "string that the kernel searches for (not a regular expression)")
        ->capture_default_str();
    app.add_option("--max-bytes", options.max_bytes, "most bytes of the input that are stored")
        ->capture_default_str();
    app.add_option("--ssds", options.ssds, "how many SSDs")->capture_default_str();
    app.add_option("--engine-threads", options.engine_threads,
                   "threads that run the emulated NIC and SSDs; 0: half of the cores")
        ->capture_default_str();
    app.add_option("--seed", options.seed, "seed of the order in which the kernel reads blocks")
        ->capture_default_str();
    app.add_flag("--strict", options.strict,
                 "let the software NIC check the order of every access to its queues");
    app.add_flag("--corrupt", options.corrupt,
                 "flip one byte in the store of an SSD: the demo must detect it, and ends with status 1");
    app.add_flag("--kill", options.kill,
                 "repeatedly kill the process that runs the array (SIGKILL) during its work: the answers "
                 "must be the same");
    const CLI::Option* const remote = gnstor::demo::add_remote_options(app, options.remote);
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
    const auto from_environment = [&app](const char* option, const char* variable, std::string& value) {
        const char* const named = std::getenv(variable);
        if (named != nullptr && app.count(option) == 0) value = named;
    };
    from_environment("--token-file", "GNSTOR_TOKEN_FILE", options.remote.token_file);
    from_environment("--tls-ca", "GNSTOR_TLS_CA", options.remote.tls_ca);
    from_environment("--tls-fingerprint", "GNSTOR_TLS_FINGERPRINT", options.remote.tls_fingerprint);
    const auto code = gnstor::demo::start_checked(options, app);
    if (!code.ok()) {
        std::fprintf(stderr, "demo: %s\n", code.error().message.c_str());
        return code.error().code == gnstor::Errc::kInvalidArgument ? 2 : 1;
    }
    return *code;
}
