// recovery.hpp: builds a shard from what its units hold: named steps, in the order of recovery.cpp's table.
// docs/store-format.md, "Recovery".
//
// Rules
//   * pages and units are *young* if they were programmed after the loaded checkpoint's BEGIN. A bad page is
//     *torn* if its program was interrupted, and has *rotted* if it was good before;
//   * *newest* is the highest durability group found. Pages programmed in it or in the group before may be
//     torn or missing, and then were never acknowledged; pages of older groups were durable. So a bad page
//     of an older group is a media error: its block reads as an error, and if not even its block is known,
//     nothing is mounted (unless EngineOptions::accept_loss);
//   * a page of the last two groups with a good record and bad contents is torn, or has rotted: its block is
//     in doubt (doubts.hpp), and the map keeps the older version;
//   * after a kill in the same boot (EngineOptions::same_boot) only the operation in progress can be torn,
//     and of that only the record, the last one of a unit. All other bad pages have rotted;
//   * recovery programs in group `newest` until its own checkpoint is complete: if a cut interrupts it, the
//     next recovery judges the same pages the same way. The judgements are written into that checkpoint, for
//     recoveries that begin at an older one;
//   * nothing that an interrupted recovery needs again is erased before that checkpoint is durable, except
//     units without valid pages.
// Lives during one mount. One thread.
#pragma once

#include <gnstor/base/steps.hpp>

#include "deengine/log/checkpoint_load.hpp"
#include "deengine/log/journal_index.hpp"
#include "deengine/shard/shard_impl.hpp"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace gnstor::deengine {

class ShardRecovery {
  public:
    ShardRecovery(Flash& flash, const ShardRange& range, const EngineOptions& options,
                  const VolumeRegistry& lives, CompletionSink& sink, RecoveryReport& report);
    /// All steps; on failure those done are undone in reverse.
    Result<std::unique_ptr<Shard::Impl>> run();

    static const Step<ShardRecovery> kSteps[];

  private:
    /// Result of reading a page's record.
    enum class Record : std::uint8_t { kErased, kBad, kGood };
    struct FoundUnit {
        std::uint32_t serial = 0;  ///< the highest of its good records; 0: none
        bool system = false;
        bool programmed = false;  ///< something in it is not erased
        bool bad = false;
        std::uint32_t end = 0;          ///< pages programmed, as far as it was scanned
        std::uint32_t young_from = 0;   ///< first page younger than the checkpoint
        std::uint32_t last_good = 0;    ///< of young pages: one beyond the last good record
        std::uint32_t failed_from = 0;  ///< pages from here on could not be programmed
        std::uint32_t full_at = 0;      ///< pages that it held when it was closed
    };
    /// Pages that a unit held, according to the journal.
    struct PagesTold {
        std::uint32_t held = 0;
        std::uint32_t durable = 0;  ///< of these, known to be durable
    };
    struct LoggedRecord {
        LogRecord record;
        std::uint64_t born;
    };
    struct Gap {
        std::uint64_t first;
        std::uint64_t count;
        std::uint32_t next_group;  ///< of the next page that is present
        bool log = false;          ///< its record is present, and is of a log page
    };
    /// A checkpoint other than the loaded one: which of its parts are present.
    struct OtherCheckpoint {
        std::uint64_t id = 0;
        std::uint32_t parts = 0;  ///< one beyond the highest seen
        std::uint32_t there = 0;  ///< parts with bad contents included
        bool end_there = false;
        bool completed = false;
        std::uint64_t low = 0;   ///< its parts have numbers from here ..
        std::uint64_t high = 0;  ///< .. to the last one seen; only its END may lie behind
        std::uint64_t missing = 0;
    };

    // recovery.cpp
    Result<void> read_units();
    Result<void> tell_lost_records();
    Result<void> count_valid_pages();
    Result<void> start();
    void stop();

    // recovery_journal.cpp
    Result<void> find_journal();
    [[nodiscard]] bool was_replaced(const JournalPlace& end);
    Result<void> load_newest_checkpoint();
    void drop_map();
    Result<void> read_log();
    Result<void> replay_log();

    // recovery_pages.cpp
    Result<void> judge_young_pages();
    Result<void> apply_young_pages();
    Result<void> drop_stale_entries();

    // recovery_lost.cpp
    void note_counts(const JournalHeader& header, PageNumber page, bool stamp);
    void judge_lost_tails();
    void judge_count(std::uint32_t unit);
    void judge_open_unit(std::uint32_t serial, std::uint32_t pages, std::uint32_t other_serial,
                         std::uint32_t other_pages);
    [[nodiscard]] bool may_be_open(std::uint32_t serial) const;
    void suspect_tail(std::uint32_t unit, std::uint32_t index, const char* why);
    [[nodiscard]] std::uint32_t end_of(std::uint32_t unit);
    void lose_unknown(const std::string& what);
    void settle_lost_records();

    // recovery_checkpoint.cpp
    Result<void> write_checkpoint();

    Record read_record(PageNumber page, PageOob& oob);
    bool is_readable(PageNumber page, const PageOob& oob);
    WriteOrder order_of(PageNumber page, const PageOob& oob) {
        return order_of_page(flash_, page, oob, impl_->scratch.data());
    }
    [[nodiscard]] bool is_torn(PageNumber page) const { return torn_[page - first_page_]; }
    void mark_torn(PageNumber page);
    [[nodiscard]] FoundUnit& found(std::uint32_t unit) { return found_[unit - range_.first_unit]; }
    /// Nothing of the unit's latest opening can be read; what can be read is of an opening before the
    /// checkpoint. A power cut lost an erasure and kept the programs after it, and the next erasure,
    /// interrupted, removed these first.
    [[nodiscard]] bool is_remains(std::uint32_t unit) {
        return found(unit).serial == 0 || found(unit).serial < loaded_.units[unit - range_.first_unit].serial;
    }
    [[nodiscard]] std::uint32_t unit_of(PageNumber page) const { return page / pages_per_unit_; }
    [[nodiscard]] bool in_range(PageNumber page) const {
        return page >= first_page_ && page - first_page_ < torn_.size();
    }
    [[nodiscard]] std::int64_t since_begin(std::uint32_t group) const {
        return static_cast<std::int32_t>(group - loaded_.group);
    }
    /// Not of the last two groups, so it was durable.
    [[nodiscard]] bool is_old(std::uint32_t group) const { return since_begin(group) <= newest_ - 2; }
    /// All that was programmed in it is present: it is old, or is not the group in which a process of this
    /// boot was killed. (An interrupted recovery programs in that group, too.)
    [[nodiscard]] bool is_whole(std::uint32_t group) const {
        return is_old(group) || (only_killed_ && since_begin(group) < newest_);
    }
    void saw_group(std::uint32_t group);
    void find(std::string what);

    Result<void> load_one(const JournalPlace& end);
    Result<void> begin_without_checkpoint();
    void mark_young_pages();
    void read_log_page(const JournalPlace& place, const JournalHeader& header);
    void note_part(const JournalHeader& header);
    void note_own_records(const JournalPlace& place);
    [[nodiscard]] bool is_known_gap(std::uint64_t first, std::uint64_t count) const;
    std::uint64_t take_missing_parts(const Gap& gap);
    [[nodiscard]] bool is_in_cut_checkpoint(const Gap& gap) const;
    Result<void> judge_gaps();
    void note_log_record(const LogRecord& record);
    Result<void> replay(const LoggedRecord& logged);
    void replay_tombstone(const Tombstone& t);
    void bury(BlockKey key, PageNumber page, const WriteOrder& order);

    void judge_unit(std::uint32_t unit);
    void judge_bad_records(std::span<const PageNumber> pages, const PageOob& next);
    void judge_contents(PageNumber page, const PageOob& oob, bool failed);
    void tear(PageNumber page, const PageOob* oob, const char* why);
    void note_doubt(const LogRecord& record);
    Result<void> settle_doubts();
    Result<void> bound_doubts();
    [[nodiscard]] WriteOrder present_order(BlockKey key);
    Result<void> judge_suspects();
    bool tail_was_complete(std::uint32_t serial) const;
    bool take_copies_of(std::uint32_t unit);
    Result<void> lose_record(PageNumber page, const char* why);
    Result<void> apply_page(PageNumber page, const PageOob& oob);
    bool beats(PageNumber page, const PageOob& oob, PageNumber stored, BlockKey key);
    bool programmed_later(PageNumber page, const PageOob& oob, PageNumber stored, const PageOob& other);
    bool is_stale(PageNumber page, BlockKey key);

    void plan_journal_units();
    void restore_units();
    Result<void> put_lost_blocks();
    void add_findings();
    /// A page or a floor of a volume that does not exist is dropped.
    void note_dropped(nvme::VolumeId volume, nvme::Epoch epoch);
    Result<void> sync();

    Flash& flash_;
    const ShardRange range_;
    const EngineOptions& options_;
    const bool only_killed_;  ///< after a kill: nothing is missing but the operation in progress
    const VolumeRegistry& lives_;
    CompletionSink& sink_;
    RecoveryReport& report_;
    const std::uint32_t pages_per_unit_;
    const PageNumber first_page_;

    std::unique_ptr<Shard::Impl> impl_;
    JournalIndex journal_;
    std::vector<FoundUnit> found_;
    std::vector<bool> torn_;
    LoadedCheckpoint loaded_;
    std::vector<JournalPlace> ends_;  ///< END pages, newest first
    std::uint64_t spare_ = 0;
    std::uint64_t spare_begin_ = 0;
    std::uint64_t highest_id_ = 0;
    std::int64_t newest_ = 0;           ///< group, counted from BEGIN's
    std::vector<std::uint32_t> young_;  ///< data units with young pages, in order of serials

    std::vector<LoggedRecord> log_;
    std::vector<Gap> gaps_;
    std::vector<Gap> known_gaps_;
    std::vector<OtherCheckpoint> others_;
    // Damaged parts of checkpoints: END pages, and those behind the last part that can be read.
    std::uint64_t damaged_ends_ = 0;
    std::uint64_t damaged_last_parts_ = 0;
    struct Stamp {
        std::uint32_t group;
        std::uint32_t open_user;
        std::uint32_t open_collector;
        std::uint32_t next_serial;
    };
    std::vector<Stamp> stamps_;
    std::optional<Stamp> last_old_stamp_;

    struct KeptUnit {
        std::uint32_t unit;
        std::uint64_t first;
        std::uint64_t last;
        bool needed;    ///< holds something other than parts of an incomplete checkpoint
        bool given_up;  ///< all its pages are in known gaps: an earlier recovery gave them up
        bool old;       ///< one of them is not of the last two groups
    };
    std::vector<KeptUnit> journal_units_;
    std::set<std::uint32_t> held_;  ///< units given up that must not be erased before the checkpoint
    std::vector<PageNumber> torn_pages_;
    std::set<nvme::VolumeId> dead_volumes_;
    std::map<nvme::VolumeId, nvme::Epoch>
        unexplained_;  ///< volumes of dropped pages, and their newest epochs
    std::vector<BlockKey> lost_;
    Doubts doubts_;  ///< found now or by earlier recoveries, settled ones included
    /// A page that was programmed and has no good record, unless its unit is half erased.
    struct Suspect {
        PageNumber page;
        const char* why;
        bool doubt = false;  ///< versions as old are in doubt; false: the mount is refused
    };
    std::vector<Suspect> suspects_;
    std::map<std::uint32_t, PagesTold> told_;  ///< by serial
    std::set<std::uint64_t> closed_;           ///< serials of units that were closed before they were full
    JournalHeader last_told_{};                ///< of the newest journal page that can be read
    PageNumber last_told_page_ = kNoPage;
    bool records_lost_ = false;
    bool changed_ = false;  ///< something was found that the loaded checkpoint does not contain
};

}  // namespace gnstor::deengine
