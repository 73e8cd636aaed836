// checkpoint_load.hpp: reads one complete checkpoint from the journal into an empty map and empty tombstones.
// Recovery only.
//
// Its slices are of different moments: only the replay of everything younger than BEGIN makes them the
// shard's state. Nothing read is trusted: a damaged checkpoint is an error, never a crash.
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/log/checkpoint.hpp"
#include "deengine/log/journal_index.hpp"

#include <cstdint>
#include <vector>

namespace gnstor::deengine {

struct LoadedCheckpoint {
    std::uint64_t id = 0;     ///< 0: none, the shard begins empty and everything on flash is young
    std::uint64_t begin = 0;  ///< journal page numbers
    std::uint64_t end = 0;
    std::uint32_t group = 1;        ///< of BEGIN: groups are compared relative to it
    std::uint32_t next_serial = 1;  ///< the highest that one of its pages names
    std::vector<CheckpointUnit> units;
    std::vector<VolumeFloor> floors;
    std::vector<std::uint64_t> parts;  ///< numbers of its pages, in order
};

/// `place` is an END page. kCorrupt: the checkpoint is damaged, contents of `map` and `tombstones` are
/// undefined; try another. kInvalidArgument: it is of a shard of other dimensions. `pages`: of the drive;
/// `want`: this shard's dimensions.
Result<LoadedCheckpoint> load_checkpoint(JournalIndex& journal, const JournalPlace& place,
                                         const CheckpointBegin& want, std::uint64_t pages, BlockMap& map,
                                         Tombstones& tombstones);

}  // namespace gnstor::deengine
