// recovered_checkpoint.hpp: the checkpoint of what was recovered, and shards that wait for room for it.
//
// A shard is unsettled when its recovery has found everything, but the medium below the flash (a full disk
// under a sparse store) has no room for the checkpoint of that. It serves reads with the recovered map and
// refuses writes. Volumes can be deleted: the firmware's state records a deletion, as if a cut had followed
// it, and the units that it empties have room for the checkpoint.
// Owns whether that checkpoint is still missing, and when it was last tried. Invariants while it is
//   * only parts of that checkpoint are programmed, in the newest group found: if the process ends, that is
//   another cut of the same recovery, and the next mount finds what this one found;
//   * an attempt begins when all its pages have room below, so that an attempt without room has programmed
//   and erased nothing;
//   * nothing is acknowledged that a next mount would have to find.
// One owner thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/shard/checkpoint_schedule.hpp"
#include "deengine/shard/durability.hpp"
#include "deengine/shard/shard_log.hpp"
#include "deengine/shard/shard_state.hpp"

#include <cstdint>

namespace gnstor::deengine {

class RecoveredCheckpoint {
  public:
    RecoveredCheckpoint(ShardState& state, ShardLog& log, Durability& durability,
                        CheckpointSchedule& schedule)
        : state_(state), log_(log), durability_(durability), schedule_(schedule) {}

    /// Writes the checkpoint that ends a recovery, in the newest group found. kNoSpace: there is no page for
    /// it (CheckpointSchedule::no_room_below(): because the medium below is full).
    Result<void> write();
    /// It could not be written: the shard is unsettled until retry() has.
    void postpone() { pending_ = true; }
    [[nodiscard]] bool pending() const { return pending_; }
    /// While pending(): tries again, at most once a second. True: it is written, the shard may be started.
    [[nodiscard]] bool retry();
    /// Why it could not be written.
    [[nodiscard]] Error why_not() const;

  private:
    Result<void> write_one();
    [[nodiscard]] std::uint64_t units_needed() const;

    ShardState& state_;
    ShardLog& log_;
    Durability& durability_;
    CheckpointSchedule& schedule_;
    bool pending_ = false;
    std::uint64_t tried_ns_ = 0;
};

}  // namespace gnstor::deengine
