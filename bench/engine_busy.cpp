// engine_busy.cpp: shares of time, and their lines for people.
#include "engine_busy.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>

namespace gnstor::bench {
namespace {

constexpr std::string_view kPrefix = "busy_";

/// Threads of one role, by number.
using Role = std::map<std::uint32_t, double>;

double median_of(const Case& c, const std::string& name) {
    std::vector<double> values;
    for (const Repeat& r : c.repeats)
        if (const auto found = r.more.find(name); found != r.more.end()) values.push_back(found->second);
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

std::map<std::string, Role> roles_of(const Case& c) {
    std::map<std::string, Role> roles;
    for (const auto& [name, share] : c.repeats.front().more) {
        const auto dash = name.rfind('-');
        if (!name.starts_with(kPrefix) || dash == std::string::npos) continue;
        std::uint32_t number = 0;
        const char* const end = name.data() + name.size();
        if (std::from_chars(name.data() + dash + 1, end, number).ptr != end) continue;  // a helper
        roles[name.substr(kPrefix.size(), dash - kPrefix.size())][number] = median_of(c, name);
    }
    return roles;
}

std::string words_of(const std::string& name, const Role& role) {
    std::string text = fmt::format("{}-{}", name, role.begin()->first);
    if (role.size() > 1) text += fmt::format("..{}", role.rbegin()->first);
    for (const auto& [number, share] : role) text += fmt::format(" {:.0f}", share * 100);
    return text + " %";
}

}  // namespace

void add_engine(Repeat& repeat, const std::vector<EngineThread>& before,
                const std::vector<EngineThread>& after) {
    repeat.engine_cpu_seconds = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
        const EngineThread& was = i < before.size() ? before[i] : EngineThread{after[i].name, 0, 0};
        repeat.engine_cpu_seconds += static_cast<double>(after[i].cpu_time_ns - was.cpu_time_ns) / 1e9;
        const double seconds = static_cast<double>(after[i].busy_time_ns - was.busy_time_ns) / 1e9;
        // What a thread did before the first lane began and after the last had ended is not of the measured
        // time.
        repeat.more[std::string(kPrefix) + after[i].name] = std::min(1.0, seconds / repeat.seconds);
    }
}

std::string busy_lines(const std::vector<Case>& cases) {
    std::string text;
    for (const Case& c : cases) {
        if (c.repeats.empty()) continue;
        std::string line;
        for (const auto& [name, role] : roles_of(c))
            line += (line.empty() ? "" : ", ") + words_of(name, role);
        if (!line.empty()) text += fmt::format("  {:<48} {}\n", name_of(c), line);
    }
    return text.empty() ? text
                        : "Engine threads, share of the time in which they had work (median):\n" + text;
}

}  // namespace gnstor::bench
