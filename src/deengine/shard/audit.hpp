// audit.hpp: whether a shard's tables agree with each other and with flash. Slow: for simulation and tests,
// never on the I/O path.
//
// What must hold between two commands (shard_state.hpp, unit_pool.hpp, tombstones.hpp): each mapped page's
// record names its key and its unit's serial; each page is mapped once; units count what is mapped in them;
// nothing is mapped and under a tombstone at once; intervals of tombstones are disjoint; no doubt is settled.
#pragma once

#include "deengine/shard/shard_state.hpp"

#include <string>
#include <vector>

namespace gnstor::deengine {

/// Inconsistencies; empty: none.
[[nodiscard]] std::vector<std::string> audit(const ShardState& shard);

}  // namespace gnstor::deengine
