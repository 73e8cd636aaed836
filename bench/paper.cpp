// paper.cpp: which cases make which figure, and how a partly measured figure is continued.
#include "paper.hpp"

#include <gnstor/simt/time.hpp>

#include "progress.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace gnstor::bench {
namespace {

constexpr std::uint32_t kSizes[] = {4096, 65536};
constexpr std::uint32_t kWritePercents[] = {0, 100};
constexpr double kLongestSeconds = 86'400;

/// Patterns of figures 9 and 10, clients of 11, SSDs of 12, the mixes of 13: one path at a time, so that an
/// array is kept from one case to the next.
void add_path_cases(std::uint32_t figure, LoadCase c, std::vector<LoadCase>& cases) {
    const auto each_size = [&cases](LoadCase one) {
        for (const std::uint32_t percent : kWritePercents)
            for (const std::uint32_t bytes : kSizes) {
                one.write_percent = percent;
                one.bytes = bytes;
                cases.push_back(one);
            }
    };
    switch (figure) {
        case 9:
        case 10:
            c.depth = figure == 9 ? 32 : 1;
            for (const Pattern pattern : {Pattern::kSequential, Pattern::kRandom}) {
                c.pattern = pattern;
                each_size(c);
            }
            return;
        case 11:
            for (const std::uint32_t clients : {1u, 2u, 4u, 8u, 16u, 32u}) {
                c.clients = clients;
                each_size(c);
            }
            return;
        case 12:
            c.pattern = Pattern::kSequential;
            c.clients = 8;
            for (const std::uint32_t ssds : {2u, 3u, 4u, 5u, 8u}) {
                c.ssds = ssds;
                each_size(c);
            }
            return;
        default:
            each_size(c);
    }
}

/// Whether a table can show it: it has the parameters of one, and was measured.
bool is_of_load(const Case& c) {
    const nlohmann::json wanted = parameters_of(LoadCase{});
    for (const auto& [name, value] : wanted.items())
        if (!c.parameters.is_object() || !c.parameters.contains(name) ||
            c.parameters[name].is_string() != value.is_string() ||
            c.parameters[name].is_number() != value.is_number())
            return false;
    for (const Repeat& r : c.repeats)
        if (!(r.seconds > 0) || r.operations == 0) return false;
    return !c.repeats.empty();
}

/// Its memory aside, which differs a little from one start of a machine to the next, and binds nothing here.
bool is_same_machine(nlohmann::json one, nlohmann::json other) {
    for (nlohmann::json* machine : {&one, &other})
        if (machine->is_object()) machine->erase("memory");
    return one == other;
}

/// What was measured so far, on this machine; empty where the file is not there yet. `nothing`: the result
/// that would be kept if no case had been measured.
Result<std::vector<Case>> load_measured(const std::string& path, const nlohmann::json& nothing) {
    std::vector<Case> cases;
    std::error_code failed;
    if (!std::filesystem::exists(path, failed) && !failed) return cases;
    std::ifstream file(path);
    // An existing file that cannot be read is not overwritten: it may hold hours of measurements.
    if (!file || !std::filesystem::is_regular_file(path, failed))
        return error(Errc::kInvalidArgument, "{} cannot be read; choose another --json", path);
    const nlohmann::json run = nlohmann::json::parse(file, nullptr, false);
    const bool whole = run.is_object() && run.contains("configuration") && run.contains("benchmark") &&
                       run.contains("commit") && run.contains("cases") && run["cases"].is_array();
    if (!whole)
        return error(Errc::kCorrupt, "{} is not the result of a benchmark; choose another --json", path);
    if (run["benchmark"] != nothing["benchmark"] || run["configuration"] != nothing["configuration"] ||
        run["commit"] != nothing["commit"])
        return error(Errc::kInvalidArgument,
                     "{} holds another figure, or a figure measured with other options or of another commit; "
                     "choose another --json, or remove the file",
                     path);
    for (const nlohmann::json& one : run["cases"]) {
        Result<Case> read = case_from_json(one);
        if (!read.ok())
            return error(read.error().code, "{}: {}; choose another --json", path, read.error().message);
        Case kept = std::move(*read);
        if (!is_of_load(kept))
            return error(Errc::kCorrupt,
                         "{} holds a case that belongs to no figure: {}; choose another --json", path,
                         one.dump().substr(0, 80));
        cases.push_back(std::move(kept));
    }
    const nlohmann::json there = run.value("machine", nlohmann::json::object());
    if (is_same_machine(there, nothing["machine"])) return cases;
    std::printf(
        "%zu cases of %s were measured on another machine and are measured again; the other machine is %s, "
        "this machine is %s\n",
        cases.size(), path.c_str(), there.dump().c_str(), nothing["machine"].dump().c_str());
    return std::vector<Case>{};
}

/// The old file or the new one, never half of one.
Result<void> replace_json(const std::string& path, const nlohmann::json& run) {
    const std::string fresh = path + ".new";
    GN_TRY(write_json(fresh, run));
    std::error_code failed;
    std::filesystem::rename(fresh, path, failed);
    if (failed)
        return error(Errc::kIo, "cannot replace {}: {}; choose another --json", path, failed.message());
    return {};
}

}  // namespace

const char* figure_title(std::uint32_t figure) {
    switch (figure) {
        case 9:
            return "throughput by pattern, one client, 32 in flight";
        case 10:
            return "latency by pattern, one client, one in flight";
        case 11:
            return "throughput by number of clients";
        case 12:
            return "throughput by number of SSDs";
        default:
            return "ablation: throughput and latency, random";
    }
}

Result<std::vector<LoadCase>> figure_cases(std::uint32_t figure, const std::vector<std::string>& paths) {
    if (figure < kFirstFigure || figure > kLastFigure)
        return error(Errc::kInvalidArgument, "--figure takes {} to {}, not {}", kFirstFigure, kLastFigure,
                     figure);
    std::vector<LoadCase> cases;
    for (const std::string& word : paths) {
        LoadCase c;
        GN_ASSIGN(c.path, parse_path(word));
        add_path_cases(figure, c, cases);
    }
    return cases;
}

Result<bool> run_paper(const PaperOptions& given) {
    PaperOptions options = given;
    options.settings.steady = true;  // hundreds of cases: no time for an array each
    GN_ASSIGN(options.settings, complete(options.settings));
    GN_TRY(simt::check_lanes(options.settings.lanes));
    GN_ASSIGN(const std::vector<LoadCase> wanted, figure_cases(options.figure, options.paths));
    for (const LoadCase& c : wanted) GN_TRY(check(c, options.settings));
    if (options.json.empty())
        return error(Errc::kInvalidArgument,
                     "--json is required: it names the file that keeps the cases measured so far");
    if (!(options.limit_seconds > 0) || options.limit_seconds > kLongestSeconds)
        return error(Errc::kInvalidArgument, "--limit takes more than 0 and up to {} seconds, not {}",
                     kLongestSeconds, options.limit_seconds);
    LoadRunner runner(options.settings);
    return measure_figure(options, wanted, runner);
}

Result<bool> measure_figure(const PaperOptions& options, const std::vector<LoadCase>& wanted,
                            CaseRunner& runner) {
    const std::string benchmark = fmt::format("paper-figure-{}", options.figure);
    GN_ASSIGN(std::vector<Case> cases,
              load_measured(options.json, load_json(benchmark, options.command, options.settings, {})));
    const auto is_measured = [&cases](const LoadCase& c) {
        const nlohmann::json parameters = parameters_of(c);
        for (const Case& one : cases)
            if (one.parameters == parameters) return true;
        return false;
    };
    // Before minutes of measuring: can the result be kept?
    const std::string fresh = options.json + ".new";
    if (!std::ofstream(fresh, std::ios::app))
        return error(Errc::kInvalidArgument, "cannot write to {}; choose another --json", fresh);
    std::error_code failed;
    std::filesystem::remove(fresh, failed);
    std::printf("figure %u: %s; %zu of %zu cases are already measured\n", options.figure,
                figure_title(options.figure), cases.size(), wanted.size());
    std::fflush(stdout);
    const std::uint64_t end_ns = simt::now_ns() + static_cast<std::uint64_t>(options.limit_seconds * 1e9);
    std::size_t left = 0, dropped = 0;
    {
        const Progress progress;
        for (const LoadCase& c : wanted) {
            if (is_measured(c)) continue;
            if (simt::now_ns() >= end_ns) {
                ++left;
                continue;
            }
            progress.show(
                fmt::format("[{}/{}] {}", cases.size() + 1, wanted.size(), parameters_of(c).dump()));
            GN_ASSIGN(std::optional<Case> measured, measure_right(runner, c));
            if (!measured) {
                ++dropped;
                continue;
            }
            cases.push_back(std::move(*measured));
            GN_TRY(
                replace_json(options.json, load_json(benchmark, options.command, options.settings, cases)));
        }
    }
    std::printf("%s\n", load_table(cases).c_str());
    if (left != 0) std::printf("%zu cases are left: give the same command again to measure them\n", left);
    if (dropped != 0)
        std::printf(
            "SOME WRONG: %zu cases returned wrong data and are not kept; the same command measures them "
            "again\n",
            dropped);
    return dropped == 0;
}

}  // namespace gnstor::bench
