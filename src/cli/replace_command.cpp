// replace_command.cpp: gnstor ssd replace: gives the slot of a lost SSD to a spare, and shows how gnstord fills it.
#include "cli/cli.hpp"

#include <gnstor/base/say.hpp>
#include <gnstor/base/units.hpp>

#include <chrono>
#include <thread>

namespace gnstor::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(250);

struct ReplaceOptions {
    std::uint32_t slot = 0;
    std::uint32_t patience_s = 60;
    bool no_wait = false;
};

/// Asks for the replacement. As long as the lost SSD may hold a grant, gnstord refuses: asks again until then.
Result<void> ask(const Context& c, const ReplaceOptions& o) {
    const auto until = Clock::now() + std::chrono::seconds(o.patience_s);
    bool told = false;
    for (;;) {
        Result<void> done = c.control().replace_ssd(o.slot);
        if (done.ok() || done.error().code != Errc::kBusy || Clock::now() >= until) return done;
        if (!told && !c.out.json)
            say(stderr,
                "gnstor: waiting until the lost SSD has certainly stopped serving, at most some 11 s\n");
        told = true;
        std::this_thread::sleep_for(kLook);
    }
}

/// What gnstord says of the slot; empty: it has no such slot.
Result<std::string> state_of(const Context& c, std::uint32_t slot) {
    GN_ASSIGN(const json answer, c.control().get("/v1/ssds"));
    for (const json& ssd : answer.at("ssds"))
        if (ssd.value("slot", ~0u) == slot) return ssd.at("state").get<std::string>();
    return std::string();
}

/// Until the slot is filled, or nothing has been copied for `patience_s`.
Result<void> watch(const Context& c, const ReplaceOptions& o) {
    ProgressLine line(fmt::format("slot {}", o.slot), ~0ull, c.out.json);
    std::uint64_t newest = 0;
    auto moved = Clock::now();
    for (;;) {
        const bool patient = Clock::now() - moved <= std::chrono::seconds(o.patience_s);
        const Result<json> status = c.control().get("/v1/status");
        if (!status.ok() && !patient) return status.error();
        if (!status.ok()) {  // gnstord may be starting again, and then continues
            std::this_thread::sleep_for(kLook);
            continue;
        }
        const json rebuild = status->value("rebuild", json::object());
        if (rebuild.value("slot", ~0u) != o.slot) {
            GN_ASSIGN(const std::string state, state_of(c, o.slot));
            if (state == "in") return {};
            return error(Errc::kState,
                         "slot {} is {}, and nothing is being copied to it; see 'gnstor health'", o.slot,
                         state);
        }
        const auto done = rebuild.at("blocks_done").get<std::uint64_t>();
        const auto total = rebuild.at("blocks_total").get<std::uint64_t>();
        if (done != newest) {  // less than before: it has begun again
            newest = done;
            moved = Clock::now();
        } else if (!patient)
            return error(
                Errc::kTimedOut,
                "nothing was copied to slot {} for {} s{}; gnstord tries again: 'gnstor health' says "
                "what it waits for",
                o.slot, o.patience_s,
                rebuild.at("refusal") == "" ? "" : ": " + rebuild.at("refusal").get<std::string>());
        if (total != 0) line.at(done * nvme::kBlockBytes, total * nvme::kBlockBytes);
        std::this_thread::sleep_for(kLook);
    }
}

int replace(const Context& c, const ReplaceOptions& o) {
    if (const Result<void> asked = ask(c, o); !asked.ok()) return c.out.fail(asked.error());
    if (!o.no_wait)
        if (const Result<void> filled = watch(c, o); !filled.ok()) return c.out.fail(filled.error());
    c.out.document({{"slot", o.slot}, {"state", o.no_wait ? "rebuilding" : "in"}});
    c.out.text(o.no_wait
                   ? fmt::format("slot {} is being filled from the other replicas; 'gnstor status' shows "
                                 "how far it is\n",
                                 o.slot)
                   : fmt::format("slot {} is filled, and its SSD holds every replica again\n", o.slot));
    return kOk;
}

}  // namespace

std::string describe_rebuild(const json& rebuild) {
    const auto total = rebuild.at("blocks_total").get<std::uint64_t>();
    const std::uint64_t percent =
        total == 0 ? 0 : rebuild.at("blocks_done").get<std::uint64_t>() * 100 / total;
    std::string text = fmt::format("slot {} is being filled from the other replicas: {} %",
                                   rebuild.at("slot").dump(), percent);
    if (rebuild.at("ranges_stuck") != 0)
        text += fmt::format("; {} ranges cannot be copied, see 'gnstor health'",
                            rebuild.at("ranges_stuck").dump());
    return text + "\n";
}

void add_replace_command(CLI::App& ssd, Context& context) {
    auto o = std::make_shared<ReplaceOptions>();
    CLI::App* command = ssd.add_subcommand(
        "replace", "give the slot of a lost SSD to an empty spare, and fill it from the other replicas");
    command->add_option("slot", o->slot, "slot of the lost SSD, as 'gnstor ssd list' shows it")
        ->required()
        ->check(CLI::Range(0, 63));
    command->add_flag("--no-wait", o->no_wait, "return when the copying has begun, not when it has ended");
    command
        ->add_option(
            "--patience", o->patience_s,
            "seconds to wait until the lost SSD has certainly stopped serving, and for each next piece "
            "that is copied")
        ->check(CLI::Range(1, 3600))
        ->capture_default_str();
    command->callback([&context, o] { context.action = [&context, o] { return replace(context, *o); }; });
}

}  // namespace gnstor::cli
