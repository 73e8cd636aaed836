// result.hpp: one benchmark run as it is kept: command, commit, machine and every repeat; raw material of
// every table in docs/.
#pragma once

#include <gnstor/base/result.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace gnstor::bench {

/// Latency of single operations, in nanoseconds.
struct Latency {
    double mean_ns = 0;
    std::uint32_t p50_ns = 0, p99_ns = 0, p999_ns = 0, max_ns = 0;
    std::uint64_t samples = 0;
};
Latency summarize(std::vector<std::uint32_t> nanoseconds);

inline constexpr double kNotMeasured = -1;

/// What one repeat of one case measured.
struct Repeat {
    double seconds = 0;
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
    Latency latency;
    double engine_cpu_seconds = kNotMeasured;    ///< of the emulated hardware's threads
    double lane_cpu_seconds = kNotMeasured;      ///< of the lanes' threads, polling included; CPU lanes only
    double lane_waiting_seconds = kNotMeasured;  ///< wall time that lanes had nothing to do, summed over them
    std::uint64_t checked = 0;                   ///< operations whose every word was compared
    double bytes_a_block = kNotMeasured;         ///< memory that a structure takes for each block it maps
    double times_reference = kNotMeasured;       ///< time over the reference's of this very repeat
    std::map<std::string, double> more;  ///< what only some benchmarks measure, by its name in the result
};

/// One case: what varied, and its repeats.
struct Case {
    nlohmann::json parameters;
    std::vector<Repeat> repeats;
    /// That polled, by what they are, where a benchmark shares cores out: what it did, and not what it was
    /// asked for.
    std::map<std::string, std::uint32_t> threads;
    std::string verdict;  ///< where a benchmark judges its cases; empty: it does not
};

/// Its parameters in a row, for people.
std::string name_of(const Case& c);

/// Median over repeats of what took so many seconds (Repeat::more), in us an operation; "-" where it was not
/// measured.
std::string us_an_operation(const Case& c, const std::string& name);

/// CPU, cores, memory, GPU and kernel of this machine, and what compiled this program.
nlohmann::json describe_machine();

/// Of the machine, over the last minute; "unknown" where it does not say.
std::string load_average();

/// The whole run in the schema of docs/runs/README.md.
nlohmann::json to_json(const std::string& benchmark, const std::vector<std::string>& command,
                       const std::string& commit, const nlohmann::json& configuration,
                       const std::vector<Case>& cases);

/// A case as to_json gave it. kCorrupt: it is none.
Result<Case> case_from_json(const nlohmann::json& one);

/// Writes it, or an Error that names the path.
Result<void> write_json(const std::filesystem::path& path, const nlohmann::json& run);

/// A table for people: a row a case, median over repeats with the least and the most.
std::string table(const std::vector<Case>& cases);
/// The same of what was measured for its cost: nanoseconds an operation and core (parameter `cores`, else 1),
/// memory a block, times the reference.
std::string cost_table(const std::vector<Case>& cases);

}  // namespace gnstor::bench
