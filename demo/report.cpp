// report.cpp: figures as text.
#include "report.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace gnstor::demo {

std::string percentiles(std::vector<std::uint32_t> ns) {
    if (ns.empty()) return "no samples";
    std::sort(ns.begin(), ns.end());
    const auto at = [&](double q) {
        return static_cast<double>(ns[static_cast<std::size_t>(q * static_cast<double>(ns.size() - 1))]) /
               1e3;
    };
    return fmt::format("p50 {:.1f} us, p99 {:.1f} us, p99.9 {:.1f} us, max {:.1f} us", at(0.5), at(0.99),
                       at(0.999), at(1.0));
}

std::string rate(std::uint64_t commands, std::uint64_t bytes, double seconds) {
    return fmt::format("{:.0f} IOPS, {:.3f} GB/s in {:.3f} s", static_cast<double>(commands) / seconds,
                       static_cast<double>(bytes) / seconds / 1e9, seconds);
}

std::string load_by_ssd(const std::vector<client::SsdCounts>& before,
                        const std::vector<client::SsdCounts>& after) {
    constexpr double kBarWidth = 30;
    std::uint64_t most = 1;
    for (std::size_t i = 0; i < after.size(); ++i) most = std::max(most, after[i].reads - before[i].reads);
    std::string out;
    for (std::size_t i = 0; i < after.size(); ++i) {
        const std::uint64_t reads = after[i].reads - before[i].reads;
        const auto bar =
            static_cast<std::size_t>(kBarWidth * static_cast<double>(reads) / static_cast<double>(most));
        out += fmt::format("    slot {}  {:<30}  {:>7} reads, {:>8} blocks stored\n", after[i].slot,
                           std::string(bar, '#'), reads, after[i].blocks_stored);
    }
    return out;
}

std::string box(const std::string& title, const std::vector<std::string>& lines) {
    std::size_t width = title.size();
    for (const std::string& line : lines) width = std::max(width, line.size());
    std::string out = fmt::format("+-- {} {}+\n", title, std::string(width - title.size(), '-'));
    for (const std::string& line : lines) out += fmt::format("|  {:<{}}  |\n", line, width);
    return out + fmt::format("+{}+\n", std::string(width + 4, '-'));
}

}  // namespace gnstor::demo
