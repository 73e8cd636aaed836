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
     "the collector copies a page and leaves the map at the old one", "mixed", 4},
    {Mutation::kIgnoreOobCrc, "ignore-oob-crc", "a torn record is believed"},
    {Mutation::kTrimWithoutTombstone, "trim-without-tombstone",
     "a trim forgets the block and remembers no order"},
    {Mutation::kCheckpointBeforeLog, "checkpoint-before-log",
     "a checkpoint is ended before what its slices name is durable", "mixed", 6},
    {Mutation::kApplyOutdatedPage, "apply-outdated-page",
     "recovery maps a page of an earlier life of its VID", "mixed", 3},
    {Mutation::kForgetDoubt, "forget-doubt", "a young page whose contents are bad is as if never written",
     "rot", 5},
    {Mutation::kForgetLostRecords, "forget-lost-records",
     "a page whose record is lost after a kill is as if never written", "records", 2},
    {Mutation::kAnswerSupersededEarly, "answer-superseded-early",
     "superseded is answered before the winner is durable"},
    {Mutation::kFreeUnitEarly, "free-unit-early", "a unit is free before the copies of its pages are durable",
     "tight", 8},
    {Mutation::kTornNotRecorded, "torn-not-recorded", "recovery does not write down which pages a cut tore",
     "spare", 99},
    {Mutation::kSkipFirstSync, "skip-first-sync",
     "recovery builds on what a killed process left and nothing made stable", "kills", 64},
    {Mutation::kNoSerialGap, "no-serial-gap", "serials of units whose pages a cut took are given out again",
     "kills", 0, "equivalent, where what cannot be read stays so: kSerialGap (recovery.cpp)"},
    {Mutation::kMovedNotRecorded, "moved-not-recorded",
     "a checkpoint says nothing of entries that moved while it was written", "tight", 3},
    {Mutation::kMoveKeepsWay, "move-keeps-way",
     "a moved entry of the map says that its other bucket is its first one", "tight", 1},
    {Mutation::kDamagedCopyNotHeld, "damaged-copy-not-held",
     "the unit that a damaged page was copied from is erased at once", "lazy", 136},
    {Mutation::kLostBlockNotPut, "lost-block-not-put", "a block whose page is gone is forgotten by recovery",
     "loss", 42},
    {Mutation::kOldMapAccepted, "old-map-accepted", "a command under an older map version is done", "clients",
     1},
    {Mutation::kGrantNeverExpires, "grant-never-expires", "a grant has no end", "clients", 4},
    {Mutation::kOnlyFirstChunk, "only-first-chunk",
     "of a command's chunks only the first must be this drive's", "clients", 1},
    {Mutation::kReaderMayWrite, "reader-may-write", "whoever may read may write", "clients", 1},
    {Mutation::kOldMapSetAccepted, "old-map-set-accepted", "MAP SET of an older version takes effect",
     "clients", 1},
    {Mutation::kTermUnchecked, "term-unchecked", "admin commands of an older term are done", "clients", 1},
    {Mutation::kEqualRebirth, "equal-rebirth", "a VID may be born again at the last epoch of its former life",
     "clients", 2},
    {Mutation::kSameOrderTrimWins, "same-order-trim-wins",
     "a trim takes effect over contents of its very sequence", "clients", 1},
    {Mutation::kStateCrcIgnored, "state-crc-ignored",
     "the firmware's state is believed whatever its CRC says", "clients", 1},
};

constexpr const char* kProfiles[] = {"long",  "short", "rot",    "tight",   "clients",
                                     "kills", "spare", "sparse", "full",    "loss",
                                     "lazy",  "idle",  "wide",   "records", "mixed"};

bool fails(SimConfig config, const std::set<std::uint64_t>& left_out) {
    config.left_out = left_out;
    return !run_history(config).failure.empty();
}

}  // namespace

std::span<const NamedMutation> mutations() {
    return kMutations;
}

std::span<const char* const> profiles() {
    return kProfiles;
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
    SimConfig c = small                  ? draw_short(seed, steps)
                  : profile == "rot"     ? draw_rot(seed, steps)
                  : profile == "tight"   ? draw_tight(seed, steps)
                  : profile == "clients" ? draw_clients(seed, steps)
                  : profile == "kills"   ? draw_kills(seed, steps)
                  : profile == "spare"   ? draw_spare(seed, steps)
                  : profile == "sparse"  ? draw_sparse(seed, steps)
                  : profile == "full"    ? draw_full(seed, steps)
                  : profile == "loss"    ? draw_loss(seed, steps)
                  : profile == "lazy"    ? draw_lazy(seed, steps)
                  : profile == "idle"    ? draw_idle(seed, steps)
                  : profile == "wide"    ? draw_wide(seed, steps)
                  : profile == "records" ? draw_records(seed, steps)
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

std::string summary(const SimCounters& c, std::uint64_t seeds, double seconds, std::uint64_t violations) {
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
    line("records lost", c.records_lost);
    line("media errors answered", c.media_errors);
    line("doubts answered", c.doubts);
    line("volumes deleted", c.deletions);
    line("syncs failed", c.syncs_failed);
    line("pages collected", c.collected);
    line("checkpoints", c.checkpoints);
    line("mounts refused for cause", c.mounts_refused);
    line("of them, mounted when the loss was accepted", c.losses_accepted);
    line("reads of blocks lost so", c.blocks_lost);
    line("blocks of whose loss nothing tells", c.forgiven);
    line("of them, read as zeroes", c.rot_as_zeroes);
    line("audits", c.audits);
    line("entries displaced", c.displaced);
    line("of them across the slices of an open checkpoint", c.displaced_in_slices);
    line("changes refused by a full table of tombstones", c.tombstones_full);
    line("groups aged by idling", c.groups_aged);
    line("long idle periods", c.long_idles);
    line("times the disk below was full", c.disks_full);
    line("mounts that waited for room", c.mounts_waiting);
    line("of them, settled", c.settled);
    line("clocks suspended", c.suspensions);
    line("kills whose boot could be cut", c.kills_first);
    line("commands of strangers", c.strangers);
    line("commands after the end of a grant", c.grants_ended);
    line("rotten states of the firmware", c.states_rotten);
    text +=
        fmt::format("{} in {:.1f} s: {:.0f} operations and {:.0f} recoveries a second\n",
                    violations == 0 ? "no violation" : fmt::format("{} violations", violations), seconds,
                    static_cast<double>(c.operations) / seconds, static_cast<double>(c.recoveries) / seconds);
    return text;
}

}  // namespace gnstor::deengine::sim
