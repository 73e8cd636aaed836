// path_options.hpp: which options of `bench path` can be, and what follows from them. Host; pure.
#pragma once

#include "path.hpp"
#include "path_lanes.hpp"

namespace gnstor::bench {

/// "every word of every read" and so on.
const char* verify_words(Verify verify);

/// kInvalidArgument: says which option takes what.
Result<void> check_options(const PathOptions& options);

/// The lanes' own choice, changed as the options say.
Result<LaneShape> choose_shape(const PathOptions& options, const PathLanes& lanes,
                               std::uint32_t engine_threads);

}  // namespace gnstor::bench
