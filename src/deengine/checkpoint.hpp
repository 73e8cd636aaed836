// checkpoint.hpp: writes the shard's state into its journal, a slice at a time, while the shard goes on.
// docs/store-format.md, "Checkpoints".
//
// Phases: idle -> (everything so far durable) -> begin and unit table -> map slices -> tombstones, floors ->
// (everything so far durable) -> end -> (durable) -> complete. The shard says when its groups are durable;
// step() never waits. Invariants
//   * whatever a slice names was durable before END is programmed;
//   * an entry that crosses the cursor by displacement is written again (BlockMap::MoveListener), so none is
//   lost;
//   * two complete checkpoints are kept; the journal below the older one's BEGIN is released when a newer is
//   complete.
// Owned by one shard; no allocation after construction but for the snapshot of the unit table.
#pragma once

#include "deengine/block_map.hpp"
#include "deengine/journal.hpp"
#include "deengine/tombstones.hpp"
#include "deengine/unit_pool.hpp"

#include <cstdint>
#include <vector>

namespace gnstor::deengine {

/// What CheckpointWriter needs of its shard's durability groups.
struct GroupClock {
    std::uint32_t current = 1;  ///< programs carry this number now
    std::uint32_t durable = 0;  ///< every group up to this one is durable
    /// Whether all that was programmed in `group` is durable (modular).
    [[nodiscard]] bool is_durable(std::uint32_t group) const {
        return static_cast<std::int32_t>(durable - group) >= 0;
    }
};

struct VolumeFloor {
    nvme::VolumeId volume;
    nvme::Epoch epoch;
    std::uint64_t floor;
    std::uint64_t highest;  ///< sequence seen in that epoch: bounds the order of a page whose record is lost
};

class CheckpointWriter {
  public:
    CheckpointWriter(Journal& journal, UnitPool& pool, BlockMap& map, const Tombstones& tombstones,
                     const std::vector<VolumeFloor>& floors);

    /// After a mount: the newest complete checkpoint (0: none) and the one kept before it (0: none).
    void restore(std::uint64_t newest, std::uint64_t newest_begin, std::uint64_t spare,
                 std::uint64_t spare_begin);

    /// False if one is being written.
    bool start();
    /// Does at most `pages` pages of work; returns how many it programmed. Sets wants_sync() where it waits
    /// for a group. False from failed(): flash has no page for it now; it was given up.
    std::uint32_t step(std::uint32_t pages, const GroupClock& groups);
    /// It waits for the group it programmed last: the shard should end the group and sync.
    [[nodiscard]] bool wants_sync() const;
    [[nodiscard]] bool active() const;
    [[nodiscard]] std::uint64_t completed() const;   ///< id of the newest complete one; 0: none
    [[nodiscard]] std::uint64_t spare() const;       ///< id of the one kept before it; 0: none
    [[nodiscard]] std::uint64_t begun_last() const;  ///< ids count from 1
    /// Floors as the older kept checkpoint holds them: what tombstones may be dropped by.
    [[nodiscard]] const std::vector<VolumeFloor>& kept_floors() const;
    /// Ends the group's wait early: only for Mutation::kCheckpointBeforeLog.
    void set_end_before_durable(bool on);
};

}  // namespace gnstor::deengine
