// deengine_options.hpp: `bench deengine` on the command line. Host.
#pragma once

#include "deengine.hpp"

#include <CLI/CLI.hpp>

#include <string>

namespace gnstor::bench {

/// Options that are words first.
struct DeEngineWords {
    std::string data = "1GiB";
    std::string lanes = "cpu";
};
void add_deengine_options(CLI::App& app, DeEngineOptions& options, DeEngineWords& words);
Result<void> read_deengine_words(const DeEngineWords& words, DeEngineOptions& options);

}  // namespace gnstor::bench
