// engine_options.hpp: how many threads run the emulated NICs and SSDs, and how they share them: the same
// options for every benchmark that opens an array. Host; pure.
#pragma once

#include <gnstor/base/result.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

namespace gnstor::bench {

struct EngineOptions {
    std::uint32_t threads = 0;        ///< for NICs and SSDs together; 0: half of the cores
    std::uint32_t nic_threads = 0;    ///< of those, how many run NICs; 0: chosen
    std::uint32_t service_units = 1;  ///< shards of an SSD, each run by one thread
};

/// Of the option --profile.
inline constexpr char kProfileHelp[] =
    "hardware whose timing the emulated SSDs and network imitate: none, unbounded (timed, without a limit), "
    "gnstor-paper, "
    "samsung-980-pro, samsung-pm1743, or the path of a profile (it contains a slash or ends in .json)";

void add_engine_options(CLI::App& app, EngineOptions& options);
/// Checks, and fills in the number of threads. kInvalidArgument: says which option takes what.
Result<EngineOptions> complete(EngineOptions options);
/// For a heading: "3 engine threads (1 for NICs), 2 service units an SSD".
std::string describe(const EngineOptions& options);
/// Puts them among what a raw result says of its configuration.
void add_to_configuration(const EngineOptions& options, nlohmann::json& configuration);

}  // namespace gnstor::bench
