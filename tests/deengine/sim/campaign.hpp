// campaign.hpp: many histories: from a seed to its result, mutations by name, replay and shrinking.
#pragma once

#include "deengine/sim/config.hpp"
#include "deengine/sim/world.hpp"

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gnstor::deengine::sim {

struct NamedMutation {
    Mutation mutation;
    const char* name;
    const char* about;
    const char* profile = "mixed";  ///< of the histories that notice it
    std::uint64_t seed = 1;         ///< one that does; 0: none, see `why_none`
    const char* why_none = nullptr;
};
/// Every profile of random histories.
std::span<const char* const> profiles();
std::span<const NamedMutation> mutations();
std::optional<Mutation> mutation_named(std::string_view name);

/// `profile`: long, short, rot, or mixed (seed by seed). `operations` 0: as many as the profile says.
SimConfig make_config(std::string_view profile, std::uint64_t seed, std::uint64_t operations,
                      Mutation mutation);
std::string replay_command(std::string_view profile, std::uint64_t seed, std::uint64_t operations,
                           Mutation mutation);

struct RunResult {
    std::string failure;  ///< empty: nothing was found
    std::uint64_t step = 0;
    SimCounters counters;
    std::deque<std::string> trace;
};
RunResult run_history(const SimConfig& config);

/// Fewer steps that still fail, as text: what is left, and its trace.
std::string shrink(SimConfig config);

std::string summary(const SimCounters& c, std::uint64_t seeds, double seconds, std::uint64_t violations);

}  // namespace gnstor::deengine::sim
