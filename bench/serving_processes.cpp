// serving_processes.cpp: differences of CPU times, and their table.
#include "serving_processes.hpp"

#include <string_view>

namespace gnstor::bench {

void add_processes(Repeat& repeat, const std::vector<HardwareProcess>& before,
                   const std::vector<HardwareProcess>& after) {
    for (const HardwareProcess& process : after)
        for (const HardwareProcess& was : before) {
            if (was.name != process.name) continue;
            const double seconds = process.cpu_seconds - was.cpu_seconds;
            repeat.more[fmt::format("process_{}_cpu_seconds", process.name)] = seconds;
            repeat.engine_cpu_seconds += seconds;
        }
}

std::string process_lines(const std::vector<Case>& cases) {
    constexpr std::string_view kBegin = "process_", kEnd = "_cpu_seconds";
    std::string text;
    for (const Case& c : cases) {
        std::string line;
        if (c.repeats.empty()) continue;
        for (const auto& [name, value] : c.repeats.front().more)
            if (name.starts_with(kBegin) && name.ends_with(kEnd))
                line += fmt::format("{}{} {}", line.empty() ? "" : ", ",
                                    name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size()),
                                    us_an_operation(c, name));
        if (!line.empty()) text += fmt::format("  {:<48} {}\n", name_of(c), line);
    }
    return text.empty() ? text
                        : "Processes that emulate NIC and SSDs, CPU time in us per I/O (included in NIC+SSD "
                          "above):\n" +
                              text;
}

}  // namespace gnstor::bench
