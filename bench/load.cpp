// load.cpp: `bench load`: every combination of what was asked for, as a table and as JSON.
#include "load.hpp"

#include <gnstor/base/units.hpp>

#include "engine_busy.hpp"
#include "initiators/bed.hpp"
#include "initiators/load_lanes.hpp"
#include "progress.hpp"
#include "serving_processes.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace gnstor::bench {
namespace {

Result<std::vector<LoadCase>> combinations(const LoadOptions& o) {
    std::vector<LoadCase> cases;
    for (const std::string& word : o.paths) {
        LoadCase c;
        GN_ASSIGN(c.path, parse_path(word));
        for (const std::uint32_t ssds : o.ssds)
            for (const std::uint32_t clients : o.clients)
                for (const std::uint32_t depth : o.depths)
                    for (const std::uint32_t percent : o.write_percents)
                        for (const std::uint32_t bytes : o.bytes)
                            for (const std::string& pattern : o.patterns) {
                                c.ssds = ssds;
                                c.clients = clients;
                                c.depth = depth;
                                c.write_percent = percent;
                                c.bytes = bytes;
                                c.pattern = pattern == "seq" ? Pattern::kSequential : Pattern::kRandom;
                                GN_TRY(check(c, o.settings));
                                cases.push_back(c);
                            }
    }
    if (cases.empty())
        return error(Errc::kInvalidArgument,
                     "nothing to measure: each of --path, --pattern, --write-percent, --bytes, --clients, "
                     "--ssds and --depth needs at least one value");
    return cases;
}

/// Median of one thing over the repeats, with the least and the most.
struct Middle {
    double least, median, most;
};
template <class Get>
Middle middle(const Case& c, Get get) {
    std::vector<double> values;
    for (const Repeat& r : c.repeats) values.push_back(get(r));
    std::sort(values.begin(), values.end());
    return {values.front(), values[values.size() / 2], values.back()};
}

/// Achieved over what the profile's drives or network allow, whichever is less.
std::string of_limit(const Case& c, double per_second) {
    const auto& more = c.repeats.front().more;
    const auto drives = more.find("limit_drives_per_second"), network = more.find("limit_network_per_second");
    const bool by_drives =
        drives != more.end() && (network == more.end() || drives->second <= network->second);
    if (!by_drives && network == more.end()) return "-";
    const double limit = by_drives ? drives->second : network->second;
    return fmt::format("{:.1f} % {}", 100 * per_second / limit, by_drives ? "drives" : "network");
}

std::string stages_of(const Case& c) {
    std::string text;
    for (const auto& [name, value] : c.repeats.front().more) {
        if (name.rfind("stage_", 0) != 0) continue;
        const Middle m = middle(c, [&wanted = name](const Repeat& r) {
            const auto found = r.more.find(wanted);
            return found == r.more.end() ? 0.0 : found->second;
        });
        text +=
            fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", name.substr(6, name.size() - 9), m.median);
    }
    return text.empty() ? "-" : text;
}

/// An array that others serve is what it is.
void print_served_heading(const LoadSettings& s) {
    std::printf(
        "bench load on %s lanes: an array of other processes (%s), through gnor\n"
        "  load        working set of %s, filled; %u repeats of %g s; %u replicas; volumes are removed at "
        "the "
        "end\n",
        std::string(simt::lanes_name(s.lanes)).c_str(), s.served.array.c_str(),
        format_bytes(s.working_set).c_str(), s.repeats, s.seconds, s.replicas);
}

void print_heading(const LoadSettings& s) {
    if (!s.served.array.empty())
        print_served_heading(s);
    else
        std::printf(
            "bench load on %s lanes: for every path the emulated NICs and SSDs have %s; profile %s\n"
            "  load        working set of %s, filled; %u repeats of %g s; %u replicas\n"
            "  threads     at most, as cores allow: array engines of gd and basic %u, strong-cpu %u\n",
            std::string(simt::lanes_name(s.lanes)).c_str(), describe(s.engine).c_str(), s.profile.c_str(),
            format_bytes(s.working_set).c_str(), s.repeats, s.seconds, s.replicas, s.array_threads,
            s.threads);
    if (s.rate > 0)
        std::printf(
            "  open loop   %.0f requests a second are meant to be sent; latency counts from when each was\n",
            s.rate);
    if (s.lanes == simt::LanesKind::kCpu && s.served.array.empty())
        std::printf(
            "  stand-ins   CPU lanes take the place of a GPU that uses the data; the copy of path basic is a "
            "memcpy\n");
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace

std::string load_table(const std::vector<Case>& cases) {
    constexpr const char* kRow =
        "{:<12} {:<5} {:<11} {:>6} {:>4} {:>4} {:>30} {:>8} {:>14} {:>23} {:>8} {:>23} {:>8} {:>9} {:>8} "
        "{:>8}  {}\n";
    std::string text =
        fmt::format(fmt::runtime(kRow), "path", "order", "operation", "bytes", "cl.", "SSDs",
                    "IOPS (least .. most)", "GB/s", "of the limit", "mean us", "p50 us", "p99 us", "p99.9 us",
                    "init. us", "NIC+SSD", "array us", "stages, us an I/O");
    for (const Case& c : cases) {
        if (c.repeats.empty()) continue;
        const auto us = [&c](auto get) {
            return fmt::format("{:.1f}", middle(c, [&get](const Repeat& r) { return get(r) / 1e3; }).median);
        };
        const auto us_spread = [&c](auto get) {
            const Middle m = middle(c, [&get](const Repeat& r) { return get(r) / 1e3; });
            return fmt::format("{:.1f} ({:.1f} .. {:.1f})", m.median, m.least, m.most);
        };
        const Middle iops =
            middle(c, [](const Repeat& r) { return static_cast<double>(r.operations) / r.seconds; });
        const Middle rate =
            middle(c, [](const Repeat& r) { return static_cast<double>(r.bytes) / r.seconds / 1e9; });
        const Middle hardware = middle(c, [](const Repeat& r) {
            return r.engine_cpu_seconds / static_cast<double>(r.operations) * 1e6;
        });
        const nlohmann::json& p = c.parameters;
        text +=
            fmt::format(fmt::runtime(kRow), p["path"].get<std::string>(), p["pattern"].get<std::string>(),
                        p["operation"].get<std::string>(), p["bytes"].get<std::uint32_t>(),
                        p["clients"].get<std::uint32_t>(), p["SSDs"].get<std::uint32_t>(),
                        fmt::format("{:.0f} ({:.0f} .. {:.0f})", iops.median, iops.least, iops.most),
                        fmt::format("{:.3f}", rate.median), of_limit(c, iops.median),
                        us_spread([](const Repeat& r) { return r.latency.mean_ns; }),
                        us([](const Repeat& r) { return r.latency.p50_ns; }),
                        us_spread([](const Repeat& r) { return r.latency.p99_ns; }),
                        us([](const Repeat& r) { return r.latency.p999_ns; }),
                        us_an_operation(c, "initiator_cpu_seconds"), fmt::format("{:.2f}", hardware.median),
                        us_an_operation(c, "array_cpu_seconds"), stages_of(c));
    }
    return text + busy_lines(cases);
}

std::string work_table(const std::vector<Case>& cases) {
    std::string text;
    for (const Case& c : cases) {
        std::string line;
        if (c.repeats.empty()) continue;
        for (const auto& [name, value] : c.repeats.front().more) {
            if (name.rfind("work_", 0) != 0) continue;
            const Middle m = middle(c, [&wanted = name](const Repeat& r) {
                const auto found = r.more.find(wanted);
                return found == r.more.end() ? 0.0 : found->second;
            });
            line += fmt::format("{}{} {:.2f}", line.empty() ? "" : ", ", name.substr(5, name.size() - 8),
                                m.median);
        }
        if (line.empty()) continue;
        const nlohmann::json& p = c.parameters;
        text += fmt::format("{:<12} {:<11} {:>6} cl. {:<3} {}\n", p["path"].get<std::string>(),
                            p["operation"].get<std::string>(), p["bytes"].get<std::uint32_t>(),
                            p["clients"].get<std::uint32_t>(), line);
    }
    return text.empty() ? text
                        : "Time of threads (client, array) and warps (lane) by what they did, us per I/O:\n" +
                              text + "\n";
}

Result<std::optional<Case>> measure_right(CaseRunner& runner, const LoadCase& c) {
    const std::uint64_t before = runner.wrong();
    GN_ASSIGN(Case measured, runner.measure(c));
    if (runner.wrong() == before) return std::optional<Case>(std::move(measured));
    std::fprintf(stderr, "WRONG: this case returned wrong data and is left out of the result: %s\n",
                 name_of(measured).c_str());
    return std::optional<Case>();
}

nlohmann::json load_json(const std::string& benchmark, const std::vector<std::string>& command,
                         const LoadSettings& s, const std::vector<Case>& cases) {
    const char* commit = std::getenv("GN_COMMIT");
    nlohmann::json run =
        to_json(benchmark, command, commit != nullptr ? commit : "unknown", configuration_of(s), cases);
    if (s.lanes == simt::LanesKind::kGpu)
        if (const auto lanes = make_gpu_load_lanes()) run["machine"]["gpu"] = lanes->gpu_name();
    return run;
}

namespace {

/// From where to where it counts, on every path.
const char* latency_words(const LoadSettings& s) {
    if (s.rate == 0)
        return "from the moment when the consumer is ready for a request until it sees the request completed";
    return s.verify == Verify::kNone
               ? "from when a request was meant to be sent until the consumer has its data, or the answer"
               : "from when a request was meant to be sent until its data has been compared (reads) or it is "
                 "answered (writes)";
}

}  // namespace

Result<bool> run_load(const LoadOptions& given) {
    LoadOptions options = given;
    const bool served = !options.settings.served.array.empty();
    if (options.paths.empty())
        options.paths =
            served ? std::vector<std::string>{"gnor"} : std::vector<std::string>{"gnor", "strong-cpu"};
    if (served) {
        for (const std::string& path : options.paths)
            if (path != path_name(PathKind::kGnor))
                return error(Errc::kInvalidArgument,
                             "--path {} needs access to the inside of a node, which an array of other "
                             "processes (--array) does not give; with --array, use --path gnor",
                             path);
        options.settings.steady = true;  // the array stays as it is from repeat to repeat
        GN_ASSIGN(const std::uint32_t ssds, served_ssds(options.settings.served));
        options.ssds = {ssds};
    }
    GN_ASSIGN(options.settings, complete(options.settings));
    GN_TRY(simt::check_lanes(options.settings.lanes));
    GN_ASSIGN(const std::vector<LoadCase> wanted, combinations(options));
    // Before minutes of measuring: can the result be kept?
    if (!options.json.empty() && !std::ofstream(options.json, std::ios::app))
        return error(Errc::kInvalidArgument, "cannot write to {}; choose another --json", options.json);
    const bool to_people = options.output != "json";
    if (to_people) print_heading(options.settings);
    LoadRunner runner(options.settings);
    std::vector<Case> cases;
    std::vector<std::string> described;
    std::size_t begun = 0;
    {
        const Progress progress;
        for (const LoadCase& c : wanted) {
            progress.show(fmt::format("[{}/{}] {} of {} bytes, {} client{}, {} SSDs", ++begun, wanted.size(),
                                      path_name(c.path), c.bytes, c.clients, c.clients == 1 ? "" : "s",
                                      c.ssds));
            GN_ASSIGN(std::optional<Case> measured, measure_right(runner, c));
            if (measured) cases.push_back(std::move(*measured));
            if (std::ranges::find(described, runner.described()) == described.end())
                described.push_back(runner.described());
        }
    }
    nlohmann::json run = load_json("load", options.command, options.settings, cases);
    run["configuration"]["wire"] = runner.wire().substr(0, runner.wire().find(" ("));  // no folders
    run["configuration"]["array"] = served ? "served by other processes" : "in this process";
    if (to_people) {
        std::printf("%s\n%s", load_table(cases).c_str(), work_table(cases).c_str());
        for (const std::string& one : described) std::printf("  %s\n", one.c_str());
        std::printf("Wire: %s\n%s", runner.wire().c_str(), process_lines(cases).c_str());
        std::printf(
            "Median over repeats. init.: CPU time of the initiator per I/O; NIC+SSD: of the threads that "
            "emulate them; array: of a\ncentral engine. Latency: %s.\n"
            "Checked: %s requests, every word; %s.\n",
            latency_words(options.settings), format_count(runner.checked()).c_str(),
            runner.wrong() == 0 ? "all as written" : "SOME WRONG: such cases are left out");
    } else {
        std::printf("%s\n", run.dump(1).c_str());
    }
    if (!options.json.empty()) GN_TRY(write_json(options.json, run));
    return runner.wrong() == 0;
}

}  // namespace gnstor::bench
