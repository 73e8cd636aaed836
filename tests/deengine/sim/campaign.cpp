// campaign.cpp: running, replaying and shrinking histories.
#include "deengine/sim/campaign.hpp"

#include <fmt/core.h>

#include <vector>

namespace gnstor::deengine::sim {
namespace {

constexpr NamedMutation kMutations[] = {
    {Mutation::kSkipNewerCheck, "skip-newer-check",
     "a write takes effect though the stored version is newer"},
    {Mutation::kCompleteBeforeProgram, "complete-before-program",
     "a write is answered before its page is programmed"},
    {Mutation::kCollectorForgetsMap, "collector-forgets-map",
     "the collector copies a page and leaves the map at the old one"},
    {Mutation::kIgnoreOobCrc, "ignore-oob-crc", "a torn record is believed"},
    {Mutation::kTrimWithoutTombstone, "trim-without-tombstone",
     "a trim forgets the block and remembers no order"},
    {Mutation::kCheckpointBeforeLog, "checkpoint-before-log",
     "a checkpoint is ended before what its slices name is durable"},
    {Mutation::kApplyOutdatedPage, "apply-outdated-page",
     "recovery maps a page of an earlier life of its VID"},
    {Mutation::kForgetDoubt, "forget-doubt", "a young page whose contents are bad is as if never written"},
    {Mutation::kAnswerSupersededEarly, "answer-superseded-early",
     "superseded is answered before the winner is durable"},
};

bool fails(SimConfig config, const std::set<std::uint64_t>& left_out) {
    config.left_out = left_out;
    return !run_history(config).failure.empty();
}

}  // namespace

std::span<const NamedMutation> mutations() {
    return kMutations;
}

std::optional<Mutation> mutation_named(std::string_view name) {
    if (name == "none") return Mutation::kNone;
    for (const NamedMutation& m : kMutations)
        if (name == m.name) return m.mutation;
    return std::nullopt;
}

SimConfig make_config(std::string_view profile, std::uint64_t seed, std::uint64_t operations,
                      Mutation mutation) {
    const bool small = profile == "short" || (profile == "mixed" && seed % 4 != 0);
    const std::uint64_t steps = operations != 0 ? operations : small ? 40 : 3000;
    SimConfig c = small              ? draw_short(seed, steps)
                  : profile == "rot" ? draw_rot(seed, steps)
                                     : draw_long(seed, steps);
    c.engine.mutation = mutation;
    return c;
}

std::string replay_command(std::string_view profile, std::uint64_t seed, std::uint64_t operations,
                           Mutation mutation) {
    std::string text =
        fmt::format("./run sim --profile {} --seed {} --ops {} --trace", profile, seed, operations);
    for (const NamedMutation& m : kMutations)
        if (m.mutation == mutation) text += fmt::format(" --mutation {}", m.name);
    return text;
}

RunResult run_history(const SimConfig& config) {
    World world(config);
    world.run();
    return {world.failure(), world.steps_done(), world.counters(), world.trace()};
}

/// Leaves out halves, quarters, ... single steps, as long as the rest still fails.
std::string shrink(SimConfig config) {
    config.trace = false;
    const RunResult first = run_history(config);
    if (first.failure.empty()) return "it does not fail\n";
    config.operations = first.step;
    std::set<std::uint64_t> left_out;
    for (std::uint64_t length = first.step / 2; length != 0; length /= 2) {
        for (std::uint64_t begin = 1; begin <= config.operations; begin += length) {
            std::set<std::uint64_t> more = left_out;
            for (std::uint64_t s = begin; s < begin + length && s <= config.operations; ++s) more.insert(s);
            if (more.size() != left_out.size() && fails(config, more)) left_out = std::move(more);
        }
    }
    config.left_out = left_out;
    config.trace = true;
    const RunResult last = run_history(config);
    std::string text = fmt::format("shrunk to {} of {} steps: {}\n", config.operations - left_out.size(),
                                   config.operations, last.failure);
    for (const std::string& line : last.trace) text += line + "\n";
    return text;
}

std::string summary(const SimCounters& c, std::uint64_t seeds, double seconds) {
    std::string text;
    const auto line = [&](const char* what, std::uint64_t n) { text += fmt::format("{:>16} {}\n", n, what); };
    line("seeds", seeds);
    line("operations", c.operations);
    line("commands", c.commands);
    line("reads compared", c.reads);
    line("blocks compared", c.blocks_compared);
    line("commands refused", c.refusals);
    line("refused for room", c.full);
    line("refused as busy", c.busy);
    line("superseded", c.superseded);
    line("cuts looked at", c.cuts);
    line("cuts during recovery", c.cuts_in_recovery);
    line("crashes gone on from", c.crashes);
    line("clean closes", c.closes);
    line("recoveries", c.recoveries);
    line("operations torn by cuts", c.torn);
    line("operations lost by cuts", c.lost);
    line("pages programmed", c.programs);
    line("programs failed", c.programs_failed);
    line("units erased", c.erases);
    line("erases failed", c.erases_failed);
    line("pages rotten", c.rotten);
    line("young pages rotten", c.rotten_young);
    line("media errors answered", c.media_errors);
    line("doubts answered", c.doubts);
    line("volumes deleted", c.deletions);
    line("syncs failed", c.syncs_failed);
    line("pages collected", c.collected);
    line("checkpoints", c.checkpoints);
    line("mounts refused for cause", c.mounts_refused);
    line("blocks of whose loss nothing tells", c.forgiven);
    line("audits", c.audits);
    text +=
        fmt::format("no violation in {:.1f} s: {:.0f} operations and {:.0f} recoveries a second\n", seconds,
                    static_cast<double>(c.operations) / seconds, static_cast<double>(c.recoveries) / seconds);
    return text;
}

}  // namespace gnstor::deengine::sim
