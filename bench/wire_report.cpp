// wire_report.cpp: see wire_report.hpp.
#include "wire_report.hpp"

#include <algorithm>
#include <optional>

namespace gnstor::bench::wire_bench {
namespace {

constexpr double kShmOfLoop = 0.8, kUdpOfSockets = 0.5;
constexpr std::uint32_t kTargetBytes = 65536;

struct Spread {
    double least = 0, median = 0, most = 0;
};

Spread spread(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return {values.front(), values[values.size() / 2], values.back()};
}

template <class Get>
Spread spread(const Case& c, Get get) {
    std::vector<double> values;
    for (const Repeat& r : c.repeats) values.push_back(get(r));
    return spread(std::move(values));
}

std::string through(const Case& c) {
    return c.parameters.value("through", "");
}

double rate(const Repeat& r) {
    return static_cast<double>(r.bytes) / r.seconds;
}

/// Nothing where a repeat of either moved nothing (a run that was too short).
std::optional<Ratio> ratio(const Case& a, const Case& b, double target) {
    std::vector<double> each;
    for (std::size_t i = 0; i < std::min(a.repeats.size(), b.repeats.size()); ++i) {
        if (a.repeats[i].bytes == 0 || b.repeats[i].bytes == 0) return std::nullopt;
        each.push_back(rate(a.repeats[i]) / rate(b.repeats[i]));
    }
    if (each.empty()) return std::nullopt;
    const Spread s = spread(std::move(each));
    return Ratio{name_of(a), name_of(b), s.median, s.least, s.most, target};
}

bool same(const Case& a, const Case& b, const char* key) {
    return a.parameters.value(key, nlohmann::json()) == b.parameters.value(key, nlohmann::json());
}

std::uint64_t sum(const Case& c, const char* key) {
    double all = 0;
    for (const Repeat& r : c.repeats)
        if (const auto found = r.more.find(key); found != r.more.end()) all += found->second;
    return static_cast<std::uint64_t>(all);
}

std::string counted(const Case& c, const char* key) {
    return c.repeats[0].more.contains(key) ? fmt::format("{}", sum(c, key)) : "-";
}

}  // namespace

Verdicts judge(const std::vector<Case>& cases) {
    Verdicts all;
    const auto add = [&all](const std::optional<Ratio>& found) {
        if (found) all.ratios.push_back(*found);
    };
    for (const Case& a : cases) {
        all.receive_overruns += sum(a, "receive_overruns");
        all.retransmissions += sum(a, "retransmissions");
        for (const Case& b : cases) {
            if (!same(a, b, "bytes")) continue;
            if (through(a) == "shm" && through(b) == "loop" && same(a, b, "operation") && same(a, b, "depth"))
                add(ratio(a, b, kShmOfLoop));
            const std::uint32_t datagram = b.parameters.value("datagram", 0u);
            // A lone operation is a matter of latency.
            if (through(a) != "udp" || a.parameters.value("depth", 1u) == 1) continue;
            const bool whole_messages = through(b) == "UDP socket" && datagram > kTargetBytes / 2;
            if (through(b).ends_with("socket") || through(b).starts_with("UDP socket"))
                add(ratio(
                    a, b,
                    whole_messages && a.parameters.value("bytes", 0u) == kTargetBytes ? kUdpOfSockets : 0));
        }
    }
    return all;
}

std::string wire_table(const std::vector<Case>& cases) {
    constexpr const char* kRow =
        "{:<52} {:>33} {:>7} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8} {:>7} {:>8} {:>6}\n";
    std::string text =
        fmt::format(fmt::runtime(kRow), "case", "IOPS (least .. most)", "GB/s", "mean us", "p50 us", "p99 us",
                    "p99.9 us", "engine us", "lanes us", "CPU s/GB", "resent", "overruns", "lost %");
    for (const Case& c : cases) {
        if (c.repeats.empty()) continue;
        const Spread iops =
            spread(c, [](const Repeat& r) { return static_cast<double>(r.operations) / r.seconds; });
        const bool moved = std::all_of(c.repeats.begin(), c.repeats.end(),
                                       [](const Repeat& r) { return r.operations != 0; });
        const auto shown = [&c](bool known, int digits, auto get) {
            return known ? fmt::format("{:.{}f}", spread(c, get).median, digits) : "-";
        };
        const bool timed = moved && c.repeats[0].latency.samples != 0;
        const bool lanes = c.repeats[0].lane_cpu_seconds >= 0;
        const auto per_operation = [](double seconds, const Repeat& r) {
            return seconds * 1e6 / static_cast<double>(r.operations);
        };
        text += fmt::format(
            fmt::runtime(kRow), name_of(c),
            fmt::format("{:.0f} ({:.0f} .. {:.0f})", iops.median, iops.least, iops.most),
            shown(true, 3, [](const Repeat& r) { return rate(r) / 1e9; }),
            shown(timed, 1, [](const Repeat& r) { return r.latency.mean_ns / 1e3; }),
            shown(timed, 1, [](const Repeat& r) { return r.latency.p50_ns / 1e3; }),
            shown(timed, 1, [](const Repeat& r) { return r.latency.p99_ns / 1e3; }),
            shown(timed, 1, [](const Repeat& r) { return r.latency.p999_ns / 1e3; }),
            shown(moved, 2, [&](const Repeat& r) { return per_operation(r.engine_cpu_seconds, r); }),
            shown(moved && lanes, 2, [&](const Repeat& r) { return per_operation(r.lane_cpu_seconds, r); }),
            shown(moved, 2,
                  [](const Repeat& r) {
                      return (r.engine_cpu_seconds + std::max(0.0, r.lane_cpu_seconds)) * 1e9 /
                             static_cast<double>(r.bytes);
                  }),
            counted(c, "retransmissions"), counted(c, "receive_overruns"),
            shown(c.repeats[0].more.contains("lost_share"), 2,
                  [](const Repeat& r) { return 100 * r.more.at("lost_share"); }));
    }
    return text;
}

std::string text_of(const Verdicts& verdicts) {
    std::string text;
    for (const Ratio& r : verdicts.ratios) {
        const std::string aim =
            r.target == 0 ? "beside"
                          : fmt::format("aimed at {:.2f}: {}", r.target, r.met() ? "met" : "MISSED");
        text += fmt::format("{:<44} over {:<52} {:.2f} ({:.2f} .. {:.2f})  {}\n", r.what, r.beside, r.median,
                            r.least, r.most, aim);
    }
    text +=
        fmt::format("packets of the udp wire: {} lost by our own overrun (aimed at 0: {}), {} sent again\n",
                    verdicts.receive_overruns, verdicts.receive_overruns == 0 ? "met" : "MISSED",
                    verdicts.retransmissions);
    return text;
}

nlohmann::json to_json(const Verdicts& verdicts) {
    nlohmann::json ratios = nlohmann::json::array();
    for (const Ratio& r : verdicts.ratios) {
        ratios.push_back({{"what", r.what},
                          {"beside", r.beside},
                          {"median", r.median},
                          {"least", r.least},
                          {"most", r.most}});
        if (r.target != 0) {
            ratios.back()["target"] = r.target;
            ratios.back()["met"] = r.met();
        }
    }
    return {{"ratios", ratios},
            {"receive_overruns", verdicts.receive_overruns},
            {"retransmissions", verdicts.retransmissions}};
}

Result<void> promise_kept(const Verdicts& verdicts) {
    if (verdicts.receive_overruns == 0) return {};
    return error(Errc::kIo,
                 "the udp wire lost {} packets because a receiving socket of its own was full: the sender's "
                 "pacing does not respect the room in the receiver's buffer",
                 verdicts.receive_overruns);
}

}  // namespace gnstor::bench::wire_bench
