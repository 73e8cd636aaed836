// result.cpp: statistics, JSON and tables of benchmark runs.
#include "result.hpp"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>

namespace gnstor::bench {
namespace {

std::string first_line_with(const char* path, const std::string& key) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line))
        if (line.rfind(key, 0) == 0) {
            const auto colon = line.find(':');
            const auto begin = line.find_first_not_of(" \t", colon + 1);
            return begin == std::string::npos ? "" : line.substr(begin);
        }
    return "";
}

nlohmann::json to_json(const Latency& l) {
    return {{"mean", l.mean_ns}, {"p50", l.p50_ns}, {"p99", l.p99_ns},
            {"p999", l.p999_ns}, {"max", l.max_ns}, {"samples", l.samples}};
}

nlohmann::json to_json(const Repeat& r) {
    nlohmann::json j = {{"seconds", r.seconds}, {"operations", r.operations}, {"bytes", r.bytes}};
    if (r.latency.samples != 0) j["latency_ns"] = to_json(r.latency);
    if (r.engine_cpu_seconds >= 0) j["engine_cpu_seconds"] = r.engine_cpu_seconds;
    if (r.lane_cpu_seconds >= 0) j["lane_cpu_seconds"] = r.lane_cpu_seconds;
    if (r.lane_waiting_seconds >= 0) j["lane_waiting_seconds"] = r.lane_waiting_seconds;
    if (r.checked != 0) j["checked"] = r.checked;
    if (r.bytes_a_block >= 0) j["bytes_a_block"] = r.bytes_a_block;
    if (r.times_reference >= 0) j["times_reference"] = r.times_reference;
    for (const auto& [name, value] : r.more) j[name] = value;
    return j;
}

struct Spread {
    double least, median, most;
};

template <class Get>
Spread spread(const std::vector<Repeat>& repeats, Get get) {
    std::vector<double> values;
    for (const Repeat& r : repeats) values.push_back(get(r));
    std::sort(values.begin(), values.end());
    return {values.front(), values[values.size() / 2], values.back()};
}

}  // namespace

Latency summarize(std::vector<std::uint32_t> nanoseconds) {
    Latency l;
    if (nanoseconds.empty()) return l;
    std::sort(nanoseconds.begin(), nanoseconds.end());
    const auto at = [&](double q) {
        return nanoseconds[static_cast<std::size_t>(q * static_cast<double>(nanoseconds.size() - 1))];
    };
    l.samples = nanoseconds.size();
    l.mean_ns = std::accumulate(nanoseconds.begin(), nanoseconds.end(), 0.0) /
                static_cast<double>(nanoseconds.size());
    l.p50_ns = at(0.5);
    l.p99_ns = at(0.99);
    l.p999_ns = at(0.999);
    l.max_ns = nanoseconds.back();
    return l;
}

namespace {

/// Of this program's host code: the same commit does differently where it is optimised across libraries.
std::string compiler() {
#if defined(__clang__)
    const std::string name =
        fmt::format("clang++ {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
    const std::string name = fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
#ifdef GN_LTO
    return name + " across libraries";
#else
    return name;
#endif
}

}  // namespace

nlohmann::json describe_machine() {
    utsname name{};
    uname(&name);
    nlohmann::json machine;
    machine["cpu"] = first_line_with("/proc/cpuinfo", "model name");
    machine["cores"] = sysconf(_SC_NPROCESSORS_ONLN);
    machine["memory"] = first_line_with("/proc/meminfo", "MemTotal");
    machine["kernel"] = std::string(name.sysname) + " " + name.release;
    machine["compiler"] = compiler();
    return machine;
}

std::string load_average() {
    std::ifstream file("/proc/loadavg");
    std::string one_minute;
    file >> one_minute;
    return one_minute.empty() ? "unknown" : one_minute;
}

nlohmann::json to_json(const std::string& benchmark, const std::vector<std::string>& command,
                       const std::string& commit, const nlohmann::json& configuration,
                       const std::vector<Case>& cases) {
    nlohmann::json run = {
        {"schema", 1}, {"benchmark", benchmark}, {"commit", commit}, {"configuration", configuration}};
    run["command"] = command;
    run["machine"] = describe_machine();
    run["cases"] = nlohmann::json::array();
    for (const Case& c : cases) {
        nlohmann::json one = {{"parameters", c.parameters}};
        if (!c.verdict.empty()) one["verdict"] = c.verdict;
        if (!c.threads.empty()) one["threads"] = c.threads;
        for (const Repeat& r : c.repeats) one["repeats"].push_back(to_json(r));
        run["cases"].push_back(std::move(one));
    }
    return run;
}

namespace {

bool are_numbers(const nlohmann::json& object) {
    return object.is_object() &&
           std::all_of(object.begin(), object.end(), [](const auto& v) { return v.is_number(); });
}

}  // namespace

Result<Case> case_from_json(const nlohmann::json& one) {
    Case c;
    if (!one.contains("parameters") || !one.contains("repeats") || !one["repeats"].is_array())
        return error(Errc::kCorrupt, "the result holds a case without parameters or without repeats: {}",
                     one.dump().substr(0, 80));
    c.parameters = one["parameters"];
    if (one.contains("threads") && one["threads"].is_object())
        for (const auto& [kind, count] : one["threads"].items())
            if (count.is_number_unsigned()) c.threads[kind] = count;
    if (one.contains("verdict") && one["verdict"].is_string()) c.verdict = one["verdict"];
    for (const nlohmann::json& kept : one["repeats"]) {
        if (!kept.is_object())
            return error(Errc::kCorrupt, "the result holds a repeat that is not a JSON object: {}",
                         kept.dump().substr(0, 80));
        Repeat r;
        for (const auto& [name, value] : kept.items()) {
            if (name == "latency_ns" && are_numbers(value)) {
                r.latency =
                    Latency{value.value("mean", 0.0), value.value("p50", 0u), value.value("p99", 0u),
                            value.value("p999", 0u),  value.value("max", 0u), value.value("samples", 0ull)};
                continue;
            }
            if (!value.is_number())
                return error(Errc::kCorrupt, "the result holds a repeat whose field '{}' is not a number: {}",
                             name, value.dump().substr(0, 80));
            if (name == "seconds")
                r.seconds = value;
            else if (name == "operations")
                r.operations = value;
            else if (name == "bytes")
                r.bytes = value;
            else if (name == "engine_cpu_seconds")
                r.engine_cpu_seconds = value;
            else if (name == "lane_cpu_seconds")
                r.lane_cpu_seconds = value;
            else if (name == "lane_waiting_seconds")
                r.lane_waiting_seconds = value;
            else if (name == "checked")
                r.checked = value;
            else if (name == "bytes_a_block")
                r.bytes_a_block = value;
            else if (name == "times_reference")
                r.times_reference = value;
            else
                r.more[name] = value;
        }
        c.repeats.push_back(std::move(r));
    }
    return c;
}

Result<void> write_json(const std::filesystem::path& path, const nlohmann::json& run) {
    std::ofstream out(path);
    out << run.dump(1) << '\n';
    if (!out.flush())
        return error(Errc::kIo, "cannot write the result to {}; choose another --json", path.string());
    return {};
}

namespace {

/// CPU time an operation in microseconds, or a dash where it was not measured (below 0).
template <class Get>
std::string cost(const Case& c, Get seconds) {
    for (const Repeat& r : c.repeats)
        if (seconds(r) < 0 || r.operations == 0) return "-";
    return fmt::format("{:.2f}", spread(c.repeats, [&seconds](const Repeat& r) {
                                     return seconds(r) / static_cast<double>(r.operations) * 1e6;
                                 }).median);
}
double initiator_cpu_seconds(const Repeat& r) {
    const auto found = r.more.find("initiator_cpu_seconds");
    return found == r.more.end() ? kNotMeasured : found->second;
}

}  // namespace

std::string name_of(const Case& c) {
    std::string name;
    for (const auto& [key, value] : c.parameters.items())
        name += (name.empty() ? "" : " ") +
                (value.is_string() ? value.get<std::string>() : key + " " + value.dump());
    return name;
}

std::string us_an_operation(const Case& c, const std::string& name) {
    for (const Repeat& r : c.repeats)
        if (!r.more.contains(name) || r.operations == 0) return "-";
    return fmt::format("{:.2f}", spread(c.repeats, [&name](const Repeat& r) {
                                     return r.more.at(name) / static_cast<double>(r.operations) * 1e6;
                                 }).median);
}

std::string table(const std::vector<Case>& cases) {
    constexpr const char* kRow = "{:<30} {:>32} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}\n";
    std::string text = fmt::format(fmt::runtime(kRow), "case", "IOPS (least .. most)", "GB/s", "mean us",
                                   "p50 us", "p99 us", "p99.9 us", "init. us", "engine us", "lanes us");
    for (const Case& c : cases) {
        if (c.repeats.empty()) continue;
        const auto median_us = [&c](auto get) {
            return fmt::format("{:.1f}",
                               spread(c.repeats, [&get](const Repeat& r) { return get(r) / 1e3; }).median);
        };
        const Spread iops =
            spread(c.repeats, [](const Repeat& r) { return static_cast<double>(r.operations) / r.seconds; });
        const Spread rate =
            spread(c.repeats, [](const Repeat& r) { return static_cast<double>(r.bytes) / r.seconds / 1e9; });
        text += fmt::format(
            fmt::runtime(kRow), name_of(c),
            fmt::format("{:.0f} ({:.0f} .. {:.0f})", iops.median, iops.least, iops.most),
            fmt::format("{:.3f}", rate.median), median_us([](const Repeat& r) { return r.latency.mean_ns; }),
            median_us([](const Repeat& r) { return r.latency.p50_ns; }),
            median_us([](const Repeat& r) { return r.latency.p99_ns; }),
            median_us([](const Repeat& r) { return r.latency.p999_ns; }), cost(c, initiator_cpu_seconds),
            cost(c, [](const Repeat& r) { return r.engine_cpu_seconds; }),
            cost(c, [](const Repeat& r) { return r.lane_cpu_seconds; }));
    }
    return text;
}

std::string cost_table(const std::vector<Case>& cases) {
    constexpr const char* kRow = "{:<72} {:>28} {:>14} {:>22}\n";
    std::string text =
        fmt::format(fmt::runtime(kRow), "case", "ns (least .. most)", "bytes a block", "times reference");
    for (const Case& c : cases) {
        if (c.repeats.empty()) continue;
        const double cores = c.parameters.value("cores", 1);
        const auto shown = [&c](int digits, auto get) {
            const Spread s = spread(c.repeats, get);
            return fmt::format("{:.{}f} ({:.{}f} .. {:.{}f})", s.median, digits, s.least, digits, s.most,
                               digits);
        };
        const bool memory = c.repeats[0].bytes_a_block >= 0;
        const bool paired = c.repeats[0].times_reference >= 0;
        text += fmt::format(fmt::runtime(kRow), name_of(c),
                            shown(1,
                                  [cores](const Repeat& r) {
                                      return r.seconds * 1e9 * cores / static_cast<double>(r.operations);
                                  }),
                            memory ? fmt::format("{:.2f}", c.repeats[0].bytes_a_block) : "-",
                            paired ? shown(2, [](const Repeat& r) { return r.times_reference; }) : "-");
        if (c.repeats[0].latency.samples != 0)
            text += fmt::format("    single commands: p50 {} ns, p99 {} ns, p99.9 {} ns, longest {} ns\n",
                                shown(0, [](const Repeat& r) { return r.latency.p50_ns; }),
                                shown(0, [](const Repeat& r) { return r.latency.p99_ns; }),
                                shown(0, [](const Repeat& r) { return r.latency.p999_ns; }),
                                shown(0, [](const Repeat& r) { return r.latency.max_ns; }));
        for (const auto& [name, first] : c.repeats[0].more)
            text += fmt::format("    {} {}\n", name,
                                shown(3, [&key = name](const Repeat& r) { return r.more.at(key); }));
    }
    return text;
}

}  // namespace gnstor::bench
