// deengine.cpp: `bench deengine`: its parts in order, what is printed about them and what is kept.
#include "deengine.hpp"

#include <gnstor/base/units.hpp>

#include "progress.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace gnstor::bench {
namespace {

Result<void> check_options(const DeEngineOptions& o) {
    const auto within = [](const char* option, std::uint64_t value, std::uint64_t least,
                           std::uint64_t most) -> Result<void> {
        if (value >= least && value <= most) return {};
        return error(Errc::kInvalidArgument, "{} takes {} to {}, not {}", option, least, most, value);
    };
    GN_TRY(within("--repeats", o.repeats, 1, 1000));
    GN_TRY(within("--map-slots", o.map_slots, 1u << 18, 1u << 30));
    GN_TRY(within("--path-blocks", o.path_blocks, 1u << 12, 1u << 28));
    GN_TRY(within("--wear-blocks", o.wear_blocks, 1u << 14, 1u << 28));
    GN_TRY(within("--recover-blocks", o.recover_blocks, 1u << 14, 1u << 28));
    GN_TRY(within("--data bytes", o.data_bytes, 1u << 24, 1ull << 38));
    GN_TRY(within("--cores", o.cores, 1, 256));
    if (!o.json.empty() && !std::ofstream(o.json, std::ios::app))
        return error(Errc::kInvalidArgument, "cannot write to {}; choose another --json", o.json);
    return {};
}

Result<void> keep(const DeEngineOptions& o, const std::vector<Case>& cases, const std::string& load_before) {
    const nlohmann::json configuration = {{"map slots", o.map_slots},
                                          {"blocks with null flash", o.path_blocks},
                                          {"blocks of full drives", o.wear_blocks},
                                          {"blocks recovered", o.recover_blocks},
                                          {"data", format_bytes(o.data_bytes)},
                                          {"seed", o.seed},
                                          {"load average before", load_before},
                                          {"load average after", load_average()}};
    const char* commit = std::getenv("GN_COMMIT");
    GN_TRY(write_json(o.json, to_json("deengine", o.command, commit != nullptr ? commit : "unknown",
                                      configuration, cases)));
    std::printf("Raw result: %s\n", o.json.c_str());
    return {};
}

}  // namespace

Result<std::vector<Case>> deengine_bench::measure(const std::string& title, std::uint32_t repeats,
                                                  std::vector<Step> steps) {
    const Progress progress;
    std::vector<Case> cases(steps.size());
    for (std::size_t s = 0; s < steps.size(); ++s) cases[s].parameters = std::move(steps[s].parameters);
    for (std::uint32_t i = 0; i < repeats; ++i)
        for (std::size_t s = 0; s < steps.size(); ++s) {
            progress.show(
                fmt::format("{}: repeat {} of {}, {} of {}", title, i + 1, repeats, s + 1, steps.size()));
            GN_ASSIGN(Repeat repeat, steps[s].run());
            cases[s].repeats.push_back(std::move(repeat));
        }
    return cases;
}

Result<bool> run_deengine(const DeEngineOptions& options) {
    GN_TRY(check_options(options));
    struct Part {
        const char* name;
        Result<std::vector<Case>> (*measure)(const DeEngineOptions&);
    };
    static constexpr Part kParts[] = {
        {"map", deengine_bench::measure_map},         {"check", deengine_bench::measure_check},
        {"copy", deengine_bench::measure_copy},       {"path", deengine_bench::measure_path},
        {"collect", deengine_bench::measure_collect}, {"recover", deengine_bench::measure_recover}};
    const std::string load_before = load_average();
    std::printf("bench deengine on %s; load average %s; one thread unless a case says otherwise\n",
                describe_machine()["cpu"].get<std::string>().c_str(), load_before.c_str());
    std::vector<Case> all;
    for (const Part& part : kParts) {
        if (std::find(options.parts.begin(), options.parts.end(), part.name) == options.parts.end()) continue;
        GN_ASSIGN(std::vector<Case> cases, part.measure(options));
        std::printf("\n%s", cost_table(cases).c_str());
        std::fflush(stdout);
        for (Case& c : cases) all.push_back(std::move(c));
    }
    std::printf(
        "\nMedian over %u repeats (least .. most); cases of a table take turns within every repeat, and a "
        "repeat's value is the\nmedian of many short slices. ns: time per command and core.\n"
        "Load average of the machine: %s before, %s after.\n",
        options.repeats, load_before.c_str(), load_average().c_str());
    if (!options.json.empty()) GN_TRY(keep(options, all, load_before));
    return true;
}

}  // namespace gnstor::bench
