// load_options.hpp: `bench load` on the command line. Host.
#pragma once

#include <CLI/CLI.hpp>

#include "load.hpp"

namespace gnstor::bench {

/// Options that are words first.
struct LoadWords {
    std::string lanes = "cpu";
    std::string working_set = "64MiB";
    std::string write_budget = "512MiB";
    std::string verify = "all";
};
/// What `load` and `paper` share.
void add_load_settings(CLI::App& app, LoadSettings& s, LoadWords& words);
void add_load_options(CLI::App& app, LoadOptions& o, LoadWords& words);
Result<void> read_load_words(const LoadWords& words, LoadSettings& s);

}  // namespace gnstor::bench
