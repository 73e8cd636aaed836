// engine_options.cpp: the options, their limits, and their words.
#include "engine_options.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <thread>

namespace gnstor::bench {
namespace {

constexpr std::uint32_t kThreadsMax = 256;
constexpr std::uint32_t kServiceUnitsMax = 64;  // of a drive's store

}  // namespace

void add_engine_options(CLI::App& app, EngineOptions& o) {
    app.add_option("--engine-threads", o.threads,
                   "threads that run the emulated NICs and SSDs; 0: half of the cores")
        ->capture_default_str();
    app.add_option("--nic-threads", o.nic_threads,
                   "how many of the engine threads run NICs; 0: chosen automatically")
        ->capture_default_str();
    app.add_option("--service-units", o.service_units,
                   "shards of each SSD; one thread runs a shard, so an SSD uses at most this many threads")
        ->capture_default_str();
}

Result<EngineOptions> complete(EngineOptions o) {
    if (o.threads == 0) o.threads = std::max(1u, std::thread::hardware_concurrency() / 2);
    if (o.threads > kThreadsMax)
        return error(Errc::kInvalidArgument, "--engine-threads takes 0 to {}, not {}", kThreadsMax,
                     o.threads);
    if (o.nic_threads > o.threads)
        return error(Errc::kInvalidArgument,
                     "--nic-threads takes at most the value of --engine-threads ({}), not {}", o.threads,
                     o.nic_threads);
    if (o.service_units == 0 || o.service_units > kServiceUnitsMax)
        return error(Errc::kInvalidArgument, "--service-units takes 1 to {}, not {}", kServiceUnitsMax,
                     o.service_units);
    return o;
}

std::string describe(const EngineOptions& o) {
    return fmt::format("{} engine thread{}{}, {} service unit{} an SSD", o.threads, o.threads == 1 ? "" : "s",
                       o.nic_threads == 0 ? "" : fmt::format(" ({} for NICs)", o.nic_threads),
                       o.service_units, o.service_units == 1 ? "" : "s");
}

void add_to_configuration(const EngineOptions& o, nlohmann::json& configuration) {
    configuration["engine threads"] = o.threads;
    configuration["NIC threads"] =
        o.nic_threads == 0 ? nlohmann::json("chosen") : nlohmann::json(o.nic_threads);
    configuration["service units an SSD"] = o.service_units;
}

}  // namespace gnstor::bench
