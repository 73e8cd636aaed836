// model.hpp: `bench model`: what modelled hardware gives, beside what its profile says. Host, one thread.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/simt/launch.hpp>

#include <CLI/CLI.hpp>

#include "engine_options.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace gnstor::bench {

struct ModelOptions {
    simt::LanesKind lanes = simt::LanesKind::kCpu;
    std::vector<std::string> profiles{"gnstor-paper", "samsung-980-pro", "samsung-pm1743"};
    std::vector<std::uint32_t> sizes{4096, 65536};
    std::vector<std::uint32_t> depths{1, 4, 16, 64};        ///< closed loop: in flight a lane
    std::vector<double> loads{0.25, 0.5, 0.75, 0.9, 0.97};  ///< open loop: shares of what can be had
    bool read = true, write = true;
    std::uint32_t repeats = 3;
    double seconds = 0.4;  ///< of each repeat
    std::uint32_t ssds = 1, replicas = 1;
    EngineOptions engine;
    std::uint32_t channels = 0, warps = 0;  ///< 0: chosen for the lanes
    std::uint64_t working_set = 64ull << 20;
    std::uint64_t write_budget = 2ull << 30;
    std::uint64_t seed = 1;
    std::string json;
    std::vector<std::string> command;
};

/// Options that are words first.
struct ModelWords {
    std::string lanes = "cpu";
    std::vector<std::string> operations{"read", "write"};
    std::string working_set = "64MiB";
    std::string write_budget = "2GiB";
};
void add_model_options(CLI::App& app, ModelOptions& o, ModelWords& words);
Result<void> read_model_words(const ModelWords& words, ModelOptions& o);

struct ModelEnd {
    bool data_was_right;
    std::uint32_t outside;  ///< cases more than 3 % away from their profile, and not by the host
};
/// Measures and prints.
Result<ModelEnd> run_model(const ModelOptions& options);

}  // namespace gnstor::bench
