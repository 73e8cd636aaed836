// checkpoint_schedule.hpp: when a shard begins a checkpoint, and how fast it writes one between commands.
//
// A checkpoint is due after so many sealed units or log pages, for a table of tombstones that it may shorten,
// and where only a checkpoint gives units back that the journal holds.
// Owns what was reached when the last one began, and whether the medium below the flash refused its room.
// Invariants
//   * a checkpoint begins only if all its pages fit, in the journal and in the medium below: one that does
//   not fit would waste the last pages;
//   * slices keep pace with programs: the next recovery must scan every page programmed since BEGIN.
// One owner thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/shard/collector.hpp"
#include "deengine/shard/durability.hpp"
#include "deengine/shard/shard_log.hpp"
#include "deengine/shard/shard_state.hpp"
#include "deengine/shard/tombstone_pruner.hpp"

#include <cstdint>

namespace gnstor::deengine {

class CheckpointSchedule {
  public:
    CheckpointSchedule(ShardState& state, ShardLog& log, Durability& durability, Collector& collector,
                       TombstonePruner& pruner)
        : state_(state), log_(log), durability_(durability), collector_(collector), pruner_(pruner) {}

    /// A checkpoint begins; or a mount ends, which has written one.
    void note_begin();
    /// A command waits for pages that only a checkpoint frees: the next advance() begins one.
    void ask() { asked_ = true; }
    /// Begins a checkpoint, or writes its next slice.
    void advance();
    /// Writes a checkpoint to its end, waiting for syncs: the next mount replays nothing.
    Result<void> write_last();

    /// Asks the medium below for the room of one checkpoint; `no_room_below()` tells the answer.
    [[nodiscard]] bool reserve();
    /// The medium below the flash had no room for the latest checkpoint.
    [[nodiscard]] bool no_room_below() const { return no_room_below_; }
    void set_no_room_below(bool refused) { no_room_below_ = refused; }

  private:
    [[nodiscard]] bool is_due() const;
    [[nodiscard]] bool has_room();
    bool begin();
    void step(std::uint32_t pages);

    ShardState& state_;
    ShardLog& log_;
    Durability& durability_;
    Collector& collector_;
    TombstonePruner& pruner_;
    std::uint64_t programmed_at_slice_ = 0;  ///< counters.pages_programmed when the last slice ended
    std::uint64_t sealed_at_begin_ = 0;      ///< UnitPool::units_sealed()
    std::uint32_t group_at_begin_ = 0;
    bool asked_ = false;
    bool no_room_below_ = false;
    std::uint64_t room_asked_ns_ = 0;  ///< when the medium below was last asked for room
};

}  // namespace gnstor::deengine
