// recovery.hpp: builds a shard from what its units hold: named steps, in the order of recovery.cpp's table.
// docs/store-format.md, "Recovery".
//
//   FoundUnits         units as they are on flash, and their torn pages
//   GroupAges          which groups were durable
//   CheckpointChoice   the journal's places, and the checkpoint to begin at
//   LogReplay          what the journal says since
//   JournalGaps        which pages of the journal are missing, and why
//   OpenUnits          which units were open, and how full, according to the journal
//   PageJudge          which young pages count
//   NewestVersions     which page the map names for a block
//   LostRecords        pages that were programmed and have no record
//   FoundDoubts        blocks in doubt
//   JournalUnits       which units the journal keeps
//
// Rules
//   * *newest* is the highest durability group found. Pages programmed in it or in the group before may be
//   torn or missing, and then were never acknowledged; pages of older groups were durable. So a bad page of
//   an older group is a media error: its block reads as an error, and if not even its block is known, nothing
//   is mounted (unless EngineOptions::accept_loss);
//   * a page of the last two groups with a good record and bad contents is torn, or has rotted: its block is
//   in doubt (doubts.hpp), and the map keeps the older version;
//   * after a kill in the same boot (EngineOptions::same_boot) only the operation in progress can be torn,
//   and of that only the record, the last one of a unit. All other bad pages have rotted;
//   * recovery programs in group `newest` until its own checkpoint is complete: if a cut interrupts it, the
//   next recovery judges the same pages the same way. The judgements are written into that checkpoint, for
//   recoveries that begin at an older one;
//   * nothing that an interrupted recovery needs again is erased before that checkpoint is durable, except
//   units without valid pages.
// Lives during one mount. One thread.
#pragma once

#include <gnstor/base/steps.hpp>

#include "deengine/recovery/checkpoint_choice.hpp"
#include "deengine/recovery/found_doubts.hpp"
#include "deengine/recovery/found_units.hpp"
#include "deengine/recovery/group_ages.hpp"
#include "deengine/recovery/journal_gaps.hpp"
#include "deengine/recovery/journal_units.hpp"
#include "deengine/recovery/log_replay.hpp"
#include "deengine/recovery/lost_records.hpp"
#include "deengine/recovery/newest_versions.hpp"
#include "deengine/recovery/open_units.hpp"
#include "deengine/recovery/page_judge.hpp"
#include "deengine/recovery/recovery_findings.hpp"
#include "deengine/recovery/recovery_input.hpp"
#include "deengine/shard/shard_impl.hpp"

#include <memory>

namespace gnstor::deengine {

class ShardRecovery {
  public:
    ShardRecovery(Flash& flash, const ShardRange& range, const EngineOptions& options,
                  const VolumeRegistry& lives, CompletionSink& sink, RecoveryReport& report);
    /// All steps; on failure those done are undone in reverse.
    Result<std::unique_ptr<Shard::Impl>> run();

    static const Step<ShardRecovery> kSteps[];

  private:
    Result<void> read_units();
    Result<void> find_journal();
    Result<void> load_newest_checkpoint();
    void drop_map();
    Result<void> read_log();
    Result<void> judge_young_pages();
    Result<void> replay_log();
    Result<void> apply_young_pages();
    Result<void> drop_stale_entries();
    Result<void> settle_doubts();
    Result<void> tell_lost_records();
    Result<void> count_valid_pages();
    Result<void> write_checkpoint();
    Result<void> start();
    void stop();

    void make_empty();
    Result<void> load_first_whole();
    void restore_units();
    void restore_journal();
    Result<void> sync();
    void add_findings();
    Result<void> put_lost_blocks();

    const RecoveryInput input_;
    CompletionSink& sink_;
    RecoveryFindings findings_;
    GroupAges ages_;
    FoundUnits units_;
    OpenUnits open_units_;
    JournalGaps gaps_;
    FoundDoubts doubts_;
    LostRecords lost_records_;
    CheckpointChoice choice_;
    LogReplay log_;
    PageJudge judge_;
    NewestVersions versions_;
    JournalUnits journal_units_;
    std::unique_ptr<Shard::Impl> impl_;
};

}  // namespace gnstor::deengine
