// tombstone_pruner.hpp: which sequences of a volume are resolved, and which tombstones are dropped for that.
// docs/array.md, rule 8.
//
// A tombstone says two things: an older write of its blocks, which may still arrive, is superseded; and older
// pages of these blocks, which a recovery may still find, do not count. The first ends with the floor: no
// sequence up to it is accepted any more. The second does not need the table:
//   * a recovery maps a page that was programmed before the checkpoint which it begins at only if that
//   checkpoint maps it, and no checkpoint maps what was trimmed before it;
//   * every other page that it reads is younger than the checkpoint; so a trim of that page is younger, too,
//   and the journal holds the trim's record from that checkpoint on.
// So tombstones at or below a floor are dropped at once. Owns which checkpoint freed none. Invariants
//   * before a tombstone is dropped for a floor, the journal holds the floor's record, ahead of everything
//   later: a checkpoint that lacks the tombstone holds the floor, and a recovery that begins at a checkpoint
//   with the tombstone finds the record or still has the tombstone;
//   * a change with the sequence right above the floor is never refused for lack of room here: nothing older
//   can arrive, so its trim needs no tombstone, and the tombstones over its blocks are of resolved sequences.
//   A writer whose floor advances therefore completes all its changes, however small the table.
// One owner thread.
#pragma once

#include "deengine/shard/shard_log.hpp"
#include "deengine/shard/shard_state.hpp"

#include <cstddef>
#include <cstdint>

namespace gnstor::deengine {

class TombstonePruner {
  public:
    TombstonePruner(ShardState& state, ShardLog& log) : state_(state), log_(log) {}

    /// Sequences of this volume's epoch up to `floor` are resolved.
    void set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor);
    /// After a mount: the checkpoint that it began at holds the floors.
    void drop_all_resolved();
    /// A checkpoint is complete: drops tombstones that no kept checkpoint needs any more.
    void note_checkpoint();
    /// Whether the table takes so many more intervals of the volume; drops resolved tombstones if it must.
    [[nodiscard]] bool has_room(nvme::VolumeId volume, std::size_t intervals);
    /// Whether every sequence below the command's is resolved, so that no older write of its volume can
    /// arrive.
    [[nodiscard]] bool is_next(const ShardCommand& c) const;
    /// The table is half full, and a checkpoint may free some of it.
    [[nodiscard]] bool wants_checkpoint() const {
        return state_.tombstones.size() > state_.tombstones.capacity() / 2 &&
               useless_checkpoint_ != state_.checkpoint.completed();
    }

  private:
    bool log_floor(const VolumeFloor& floor);
    std::size_t drop_resolved(nvme::VolumeId volume, bool older_epochs);

    ShardState& state_;
    ShardLog& log_;
    std::uint64_t useless_checkpoint_ = 0;  ///< checkpoint that freed no tombstone; 0: the last one did
};

}  // namespace gnstor::deengine
