// main.cpp: ./run demo. Stores real files in an array on this machine, then lets a kernel look through them
// by itself, and holds every answer against the system's own tools. The command line and the input; the steps
// are in demo.cpp.
#include <gnstor/base/units.hpp>
#include <gnstor/nvme/command.hpp>
#include <gnstor/placement/placement.hpp>
#include <gnstor/simt/launch.hpp>

#include "demo.hpp"
#include "kill.hpp"
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

Result<bool> start(const Options& options) {
    if (options.pattern.empty() || options.pattern.size() > kPatternBytesMax ||
        options.pattern.find('\n') != std::string::npos)
        return error(Errc::kInvalidArgument, "--pattern takes 1 to {} bytes on one line", kPatternBytesMax);
    if (options.ssds < kReplicas || options.ssds > placement::kMaxSlots)
        return error(Errc::kInvalidArgument, "--ssds takes {} to {}", kReplicas, placement::kMaxSlots);
    if (options.kill && options.corrupt)
        return error(Errc::kInvalidArgument, "--kill and --corrupt are two demos; ask for one at a time");
    // Lanes are looked at before anything is made, by the process that will use them: CUDA survives no fork.
    GN_ASSIGN(const simt::LanesKind kind, simt::parse_lanes(options.lanes));
    if (!options.kill) GN_TRY(simt::check_lanes(kind));
    std::printf("GNStor demo on %s lanes\n", options.lanes.c_str());
    GN_ASSIGN(const Workspace workspace, Workspace::make());
    heading(1, "Input");
    GN_ASSIGN(const std::uint64_t bytes_max, parse_bytes(options.max_bytes));
    GN_ASSIGN(const Archive archive, make_archive(options.input, workspace.path(), bytes_max));
    std::printf("   %s: %zu files, %llu bytes, %llu blocks of 4 KiB\n", options.input.c_str(),
                archive.members.size(), static_cast<unsigned long long>(archive.bytes),
                static_cast<unsigned long long>((archive.bytes + nvme::kBlockBytes - 1) / nvme::kBlockBytes));
    return options.kill ? run_with_kills(options, workspace.path(), archive)
                        : run_demo(options, workspace.path(), archive, Life{});
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
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& wrong) {
        return app.exit(wrong) == 0 ? 0 : 2;
    }
    auto agreed = gnstor::demo::start(options);
    if (!agreed.ok()) {
        std::fprintf(stderr, "demo: %s\n", agreed.error().message.c_str());
        return agreed.error().code == gnstor::Errc::kInvalidArgument ? 2 : 1;
    }
    return *agreed ? 0 : 1;
}
