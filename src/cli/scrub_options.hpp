// scrub_options.hpp: how often and how fast gnstord compares replicas: options of gnstor up and gnstord.
#pragma once

#include <cstdint>

namespace CLI {
class App;
}

namespace gnstor::cli {

struct ScrubSettings {
    std::uint32_t every_days = 7;  ///< between two passes; 0: only on request
    std::uint32_t mib_per_s = 64;  ///< read from all SSDs together
};

void add_scrub_options(CLI::App& app, ScrubSettings& settings);

}  // namespace gnstor::cli
