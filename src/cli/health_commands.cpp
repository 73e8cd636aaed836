// health_commands.cpp: gnstor health: what is wrong with the array, what it means for data, and what to do;
// gnstor df: how much it holds, how much more fits, and what volumes may hold.
#include "cli/cli.hpp"

#include <gnstor/base/units.hpp>

#include <fmt/ranges.h>

#include <algorithm>

namespace gnstor::cli {
namespace {

using nlohmann::json;

std::string describe(const json& health) {
    const json& findings = health.at("findings");
    if (findings.empty()) return "health: ok; every SSD of the map serves\n";
    std::string text = fmt::format("health: {}; {}\n", health.at("status").get<std::string>(),
                                   counted(findings.size(), "finding"));
    for (const json& finding : findings) {
        text +=
            fmt::format("\n{} ({}): {}\n", finding.at("code").get<std::string>(),
                        finding.at("severity").get<std::string>(), finding.at("summary").get<std::string>());
        for (const json& detail : finding.at("details"))
            text += fmt::format("  - {}\n", detail.get<std::string>());
        text += fmt::format("  what it means: {}\n", finding.at("meaning").get<std::string>());
        text += fmt::format("  what to do:    {}\n", finding.at("action").get<std::string>());
    }
    return text;
}

int health(const Context& c) {
    const Result<json> answer = c.control().get("/v1/health");
    if (!answer.ok()) return c.out.fail(answer.error());
    c.out.document(*answer);
    c.out.text(describe(*answer));
    std::vector<std::string> codes;
    for (const json& finding : answer->at("findings")) codes.push_back(finding.at("code").get<std::string>());
    if (codes.empty()) return kOk;
    return c.out.fail(error(Errc::kState, "the array is not healthy: {}", fmt::join(codes, ", ")));
}

/// "18 %"; "?": unknown.
std::string percent(const json& of) {
    const auto capacity = of.at("capacity_bytes").get<std::uint64_t>();
    if (!of.contains("used_bytes") || capacity == 0) return "?";
    return fmt::format("{} %", of.at("used_bytes").get<std::uint64_t>() * 100 / capacity);
}

std::vector<std::string> use_row(const std::string& name, const json& of) {
    const auto capacity = of.at("capacity_bytes").get<std::uint64_t>();
    if (!of.contains("used_bytes")) return {name, format_bytes(capacity), "?", "?", "?"};
    const auto used = of.at("used_bytes").get<std::uint64_t>();
    return {name, format_bytes(capacity), format_bytes(used),
            format_bytes(capacity - std::min(capacity, used)), percent(of)};
}

/// Rounded down where that loses little, so that it is read at once.
std::uint64_t whole_mib(std::uint64_t bytes) {
    constexpr std::uint64_t kMiB = 1 << 20;
    return bytes < 16 * kMiB ? bytes : bytes / kMiB * kMiB;
}

void add_room(std::string& text, const json& rooms) {
    for (const json& room : rooms)
        text += fmt::format("  {:>10} in volumes of {}\n",
                            format_bytes(whole_mib(room.at("bytes").get<std::uint64_t>())),
                            counted(room.at("replicas").get<std::uint64_t>(), "replica"));
}

std::string describe_room(const json& capacity) {
    std::string text;
    if (capacity.at("usable").empty()) {
        text += "how much the array takes is unknown while an SSD is missing: see 'gnstor health'\n";
    } else {
        text += "data that an empty array takes until its first SSD is full:\n";
        add_room(text, capacity.at("usable"));
    }
    if (capacity.at("room").empty()) {
        text += "how much more fits is unknown while an SSD does not answer: see 'gnstor health'\n";
    } else {
        text += "data that still fits:\n";
        add_room(text, capacity.at("room"));
    }
    return text;
}

std::string describe_volumes(const json& volumes) {
    if (volumes.empty()) return {};
    std::vector<std::vector<std::string>> rows;
    for (const json& volume : volumes)
        rows.push_back({volume.at("name").get<std::string>(),
                        format_bytes(volume.at("capacity_bytes").get<std::uint64_t>()),
                        volume.at("replicas").dump(),
                        format_bytes(volume.at("byte_length").get<std::uint64_t>())});
    return table({"VOLUME", "CAPACITY", "REPLICAS", "LENGTH"}, rows, {false, true, true, true}) +
           "what each volume takes is unknown: SSDs count the blocks of all volumes together\n";
}

int df(const Context& c) {
    const Result<json> answer = c.control().get("/v1/capacity");
    if (!answer.ok()) return c.out.fail(answer.error());
    c.out.document(*answer);
    std::vector<std::vector<std::string>> rows;
    for (const json& ssd : answer->at("ssds")) rows.push_back(use_row(ssd.at("slot").dump(), ssd));
    rows.push_back(use_row("all", *answer));
    c.out.text(table({"SLOT", "CAPACITY", "USED", "FREE", "USE"}, rows, {true, true, true, true, true}) +
               describe_room(*answer) +
               fmt::format("present volumes have room for {} in all (capacity times replicas)\n",
                           format_bytes(answer->at("provisioned_bytes").get<std::uint64_t>())) +
               describe_volumes(answer->at("volumes")));
    return kOk;
}

}  // namespace

void add_health_commands(CLI::App& app, Context& context) {
    app.add_subcommand(
           "health",
           "what is wrong with the array, what it means for data, and what to do; exits with 1 if "
           "there is a finding, also a warning")
        ->callback([&context] { context.action = [&context] { return health(context); }; });
    app.add_subcommand("df", "how much the SSDs hold, how much more data fits, and what volumes may hold")
        ->callback([&context] { context.action = [&context] { return df(context); }; });
}

}  // namespace gnstor::cli
