// found_doubts.hpp: the doubts that a recovery has to hand on to its shard: found now or by earlier
// recoveries, settled ones included until drop_settled().
//
// Invariant: no doubt is forgotten. With more of them than a checkpoint has room for nothing is mounted, or
// (EngineOptions::accept_loss) their blocks become media errors. Lives during one mount.
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/map/doubts.hpp"
#include "deengine/recovery/found_units.hpp"
#include "deengine/recovery/recovery_findings.hpp"
#include "deengine/recovery/recovery_input.hpp"
#include "deengine/shard/shard_state.hpp"

#include <vector>

namespace gnstor::deengine {

class FoundDoubts {
  public:
    FoundDoubts(const RecoveryInput& input, RecoveryFindings& findings, FoundUnits& units)
        : input_(input), findings_(findings), units_(units) {}

    void add(BlockKey key, const WriteOrder& order) { doubts_.add(key, order); }
    void add_lost(nvme::VolumeId volume, nvme::Epoch epoch) { doubts_.add_lost(volume, epoch); }
    /// A record of type kDoubt or kLostRecords.
    void note(const LogRecord& record);
    /// A newer version, or a readable copy of the doubtful one, settles a doubt. A block that is lost reads
    /// as an error anyway.
    void drop_settled(const ShardState& state, const std::vector<BlockKey>& lost);
    /// Gives the shard what is left. Blocks that become media errors are added to `lost`.
    Result<void> hand_over(ShardState& state, std::vector<BlockKey>& lost);

  private:
    Result<void> bound(ShardState& state, std::vector<BlockKey>& lost);
    [[nodiscard]] WriteOrder present_order(const ShardState& state, BlockKey key);

    const RecoveryInput& input_;
    RecoveryFindings& findings_;
    FoundUnits& units_;
    Doubts doubts_;
};

}  // namespace gnstor::deengine
