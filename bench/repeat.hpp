// repeat.hpp: one repeat of a benchmark by lanes: run on an array or on plain memory, judged, and put as it
// is kept. Host, one thread.
//
// Judged: every word that lanes compared is right, no operation failed, and the SSDs executed as many
// commands as the lanes counted.
#pragma once

#include "path_lanes.hpp"
#include "result.hpp"
#include "rig.hpp"

namespace gnstor::bench {

/// Sums over repeats.
struct Judgement {
    std::uint64_t checked = 0;         ///< operations that lanes compared, every word
    std::uint64_t wrong = 0;           ///< what was not as it should be, of whatever kind; each was said
    std::uint32_t ended_at_quota = 0;  ///< repeats that ended before their time
};

/// kIo: operations failed. kInvalidArgument: none fitted into the time.
Result<Repeat> run_on_array(Rig& rig, PathLanes& lanes, const LaneShape& shape, const RunRequest& request,
                            Judgement& judgement);
/// The same lanes on plain memory.
Result<Repeat> run_on_memory(const ReferenceMemory& memory, PathLanes& lanes, const LaneShape& shape,
                             const RunRequest& request, Judgement& judgement);

}  // namespace gnstor::bench
