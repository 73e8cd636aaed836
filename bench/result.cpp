// result.cpp: statistics, JSON and tables of benchmark runs.
#include "result.hpp"

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

nlohmann::json describe_machine() {
    utsname name{};
    uname(&name);
    nlohmann::json machine;
    machine["cpu"] = first_line_with("/proc/cpuinfo", "model name");
    machine["cores"] = sysconf(_SC_NPROCESSORS_ONLN);
    machine["memory"] = first_line_with("/proc/meminfo", "MemTotal");
    machine["kernel"] = std::string(name.sysname) + " " + name.release;
    return machine;
}

nlohmann::json to_json(const std::string& benchmark, const std::vector<std::string>& command,
                       const std::string& commit, const nlohmann::json& configuration,
                       const std::vector<Case>& cases) {
    nlohmann::json run = {
        {"schema", 1}, {"benchmark", benchmark}, {"commit", commit}, {"configuration", configuration}};
    run["command"] = command;
    run["machine"] = describe_machine();
    for (const Case& c : cases) {
        nlohmann::json one = {{"parameters", c.parameters}};
        for (const Repeat& r : c.repeats)
            one["repeats"].push_back({{"seconds", r.seconds},
                                      {"operations", r.operations},
                                      {"bytes", r.bytes},
                                      {"latency_ns", to_json(r.latency)},
                                      {"engine_cpu_seconds", r.engine_cpu_seconds}});
        run["cases"].push_back(std::move(one));
    }
    return run;
}

Result<void> write_json(const std::filesystem::path& path, const nlohmann::json& run) {
    std::ofstream out(path);
    out << run.dump(1) << '\n';
    if (!out.flush())
        return error(Errc::kIo, "cannot write the result to {}; choose another --json", path.string());
    return {};
}

std::string table(const std::vector<Case>& cases) {
    std::string text = fmt::format("{:<34} {:>26} {:>8} {:>10} {:>10} {:>10}\n", "case",
                                   "IOPS (least .. most)", "GB/s", "p50 us", "p99 us", "p99.9 us");
    for (const Case& c : cases) {
        std::string name;
        for (const auto& [key, value] : c.parameters.items())
            name += (name.empty() ? "" : " ") +
                    (value.is_string() ? value.get<std::string>() : key + "=" + value.dump());
        const Spread iops =
            spread(c.repeats, [](const Repeat& r) { return static_cast<double>(r.operations) / r.seconds; });
        const Spread rate =
            spread(c.repeats, [](const Repeat& r) { return static_cast<double>(r.bytes) / r.seconds / 1e9; });
        const Spread p50 = spread(c.repeats, [](const Repeat& r) { return r.latency.p50_ns / 1e3; });
        const Spread p99 = spread(c.repeats, [](const Repeat& r) { return r.latency.p99_ns / 1e3; });
        const Spread p999 = spread(c.repeats, [](const Repeat& r) { return r.latency.p999_ns / 1e3; });
        text +=
            fmt::format("{:<34} {:>9.0f} ({:.0f} .. {:.0f}) {:>8.3f} {:>10.1f} {:>10.1f} {:>10.1f}\n", name,
                        iops.median, iops.least, iops.most, rate.median, p50.median, p99.median, p999.median);
    }
    return text;
}

}  // namespace gnstor::bench
