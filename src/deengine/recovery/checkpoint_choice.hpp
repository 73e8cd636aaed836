// checkpoint_choice.hpp: where a shard's journal lies, and which checkpoint a recovery begins at.
//
// The newest checkpoint that is whole, with the one before it as the spare; or none, for a shard whose first
// mount was not completed, or whose journal still reaches back to its first page.
// Owns the index of the journal, its END pages, the loaded checkpoint and the highest id ever begun.
// Invariant: places of the journal are complete after find_journal(), and do not change.
// Lives during one mount.
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/log/checkpoint_load.hpp"
#include "deengine/log/journal_index.hpp"
#include "deengine/recovery/found_units.hpp"
#include "deengine/recovery/lost_records.hpp"
#include "deengine/recovery/recovery_findings.hpp"
#include "deengine/recovery/recovery_input.hpp"
#include "deengine/shard/shard_state.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::deengine {

class CheckpointChoice {
  public:
    CheckpointChoice(const RecoveryInput& input, RecoveryFindings& findings, FoundUnits& units,
                     LostRecords& lost_records)
        : input_(input),
          findings_(findings),
          units_(units),
          lost_records_(lost_records),
          journal_(input.flash) {}

    void find_journal();
    /// END pages that can be read, newest first.
    [[nodiscard]] std::span<const JournalPlace> ends() const { return ends_; }
    /// Loads the checkpoint of this END into an empty shard. kCorrupt: it is damaged, and `state` undefined.
    Result<void> load(const JournalPlace& end, ShardState& state);
    /// Begins with an empty shard, if nothing on flash is missing then.
    Result<void> load_none();

    [[nodiscard]] JournalIndex& journal() { return journal_; }
    [[nodiscard]] const JournalIndex& journal() const { return journal_; }
    [[nodiscard]] const LoadedCheckpoint& loaded() const { return loaded_; }
    [[nodiscard]] std::uint64_t spare() const { return spare_; }  ///< 0: none
    [[nodiscard]] std::uint64_t spare_begin() const { return spare_begin_; }
    /// Number of the newest END; 0: none.
    [[nodiscard]] std::uint64_t last_end() const { return ends_.empty() ? 0 : ends_.front().number; }
    /// A page of the journal names a checkpoint of this id.
    void note_id(std::uint64_t id) { highest_id_ = std::max(highest_id_, id); }
    [[nodiscard]] std::uint64_t highest_id() const { return highest_id_; }

  private:
    [[nodiscard]] bool was_replaced(const JournalPlace& end);
    void find_spare();
    void drop_dead(ShardState& state);

    const RecoveryInput& input_;
    RecoveryFindings& findings_;
    FoundUnits& units_;
    LostRecords& lost_records_;
    JournalIndex journal_;
    std::vector<JournalPlace> ends_;
    LoadedCheckpoint loaded_;
    std::uint64_t spare_ = 0;
    std::uint64_t spare_begin_ = 0;
    std::uint64_t highest_id_ = 0;
};

}  // namespace gnstor::deengine
