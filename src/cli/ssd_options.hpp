// ssd_options.hpp: the options that say how an array's SSDs work, the same for gnstor up and gnstord. Host
// code.
#pragma once

#include "cli/array_factory.hpp"

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gnstor::cli {

/// --service-units, --scrub, --durability, --direct, --profile. `into` outlives the parsing.
void add_ssd_options(CLI::App& app, ArrayOptions& into);
/// The words that say the same again.
std::vector<std::string> ssd_arguments(const ArrayOptions& options);

}  // namespace gnstor::cli
