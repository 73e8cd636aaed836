// ssd_options.cpp: names and ranges of the SSD options.
#include "cli/ssd_options.hpp"

#include <CLI/CLI.hpp>

#include <map>

namespace gnstor::cli {
namespace {

constexpr std::uint32_t kMaxServiceUnits = 64;
constexpr std::uint32_t kMaxScrubMib = 4096;

const std::map<std::string, SsdDurability>& durabilities() {
    static const std::map<std::string, SsdDurability> kNames = {{"default", SsdDurability::kDefault},
                                                                {"process", SsdDurability::kProcess},
                                                                {"power", SsdDurability::kPower}};
    return kNames;
}

}  // namespace

void add_ssd_options(CLI::App& app, ArrayOptions& into) {
    app.add_option("--service-units", into.service_units,
                   "service units (shards, each run by one thread) of each new SSD")
        ->check(CLI::Range(1u, kMaxServiceUnits))
        ->capture_default_str();
    app.add_option("--scrub", into.scrub_mib,
                   "MiB a second that each service unit checks for damage in the background; 0: no scrub")
        ->check(CLI::Range(0u, kMaxScrubMib))
        ->capture_default_str();
    app.add_option(
           "--durability", into.durability,
           "what an acknowledged write survives: process (its process is killed) or power (power is lost)")
        ->transform(CLI::CheckedTransformer(durabilities(), CLI::ignore_case))
        ->option_text("process|power");
    app.add_flag("--direct", into.direct_io, "read and write the stores without the page cache (O_DIRECT)");
    app.add_option("--profile", into.profile,
                   "hardware whose timing SSDs and network imitate: none, unbounded (everything is timed, "
                   "nothing is limited), gnstor-paper, samsung-980-pro, samsung-pm1743, or a file (with a "
                   "slash, or ending in .json)")
        ->capture_default_str();
}

std::vector<std::string> ssd_arguments(const ArrayOptions& options) {
    std::vector<std::string> words{"--service-units", std::to_string(options.service_units), "--scrub",
                                   std::to_string(options.scrub_mib)};
    for (const auto& [name, durability] : durabilities())
        if (durability == options.durability) words.insert(words.end(), {"--durability", name});
    if (options.direct_io) words.emplace_back("--direct");
    // An absolute path, because a daemon's working directory may differ from its starter's.
    const bool is_file = options.profile.find('/') != std::string::npos || options.profile.ends_with(".json");
    words.insert(
        words.end(),
        {"--profile",
         is_file ? std::filesystem::absolute(options.profile).lexically_normal().string() : options.profile});
    return words;
}

}  // namespace gnstor::cli
