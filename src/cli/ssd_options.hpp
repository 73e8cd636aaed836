// ssd_options.hpp: the command-line options of an array's SSDs, shared by gnstor up, gnstor node and gnstord.
// Host code.
#pragma once

#include "cli/array_factory.hpp"

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gnstor::cli {

/// --service-units, --scrub, --durability, --direct, --profile. `into` must outlive the parsing.
void add_ssd_options(CLI::App& app, ArrayOptions& into);
/// The same options as command-line arguments, for a child process.
std::vector<std::string> ssd_arguments(const ArrayOptions& options);

}  // namespace gnstor::cli
