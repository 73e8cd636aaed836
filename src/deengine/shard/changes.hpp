// changes.hpp: writes, zeroes and trims: compares orders and reserves room for the whole command, then
// changes page after page. docs/array.md, rules 7, 8 and 13.
//
// Owns the plan of the command that is executed, and a copy of contents that the sender may still change.
// Invariants
//   * planning refuses what it can foresee, without any effect. Later a page may still be missing: flash
//   fails, or the collector would need what the journal holds. Blocks before it are then changed, as with any
//   failed command: its sender sends it again, or the outcome is not known;
//   * a slot that was reserved in the map is committed or cancelled before the command ends;
//   * the collector may run whenever a page is needed: a plan stays valid by key and ticket, never by page.
// One owner thread.
#pragma once

#include "deengine/shard/checkpoint_schedule.hpp"
#include "deengine/shard/collector.hpp"
#include "deengine/shard/durability.hpp"
#include "deengine/shard/shard_log.hpp"
#include "deengine/shard/shard_state.hpp"
#include "deengine/shard/tombstone_pruner.hpp"

#include <compare>
#include <cstdint>
#include <vector>

namespace gnstor::deengine {

class Changes {
  public:
    Changes(ShardState& state, ShardLog& log, Durability& durability, Collector& collector,
            TombstonePruner& pruner, CheckpointSchedule& schedule);

    nvme::Status write(const ShardCommand& c);
    /// Programs no page: a log record says what is trimmed, and which order keeps older versions from coming
    /// back.
    nvme::Status trim(const ShardCommand& c);
    /// Puts another replica's version of one block, with its order: `c.op` is kWrite or kTrim. As write() and trim(),
    /// but the sequence may be at or below the floor, and the epoch older than the volume's.
    /// `resolved`: the donor had, of all versions up to this one, what counts. `closed`: no client can write the volume.
    nvme::Status put_copy(const ShardCommand& c, const WriteNumber& resolved, bool closed);
    /// The last write changed nothing.
    [[nodiscard]] bool superseded_whole() const { return superseded_whole_; }
    /// Programs the stream's next page, on another unit where one fails; makes room where none is free. Also
    /// for what a recovery programs. Completes `oob`.
    nvme::Status program(Stream stream, const std::byte* data, PageOob& oob, PageNumber& page);

  private:
    enum class Action : std::uint8_t {
        kSuperseded,
        kReplace,       ///< the map names an older page
        kInsert,        ///< nothing is mapped; a slot is reserved
        kInsertIfWins,  ///< the same over a tombstone of equal sequence: the content decides
        kSameOrder,     ///< equal sequence: the content decides, once it is copied
        kUnknownOrder   ///< the stored record cannot be read: lost until the floor passes its bound
    };
    struct PlannedBlock {
        Action action;
        BlockMap::Ticket ticket;  ///< kInsert
        PageNumber old_page;      ///< kReplace, kSameOrder, kUnknownOrder
    };

    nvme::Status check_order(const ShardCommand& c);
    nvme::Status apply_write(const ShardCommand& c);
    nvme::Status apply_trim(const ShardCommand& c);
    [[nodiscard]] Action compare_with_stored(PageNumber page, const ShardCommand& c) const;
    nvme::Status plan_write(const ShardCommand& c);
    nvme::Status write_block(const ShardCommand& c, std::uint32_t i);
    bool same_order_wins(const ShardCommand& c, std::uint32_t i);
    void cancel_plan(std::uint32_t from, std::uint32_t end);
    nvme::Status lose_block(BlockKey key, PageNumber stored, const ShardCommand& c);
    nvme::Status plan_trim(const ShardCommand& c, std::uint32_t& runs);
    bool trim_run(const ShardCommand& c, std::uint32_t first, std::uint32_t blocks, bool remembers);

    ShardState& state_;
    ShardLog& log_;
    Durability& durability_;
    Collector& collector_;
    TombstonePruner& pruner_;
    CheckpointSchedule& schedule_;
    std::vector<PlannedBlock> planned_;  ///< by block of the command
    bool superseded_whole_ = false;
    bool copies_ = false;  ///< the command puts another replica's version
    WriteNumber donor_resolved_{};
    bool closed_ = false;  ///< and no client can write the volume
    /// The table has no room to cut the block out of an interval: the older tombstone stays beside the block's version, which
    /// counts, until the floor of the closed epoch drops it.
    bool leaves_tombstone_ = false;
    std::vector<std::byte> contents_;  ///< one page: contents that decide the order
    std::vector<std::byte> stored_;    ///< one page: what is read to be compared
};

}  // namespace gnstor::deengine
