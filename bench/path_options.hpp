// path_options.hpp: `bench path` on the command line: which options can be, and what follows from them. Host;
// pure.
#pragma once

#include "path.hpp"
#include "path_lanes.hpp"

namespace gnstor::bench {

/// Options that are words first.
struct PathWords {
    std::string lanes = "cpu";
    std::vector<std::string> operations{"read", "write"};
    std::string working_set = "256MiB";
    std::string write_budget;
    std::string verify = "all";
};
void add_path_options(CLI::App& app, PathOptions& options, PathWords& words);
Result<void> read_path_words(const PathWords& words, PathOptions& options);

/// "every word of every read" and so on.
const char* verify_words(Verify verify);

/// kInvalidArgument: says which option takes what.
Result<void> check_options(const PathOptions& options);

/// The lanes' own choice, changed as the options say.
Result<LaneShape> choose_shape(const PathOptions& options, const PathLanes& lanes,
                               std::uint32_t engine_threads);

}  // namespace gnstor::bench
