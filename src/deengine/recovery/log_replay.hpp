// log_replay.hpp: what the journal says since the loaded checkpoint began: first read, as far as pages are
// judged by it, then replayed into the shard's tables.
//
// Owns the records read. Invariants
//   * every page of the journal behind BEGIN is read once, in order of numbers; parts of the loaded
//   checkpoint count only for the doubts and gaps in them;
//   * what is known of units, gaps and doubts is handed on while reading; only trims, floors and purges are
//   replayed, because they must follow the judgement of pages.
// Lives during one mount.
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/recovery/checkpoint_choice.hpp"
#include "deengine/recovery/found_doubts.hpp"
#include "deengine/recovery/found_units.hpp"
#include "deengine/recovery/group_ages.hpp"
#include "deengine/recovery/journal_gaps.hpp"
#include "deengine/recovery/open_units.hpp"
#include "deengine/recovery/recovery_findings.hpp"
#include "deengine/recovery/recovery_input.hpp"
#include "deengine/shard/shard_state.hpp"

#include <cstdint>
#include <vector>

namespace gnstor::deengine {

class LogReplay {
  public:
    LogReplay(const RecoveryInput& input, RecoveryFindings& findings, GroupAges& ages, FoundUnits& units,
              OpenUnits& open_units, JournalGaps& gaps, FoundDoubts& doubts, CheckpointChoice& choice)
        : input_(input),
          findings_(findings),
          ages_(ages),
          units_(units),
          open_units_(open_units),
          gaps_(gaps),
          doubts_(doubts),
          choice_(choice) {}

    /// Reads all pages since BEGIN; finds gaps in the numbers, and the newest group.
    void read();
    Result<void> replay(ShardState& state);

  private:
    struct LoggedRecord {
        LogRecord record;
        std::uint64_t born;  ///< checkpoint begun last when it was logged
    };
    void read_own_part(const JournalPlace& place);
    void read_other_page(std::span<const JournalPlace> twins);
    void read_page(const JournalPlace& place, const JournalHeader& header);
    void note_record(const LogRecord& record);
    void note_torn(const LogRecord& record);
    Result<void> replay_one(const LoggedRecord& logged, ShardState& state);
    void replay_tombstone(const Tombstone& t, ShardState& state);
    void bury(BlockKey key, PageNumber page, const WriteOrder& order, ShardState& state);

    const RecoveryInput& input_;
    RecoveryFindings& findings_;
    GroupAges& ages_;
    FoundUnits& units_;
    OpenUnits& open_units_;
    JournalGaps& gaps_;
    FoundDoubts& doubts_;
    CheckpointChoice& choice_;
    std::vector<LoggedRecord> records_;
};

}  // namespace gnstor::deengine
