// main.cpp: gnstor_sim, the simulator's command line (./run sim): seeds, operations, mutations, replay,
// shrink.
//
// Exit code 0: nothing was found (with --mutation: something was), 1: the opposite, 2: usage.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "deengine/sim/campaign.hpp"
#include "deengine/sim/enumerate.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

namespace {

using namespace gnstor::deengine;
using namespace gnstor::deengine::sim;

struct Options {
    std::uint64_t seed = 1, seeds = 0, operations = 0, failures = 1;
    double seconds = 0, hours = 0;
    std::string mutation = "none", profile;
    bool trace = false, shrink = false, list = false;
};

int run(const Options& o) {
    const auto mutation = mutation_named(o.mutation);
    if (!mutation) {
        fmt::print(stderr, "there is no mutation '{}'; --list names them\n", o.mutation);
        return 2;
    }
    const double limit = o.hours * 3600 + o.seconds;
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    std::uint64_t seeds = o.seeds != 0                   ? o.seeds
                          : limit > 0                    ? ~0ull
                          : *mutation != Mutation::kNone ? 10'000
                                                         : 1;
    SimCounters sum;
    std::uint64_t done = 0;
    double reported = 0;
    std::uint64_t failures = 0;
    for (std::uint64_t seed = o.seed; done < seeds && (limit <= 0 || elapsed() < limit); ++seed, ++done) {
        SimConfig config = make_config(o.profile, seed, o.operations, *mutation);
        config.trace = o.trace;
        const RunResult result = run_history(config);
        sum.add(result.counters);
        if (o.seeds == 0 && done == 0 && limit <= 0) fmt::print("{}\n", config.describe());
        if (elapsed() - reported > 60) {
            reported = elapsed();
            fmt::print("{:8.0f} s: {} seeds, {} operations, {} cuts, {} recoveries\n", reported, done + 1,
                       sum.operations, sum.cuts, sum.recoveries);
            std::fflush(stdout);
        }
        if (result.failure.empty()) continue;
        fmt::print("seed {}: {}\n  {}\n  replay: {}\n", seed, result.failure, config.describe(),
                   replay_command(o.profile, seed, config.operations, *mutation));
        if (o.shrink) fmt::print("{}", shrink(config));
        for (const std::string& line : result.trace) fmt::print("{}\n", line);
        fmt::print("found with seed {} ({} seeds, {:.1f} s)\n", seed, done + 1, elapsed());
        std::fflush(stdout);
        if (++failures < o.failures) continue;
        return *mutation == Mutation::kNone ? 1 : 0;
    }
    fmt::print("{}", summary(sum, done, elapsed(), failures));
    if (failures != 0) return *mutation == Mutation::kNone ? 1 : 0;
    if (*mutation == Mutation::kNone) return 0;
    fmt::print("mutation '{}' was not noticed\n", o.mutation);
    return 1;
}

/// Every history of up to `length` commands in every mode.
int run_enumeration(std::uint32_t length, Mutation mutation) {
    for (const Mode mode : modes()) {
        for (const bool waits : {true, false}) {
            const EnumerationResult r = enumerate(mode, waits, length, mutation);
            fmt::print("{}, {}: {} histories of up to {} commands, {} cuts\n", mode_name(mode),
                       waits ? "each answered before the next" : "all sent at once", r.histories, length,
                       r.counters.cuts);
            std::fflush(stdout);
            if (r.failure.empty()) continue;
            fmt::print("{}\n", r.failure);
            return mutation == Mutation::kNone ? 1 : 0;
        }
    }
    return mutation == Mutation::kNone ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    CLI::App app{"gnstor_sim: simulated histories of a drive with cuts and faults, against an oracle"};
    app.add_option("--seed", o.seed, "the first seed");
    app.add_option("--seeds", o.seeds, "how many seeds");
    app.add_option("--ops", o.operations, "steps of each history (default: the profile's)");
    app.add_option("--seconds", o.seconds, "go on for so long");
    app.add_option("--hours", o.hours, "go on for so long");
    app.add_option("--mutation", o.mutation, "break a rule of the engine on purpose: it must be noticed");
    app.add_option(
        "--profile", o.profile,
        fmt::format("{} or enumerate (default: the mutation's, or mixed)", fmt::join(profiles(), ", ")));
    app.add_option("--failures", o.failures, "stop at so many violations");
    app.add_flag("--trace", o.trace, "print what was done before the violation");
    app.add_flag("--shrink", o.shrink, "leave out steps as long as it still fails");
    app.add_flag("--list", o.list, "name the mutations");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 2;
    }
    if (o.list) {
        for (const auto& m : mutations())
            fmt::print("{:24} {:8} {:>6} {}{}{}\n", m.name, m.profile,
                       m.seed != 0 ? std::to_string(m.seed) : "-", m.about,
                       m.why_none != nullptr ? "; not noticed: " : "",
                       m.why_none != nullptr ? m.why_none : "");
        return 0;
    }
    for (const auto& m : mutations())
        if (o.profile.empty() && o.mutation == m.name) o.profile = m.profile;
    if (o.profile.empty()) o.profile = "mixed";
    if (o.profile != "enumerate" && std::ranges::find(profiles(), o.profile) == profiles().end()) {
        fmt::print(stderr, "there is no profile '{}'; --help names them\n", o.profile);
        return 2;
    }
    if (o.profile == "enumerate") {
        const auto mutation = mutation_named(o.mutation);
        return run_enumeration(o.operations != 0 ? static_cast<std::uint32_t>(o.operations) : 4,
                               mutation.value_or(Mutation::kNone));
    }
    return run(o);
}
