// checkpoint.hpp: writes the shard's state into its journal, slice by slice, while the shard serves commands.
// docs/store-format.md, "Checkpoints".
//
// Phases: idle -> begin -> unit table -> map slices, moved entries -> tombstones, floors, a recovery's
// records -> (everything so far durable) -> end -> (durable) -> complete. The shard says which groups are
// durable; step() never waits.
// Invariants
//   * whatever a slice names was durable before END is programmed;
//   * an entry that a displacement moves across the cursor is written again (BlockMap::MoveListener), so
//     that none is lost;
//   * two complete checkpoints are kept; when a newer one is complete, the journal below the older kept
//     one's BEGIN is released.
// Owned by one shard; no allocation after construction but for its snapshots of the shard's tables.
#pragma once

#include "deengine/log/journal.hpp"
#include "deengine/log/unit_pool.hpp"
#include "deengine/map/block_map.hpp"
#include "deengine/map/doubts.hpp"
#include "deengine/map/tombstones.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::deengine {

/// What CheckpointWriter needs of its shard's durability groups.
struct GroupClock {
    std::uint32_t current = 1;  ///< programs carry this number now
    std::uint32_t durable = 0;  ///< every group up to this one is durable
    /// Whether all that was programmed in `group` is durable (modulo 2^32).
    [[nodiscard]] bool is_durable(std::uint32_t group) const {
        return static_cast<std::int32_t>(durable - group) >= 0;
    }
};

struct VolumeFloor {
    nvme::VolumeId volume;
    nvme::Epoch epoch;
    std::uint64_t floor;
    std::uint64_t highest;  ///< highest sequence seen in that epoch: bounds the order of a lost record
    /// The part of the floor that is in the journal, so that every recovery knows it. In a checkpoint it
    /// equals the floor and is not stored.
    std::uint64_t logged = 0;
    /// Highest sequence that may have trimmed without a tombstone, because the table was full. Not stored: after a
    /// mount it is what `highest` was in the checkpoint.
    std::uint64_t untold = 0;
};

/// Payload of a BEGIN page: the mount refuses a checkpoint of other dimensions.
struct CheckpointBegin {
    std::uint32_t first_unit;
    std::uint32_t units;
    std::uint32_t pages_per_unit;
    std::uint32_t buckets;    ///< of the block map
    std::uint32_t page_bits;  ///< page number bits in a map slot
    std::uint32_t next_serial;
    std::uint32_t group;  ///< current group
    std::uint32_t reserved;
};
static_assert(sizeof(CheckpointBegin) == 32);

/// One entry of the unit table, as of BEGIN.
struct CheckpointUnit {
    std::uint32_t serial;
    std::uint32_t next;
    std::uint32_t erases;
    UnitState state;
    std::uint8_t system;
    std::uint16_t reserved;
};
static_assert(sizeof(CheckpointUnit) == 16, "a page holds 252 of these entries");

/// An entry that crossed the cursor of the map slices.
struct CheckpointMoved {
    BlockKey key;
    PageNumber page;
    std::uint32_t tombstone;
};
static_assert(sizeof(CheckpointMoved) == 16, "a page holds 252 of these entries");

struct CheckpointTombstone {
    BlockKey first;
    std::uint32_t blocks;
    nvme::Epoch epoch;
    std::uint64_t sequence;
    std::uint64_t born;
};
static_assert(sizeof(CheckpointTombstone) == 32, "a page holds 126 of these entries");

struct CheckpointFloor {
    nvme::VolumeId volume;
    std::uint16_t reserved;
    nvme::Epoch epoch;
    std::uint64_t floor;
    std::uint64_t highest;
};
static_assert(sizeof(CheckpointFloor) == 24, "a page holds 168 of these entries");

/// Payload of an END page.
struct CheckpointEnd {
    std::uint64_t begin;  ///< number of the BEGIN page
    std::uint32_t parts;  ///< number of pages before this one, BEGIN included
    std::uint32_t crc;    ///< CRC-32C over the CRCs of their out-of-band records, in order of parts
};
static_assert(sizeof(CheckpointEnd) == 16);

inline constexpr std::uint32_t kBucketsPerPart = kJournalPayload / BlockMap::kBucketBytes;

/// Most erase units that a shard's journal needs: two complete checkpoints, one being written, the log
/// between them, and what power cuts leave half used. Data never takes these.
[[nodiscard]] std::uint32_t journal_share(std::uint32_t units, std::uint32_t pages_per_unit,
                                          std::uint32_t buckets);
/// Log pages after which a checkpoint is due.
[[nodiscard]] std::uint32_t log_pages_due(std::uint32_t units, std::uint32_t pages_per_unit);

class CheckpointWriter : private BlockMap::MoveListener {
  public:
    CheckpointWriter(Journal& journal, UnitPool& pool, BlockMap& map, const Tombstones& tombstones,
                     const std::vector<VolumeFloor>& floors, const Doubts& doubts);
    ~CheckpointWriter() override;
    CheckpointWriter(const CheckpointWriter&) = delete;
    CheckpointWriter& operator=(const CheckpointWriter&) = delete;

    /// After a mount: the newest complete checkpoint (0: none) and the one kept before it (0: none).
    void restore(std::uint64_t newest, std::uint64_t newest_begin, std::uint64_t spare,
                 std::uint64_t spare_begin);
    /// After restore(): their floors (of the spare: empty where not known), and the highest id ever begun.
    void restore_floors(std::vector<VolumeFloor> newest, std::vector<VolumeFloor> spare);
    void restore_begun(std::uint64_t highest_id);
    /// What a recovery found, for the next checkpoint (JournalPage::kCheckpointRecords).
    void add_records(std::span<const LogRecord> records);

    /// Pages that a checkpoint written now has, if no entry moves.
    [[nodiscard]] std::uint64_t pages_needed() const;
    /// False: one is being written already.
    bool start();
    /// Does at most `pages` pages of work; returns how many it programmed. Stops where it must wait for a
    /// group (wants_sync()); gives the checkpoint up where flash has no page for it now (failed()).
    std::uint32_t step(std::uint32_t pages, const GroupClock& groups);
    /// It waits for the group that it programmed last: the shard should end that group and sync.
    [[nodiscard]] bool wants_sync() const { return phase_ == Phase::kDurable || phase_ == Phase::kEnded; }
    [[nodiscard]] bool active() const { return phase_ != Phase::kIdle; }
    /// The last one begun was given up.
    [[nodiscard]] bool failed() const { return failed_; }
    [[nodiscard]] std::uint64_t completed() const { return newest_.id; }  ///< newest complete one; 0: none
    [[nodiscard]] std::uint64_t spare() const { return spare_.id; }       ///< the one kept before; 0: none
    [[nodiscard]] std::uint64_t begun_last() const { return begun_; }     ///< ids count from 1
    /// Floors of the older kept checkpoint: tombstones are dropped by these.
    [[nodiscard]] const std::vector<VolumeFloor>& kept_floors() const { return spare_.floors; }
    /// END does not wait for the parts' group. Only for Mutation::kCheckpointBeforeLog.
    void set_end_before_durable(bool on) { end_before_durable_ = on; }
    /// Map buckets in one page; fewer than fit only in simulation.
    void set_buckets_per_part(std::uint32_t buckets) {
        buckets_per_part_ = std::min(buckets, kBucketsPerPart);
    }
    /// Entries moved so far between the part of the map that was written and the part that was not.
    [[nodiscard]] std::uint64_t moves_across_cursor() const { return moves_across_; }
    /// Only for Mutation::kMovedNotRecorded.
    void set_forgets_moves(bool on) { forgets_moves_ = on; }

  private:
    enum class Phase : std::uint8_t {
        kIdle,
        kBegin,
        kUnits,
        kMap,
        kTombstones,
        kFloors,
        kRecords,
        kDurable,  ///< all parts programmed; END waits for their group
        kEnded,    ///< END programmed; complete when it is durable
    };
    struct Kept {
        std::uint64_t id = 0;
        std::uint64_t begin = 0;  ///< journal page number
        std::vector<VolumeFloor> floors;
    };

    void moved(BlockKey key, MapEntry entry, std::uint32_t from, std::uint32_t to) override;
    /// One page; false: there is none now.
    bool write(JournalPage type, std::uint32_t count, std::uint64_t first, std::size_t bytes,
               std::uint32_t group);
    /// Writes a list of entries of one kind page by page, then enters the next phase.
    template <class Entry, class Source, class Convert>
    bool write_list(JournalPage type, const std::vector<Source>& list, Convert&& convert, Phase next,
                    std::uint32_t group);
    bool step_page(std::uint32_t group);
    bool write_begin(std::uint32_t group);
    bool write_units(std::uint32_t group);
    bool write_map(std::uint32_t group);
    bool write_moved(std::uint32_t group);
    bool write_end(std::uint32_t group);
    void enter(Phase phase);
    void complete(std::uint32_t group);
    void give_up();

    Journal& journal_;
    UnitPool& pool_;
    BlockMap& map_;
    const Tombstones& tombstones_;
    const std::vector<VolumeFloor>& floors_;
    const Doubts& doubts_;

    Kept newest_;
    Kept spare_;
    Kept writing_;
    std::uint64_t begun_ = 0;
    Phase phase_ = Phase::kIdle;
    bool failed_ = false;
    bool end_before_durable_ = false;
    bool forgets_moves_ = false;
    std::uint32_t buckets_per_part_ = kBucketsPerPart;
    std::uint64_t moves_across_ = 0;
    std::uint32_t parts_ = 0;
    std::uint32_t crc_ = 0;
    std::uint32_t wait_group_ = 0;
    std::size_t at_ = 0;        ///< next unit, bucket or entry of this phase
    std::uint32_t cursor_ = 0;  ///< buckets below it are written
    std::vector<std::byte> payload_;
    std::vector<CheckpointUnit> units_;
    std::vector<CheckpointMoved> moved_;
    std::vector<Tombstone> tombstones_then_;
    std::vector<LogRecord> records_;
    std::vector<LogRecord> records_then_;  ///< records_ and the doubts, as of this checkpoint
};

}  // namespace gnstor::deengine
