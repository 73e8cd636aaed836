// newest_versions.hpp: which page the map names for each block, when several hold versions of it.
//
// Owns the blocks whose acknowledged pages are gone, and the volumes that do not exist any more. Invariants
//   * of two pages of one block the map names the newer version (order.hpp), and of two with one version the
//   copy, or the one that can be read;
//   * the map names no torn page, and after drop_stale() no page that holds another block.
// Lives during one mount.
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/log/checkpoint.hpp"
#include "deengine/recovery/found_units.hpp"
#include "deengine/recovery/group_ages.hpp"
#include "deengine/recovery/lost_records.hpp"
#include "deengine/recovery/recovery_findings.hpp"
#include "deengine/recovery/recovery_input.hpp"
#include "deengine/shard/shard_state.hpp"

#include <set>
#include <span>
#include <vector>

namespace gnstor::deengine {

class NewestVersions {
  public:
    NewestVersions(const RecoveryInput& input, RecoveryFindings& findings, const GroupAges& ages,
                   FoundUnits& units, LostRecords& lost_records)
        : input_(input), findings_(findings), ages_(ages), units_(units), lost_records_(lost_records) {}

    /// Maps the young pages that count and are newer than what the map names.
    Result<void> apply_young(ShardState& state);
    /// Drops entries whose pages are gone. `then`: the checkpoint's unit table.
    void drop_stale(BlockMap& map, std::span<const CheckpointUnit> then);
    /// Blocks that were acknowledged and whose pages are gone: their reads must fail. Others may be added.
    [[nodiscard]] std::vector<BlockKey>& lost() { return lost_; }
    [[nodiscard]] const std::set<nvme::VolumeId>& dead_volumes() const { return dead_volumes_; }

  private:
    Result<void> apply(PageNumber page, const PageOob& oob, ShardState& state);
    bool beats(PageNumber page, const PageOob& oob, PageNumber stored, BlockKey key);
    bool programmed_later(PageNumber page, const PageOob& oob, PageNumber stored, const PageOob& other);
    bool is_stale(PageNumber page, BlockKey key, const CheckpointUnit& then);

    const RecoveryInput& input_;
    RecoveryFindings& findings_;
    const GroupAges& ages_;
    FoundUnits& units_;
    LostRecords& lost_records_;
    std::vector<BlockKey> lost_;
    std::set<nvme::VolumeId> dead_volumes_;
};

}  // namespace gnstor::deengine
