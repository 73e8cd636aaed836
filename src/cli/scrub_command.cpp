// scrub_command.cpp: gnstor scrub: how far the comparison of replicas is, and what it found; --start begins a pass.
#include "cli/cli.hpp"

#include <gnstor/base/units.hpp>

namespace gnstor::cli {
namespace {

using nlohmann::json;

/// "3 d", "2 h", "5 min" or "12 s".
std::string duration(std::uint64_t seconds) {
    const auto rounded = [seconds](std::uint64_t unit) { return (seconds + unit / 2) / unit; };
    if (seconds >= 2 * 86'400) return fmt::format("{} d", rounded(86'400));
    if (seconds >= 2 * 3'600) return fmt::format("{} h", rounded(3'600));
    if (seconds >= 2 * 60) return fmt::format("{} min", rounded(60));
    return fmt::format("{} s", seconds);
}

std::string describe_pass(const json& scrub) {
    const json& pass = scrub.at("pass");
    const auto number = [&](const char* name) { return pass.at(name).get<std::uint64_t>(); };
    const std::uint64_t total = number("blocks_total"), seconds = number("seconds");
    std::string text;
    if (scrub.at("running").get<bool>())
        text = fmt::format("a pass has been under way for {}: {} %\n", duration(seconds),
                           total == 0 ? 100 : number("blocks_done") * 100 / total);
    else if (scrub.at("passes") == 0)
        return "no pass has ended since gnstord started\n";
    else
        text = fmt::format("the last pass ended {} ago and took {}\n",
                           duration(scrub.at("ended_seconds_ago").get<std::uint64_t>()), duration(seconds));
    text += fmt::format("blocks compared: {}\nblocks that an SSD could not read, put again: {}\n",
                        number("blocks_compared"), number("blocks_mended"));
    const auto add = [&](const char* name, const char* what) {
        if (const std::uint64_t n = number(name); n != 0) text += fmt::format("blocks {}: {}\n", what, n);
    };
    add("blocks_refused", "that an SSD did not take, or did not tell of");
    add("blocks_unreadable", "that no replica can read");
    add("blocks_different", "whose replicas differ");
    add("blocks_unresolved", "that were being written or are doubtful, left for the next pass");
    return text;
}

std::string describe_scrub(const json& scrub) {
    std::string text = describe_pass(scrub);
    for (const json& one : scrub.at("findings")) {
        const auto unreadable = one.at("unreadable_blocks").get<std::uint64_t>();
        const auto different = one.at("different_blocks").get<std::uint64_t>();
        const auto name = one.at("volume").get<std::string>();
        if (unreadable != 0)
            text +=
                fmt::format("volume '{}': {} that no replica can read\n", name, counted(unreadable, "block"));
        if (different != 0)
            text += fmt::format("volume '{}': {} whose replicas differ, the first: {}\n", name,
                                counted(different, "block"), one.at("first_difference").get<std::string>());
    }
    if (scrub.contains("next_in_seconds"))
        text += fmt::format("the next pass begins in {}\n",
                            duration(scrub.at("next_in_seconds").get<std::uint64_t>()));
    else if (!scrub.at("running").get<bool>())
        text += "no pass begins by itself (--scrub-every 0)\n";
    return text;
}

int scrub(const Context& c, bool start) {
    if (start)
        if (const Result<void> begun = c.control().start_scrub(); !begun.ok())
            return c.out.fail(begun.error());
    const Result<json> answer = c.control().get("/v1/scrub");
    if (!answer.ok()) return c.out.fail(answer.error());
    c.out.document(*answer);
    c.out.text(describe_scrub(*answer));
    return kOk;
}

}  // namespace

void add_scrub_command(CLI::App& app, Context& context) {
    CLI::App* const command = app.add_subcommand(
        "scrub", "how far the comparison of replicas is, and what it has found and mended");
    auto start = std::make_shared<bool>(false);
    command->add_flag("--start", *start, "begin a pass over all volumes now, unless one is under way");
    command->callback(
        [&context, start] { context.action = [&context, start] { return scrub(context, *start); }; });
}

}  // namespace gnstor::cli
