#include "cli/scrub_options.hpp"

#include <CLI/CLI.hpp>

namespace gnstor::cli {

void add_scrub_options(CLI::App& app, ScrubSettings& settings) {
    app.add_option(
           "--scrub-every", settings.every_days,
           "days between two passes that compare the replicas of all volumes, and put again what an SSD "
           "cannot read; 0: only 'gnstor scrub --start' begins one")
        ->check(CLI::Range(0, 365))
        ->capture_default_str();
    app.add_option("--scrub-rate", settings.mib_per_s, "MiB that such a pass reads from all SSDs in a second")
        ->check(CLI::Range(1, 65'536))
        ->capture_default_str();
}

}  // namespace gnstor::cli
