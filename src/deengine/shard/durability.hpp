// durability.hpp: the syncs that make a shard's groups durable, and which answers wait for them.
//
// In power mode every change waits for its group. In process mode a change waits only until a kill cannot
// lose it: for the journal's open page and, where the flash loses data in a kill, for a sync of that level;
// FLUSH and FUA wait for the group.
// Invariants
//   * a group ends only after the journal's open page was programmed, and group numbers rise only when a sync
//   of SyncLevel::kPower begins: if a page of group g + 2 exists, group g survives power loss, in every mode;
//   * a unit is erased only after the group that emptied it survives power loss, and if a damaged page was
//   copied out of it, only when recovery would no longer take the copy for torn (erase_hold.hpp);
//   * every waiting answer is ready when the next sync ends, at the latest, whether it succeeded or not;
//   * after a sync that failed nothing is synced any more, and changes are refused (broken()).
// One owner thread.
#pragma once

#include "deengine/shard/answer_queue.hpp"
#include "deengine/shard/erase_hold.hpp"
#include "deengine/shard/shard_log.hpp"
#include "deengine/shard/shard_state.hpp"

#include <cstdint>

namespace gnstor::deengine {

class Durability {
  public:
    Durability(ShardState& state, ShardLog& log, CompletionSink& sink)
        : state_(state), log_(log), answers_(sink) {}

    enum class Wait : std::uint8_t { kNone, kMode, kPower };  ///< kMode: as the durability mode demands
    void answer(std::uint64_t tag, nvme::Status status) { answers_.give(tag, status); }
    /// Answers with success when all that was programmed and logged so far is as durable as this.
    void answer_when(Wait wait, std::uint64_t tag);
    /// Gives the answers that are ready; returns how many.
    std::uint32_t give_answers() { return answers_.give_ready(); }

    /// Call after copying a damaged page in this group.
    void note_damaged_copy(const PageOob& damaged);

    /// Whether there is a reason to begin a sync, and none is in flight.
    [[nodiscard]] bool needs_sync() const;
    void begin_sync();
    /// Ends the sync in flight if flash has done it.
    void finish_sync();
    /// Syncs to stable media and waits: for room, or for a barrier. Gives no answer yet. False: the sync
    /// failed (then no change is accepted any more), or the journal's open page has no room.
    bool sync_now();
    /// The same of flash alone: records that wait in the journal stay there. None is in flight.
    void sync_flash_now();
    /// Answers everything that waits.
    void settle();

    /// A sync failed: reads go on, changes are refused.
    [[nodiscard]] bool broken() const { return broken_; }
    void note_broken() { broken_ = true; }

  private:
    [[nodiscard]] bool is_dirty() const { return state_.groups.programmed() || state_.journal.dirty(); }
    [[nodiscard]] bool wants_units_back() const;
    [[nodiscard]] bool group_is_old() const;
    [[nodiscard]] bool wants_stamp() const;
    void stamp();
    void end_group();
    void log_for_held_units();
    void end_sync(bool good);

    ShardState& state_;
    ShardLog& log_;
    AnswerQueue answers_;
    EraseHold hold_;
    bool syncing_ = false;  ///< a sync is in flight
    SyncLevel sync_level_ = SyncLevel::kPower;
    std::uint32_t sync_group_ = 0;  ///< group that it makes durable (level kPower)
    bool broken_ = false;
};

}  // namespace gnstor::deengine
