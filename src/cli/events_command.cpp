// events_command.cpp: gnstor events: what happened to the array since gnstord started.
#include "cli/cli.hpp"

namespace gnstor::cli {
namespace {

using nlohmann::json;

/// What the list does not show, though it was asked for; empty: nothing.
std::string describe_missing(const json& page, std::uint64_t since) {
    const auto first = page.at("first").get<std::uint64_t>(), last = page.at("last").get<std::uint64_t>();
    if (since > last)
        return fmt::format("gnstord has restarted since event {}: numbers begin at 1 again\n", since);
    if (first > since + 1)
        return fmt::format("events {} to {} are not kept any more\n", since + 1, first - 1);
    return {};
}

int events(const Context& c, std::uint64_t since) {
    const Result<json> answer = c.control().get(fmt::format("/v1/events?since={}", since));
    if (!answer.ok()) return c.out.fail(answer.error());
    c.out.document(*answer);
    std::vector<std::vector<std::string>> rows;
    for (const json& event : answer->at("events"))
        rows.push_back({event.at("number").dump(), event.at("time").get<std::string>(),
                        event.at("code").get<std::string>(), event.at("text").get<std::string>()});
    c.out.text(describe_missing(*answer, since) +
               table({"NUMBER", "TIME", "CODE", "WHAT"}, rows, {true, false, false, false}));
    return kOk;
}

}  // namespace

void add_events_command(CLI::App& app, Context& context) {
    CLI::App* const command = app.add_subcommand(
        "events", "what happened to the array since gnstord started: its newest 1,000 events");
    auto since = std::make_shared<std::uint64_t>(0);
    command->add_option("--since", *since, "only events with a higher number")->capture_default_str();
    command->callback(
        [&context, since] { context.action = [&context, since] { return events(context, *since); }; });
}

}  // namespace gnstor::cli
