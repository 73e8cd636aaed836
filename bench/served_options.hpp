// served_options.hpp: --array and what belongs to it: a benchmark of an array that other processes serve.
// Host; pure.
#pragma once

#include "bench/initiators/served_array.hpp"

#include <CLI/CLI.hpp>

#include <initializer_list>
#include <string>

namespace gnstor::bench {

/// `what`: is measured there, in words. `own`: options of an array of one's own, which --array leaves no room
/// for; they are there already.
void add_served_options(CLI::App& app, ServedArrayOptions& options, const std::string& what,
                        std::initializer_list<const char*> own);

}  // namespace gnstor::bench
