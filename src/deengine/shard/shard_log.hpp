// shard_log.hpp: what a shard records in its journal beside checkpoints, and whether there is room for it.
//
// Owns the records that must be written but have no page yet: units that became bad, and deleted volumes.
// Invariants
//   * a unit that became bad is recorded ahead of everything that is flushed later;
//   * an open unit is given up only with a record of the pages that it holds (LogType::kClosed);
//   * before a change that only records make durable, the caller asks takes() for all of its records.
// One owner thread.
#pragma once

#include "deengine/shard/shard_state.hpp"

#include <cstdint>
#include <set>
#include <vector>

namespace gnstor::deengine {

class ShardLog {
  public:
    explicit ShardLog(ShardState& state) : state_(state) {}

    /// Adds to the journal's open page, for the current group. False: no page, or flash failed for good.
    bool append(const LogRecord& record);
    /// Programs the open page, and all records that wait for one. False: some of them still wait.
    bool flush();
    /// Counts journal pages from this number on, which a caller programmed.
    void note_pages(std::uint64_t first_page);

    /// Records a failed unit at once, so that no later process tries it again, and the page of the failed
    /// program never looks like one that rotted.
    void record_bad_units() {
        if (state_.pool.has_newly_bad() || !bad_units_.empty()) [[unlikely]]
            (void)flush();
    }
    /// Records the open unit of the stream as closed, and opens one that the medium below has room for.
    /// False: there is none, or no page for the record.
    bool exchange_open_unit(Stream stream);

    [[nodiscard]] static LogRecord purge_record(nvme::VolumeId volume);
    /// This volume was deleted: the next flush() with room for it records that.
    void add_purge(nvme::VolumeId volume) { purges_.insert(volume); }
    [[nodiscard]] bool purges_wait() const { return !purges_.empty(); }

    /// Pages that the journal could program now.
    [[nodiscard]] std::uint64_t pages_left() const;
    /// Whether the journal has pages, with room in the medium below, for so many more records.
    [[nodiscard]] bool takes(std::uint32_t records);
    /// The journal has only the pages left that its next two checkpoints need: without these no journal page
    /// would ever become free again.
    [[nodiscard]] bool is_crowded() const;
    /// A checkpoint begins; or a mount ends, which has written one.
    void note_checkpoint() { pages_at_begin_ = state_.journal.log_pages(); }
    [[nodiscard]] std::uint64_t pages_since_checkpoint() const {
        return state_.journal.log_pages() - pages_at_begin_;
    }
    /// The journal holds more units than two checkpoints need: two new checkpoints free the surplus.
    [[nodiscard]] bool holds_surplus() const;
    /// It does, and the collector has no unit to open.
    [[nodiscard]] bool starves_collector() const {
        return !state_.pool.has_page(Stream::kCollector) && state_.pool.emptied_units() == 0 &&
               holds_surplus();
    }

  private:
    void append_bad_units();
    void append_purges();

    ShardState& state_;
    std::uint64_t pages_at_begin_ = 0;  ///< Journal::log_pages() when the last checkpoint began
    std::vector<std::uint32_t> bad_units_;
    std::set<nvme::VolumeId> purges_;
};

}  // namespace gnstor::deengine
