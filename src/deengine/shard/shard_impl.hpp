// shard_impl.hpp: the parts of a shard and its state; bodies in shard.cpp (commands, poll), shard_write.cpp
// (changes), floors.cpp, durability.cpp (groups, answers), collector.cpp, scrub.cpp and recovery.cpp (mount).
//
// Invariants
//   * a data page is valid in the pool exactly while the map names it: pool.valid_pages() == map.size();
//   * a key is never both in the map and under a tombstone;
//   * a group ends only after the journal's open page was programmed, and group numbers rise only when a
//     sync of SyncLevel::kPower begins: if a page of group g + 2 exists, group g survives power loss, in
//     every mode;
//   * a unit is erased only after the group that emptied it survives power loss, and if a damaged page was
//     copied out of it, only when recovery would no longer take the copy for torn;
//   * every waiting answer is given when the next sync ends, at the latest, whether it succeeded or not.
// One owner thread.
#pragma once

#include "deengine/log/checkpoint.hpp"
#include "deengine/log/journal.hpp"
#include "deengine/log/lost_page.hpp"
#include "deengine/log/unit_pool.hpp"
#include "deengine/map/block_map.hpp"
#include "deengine/map/doubts.hpp"
#include "deengine/map/order.hpp"
#include "deengine/map/tombstones.hpp"
#include "deengine/shard/shard.hpp"
#include "deengine/shard/shard_room.hpp"
#include "deengine/shard/volume_floors.hpp"

#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace gnstor::deengine {

struct Shard::Impl {
    /// Time between requests for space in the medium below the flash, after a refusal.
    static constexpr std::uint64_t kRoomNs = 1'000'000'000;

    /// An empty shard, as of a new drive. Recovery fills the members from flash (recovery.cpp), then start().
    Impl(Flash& flash_in, const ShardRange& range_in, const EngineOptions& options_in,
         CompletionSink& sink_in);

    /// Ends a mount. Before it: map, tombstones, floors, journal and checkpoint restored; pool restored and
    /// started, with every mapped page validated; everything on flash made durable (SyncLevel::kPower).
    /// Groups continue above `newest_group`, the highest one found.
    void start(std::uint32_t newest_group);

    // shard.cpp
    void execute(const ShardCommand& command);
    std::uint32_t poll(std::uint64_t now_ns);
    void prefetch(BlockKey key) const;
    nvme::Status read(const ShardCommand& c);
    nvme::Status check_doubts(const ShardCommand& c);
    [[nodiscard]] bool is_in_doubt(BlockKey key);
    [[nodiscard]] std::uint64_t present_order(const ShardCommand& c);
    void prefetch_page(BlockKey key, std::uint32_t first_sector) const;
    nvme::Status read_block(BlockKey key, std::uint32_t first_sector, std::uint32_t sectors, std::byte* to);
    void set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor);
    bool purge(nvme::VolumeId volume);
    void forget_volume(nvme::VolumeId volume);
    bool record_purge(nvme::VolumeId volume);
    bool record_purges();
    Result<void> close();
    void answer(std::uint64_t tag, nvme::Status status);
    void refresh_gauges();
    /// Most pages that may be valid: all less reserve, journal and bad units.
    [[nodiscard]] std::uint64_t page_limit() const;

    // shard_write.cpp
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
    nvme::Status write(const ShardCommand& c);
    nvme::Status plan_write(const ShardCommand& c);
    Action compare_with_stored(PageNumber page, const ShardCommand& c);
    nvme::Status write_block(const ShardCommand& c, std::uint32_t i);
    bool same_order_wins(const ShardCommand& c, std::uint32_t i);
    void cancel_plan(std::uint32_t from, std::uint32_t end);
    nvme::Status lose_block(BlockKey key, PageNumber stored, const ShardCommand& c);
    nvme::Status trim(const ShardCommand& c);
    nvme::Status plan_trim(const ShardCommand& c, std::uint32_t& runs);
    bool trim_run(const ShardCommand& c, std::uint32_t first, std::uint32_t blocks, bool remembers);
    /// Programs the stream's next page, on another unit where one fails; makes room where none is free.
    nvme::Status program(Stream stream, const std::byte* data, PageOob& oob, PageNumber& page);
    /// The map no longer names `page`.
    void forget_page(PageNumber page);
    bool is_readable(PageNumber page, const PageOob& oob);

    // durability.cpp
    struct Waiter {
        std::uint64_t tag;
        std::uint32_t group;
    };
    struct Ready {
        std::uint64_t tag;
        nvme::Status status;
    };
    enum class Wait : std::uint8_t { kNone, kMode, kPower };  ///< kMode: as the durability mode demands
    void answer_when(Wait wait, std::uint64_t tag);
    [[nodiscard]] bool needs_sync() const;
    [[nodiscard]] bool wants_units_back() const;
    [[nodiscard]] bool group_is_old() const;
    [[nodiscard]] bool wants_stamp() const;
    void stamp();
    void begin_sync();
    void end_group();
    void hold_units_back(const PageOob& damaged);
    void log_for_held_units();
    void free_emptied_units();
    void finish_sync();
    void end_sync(bool good);
    /// Moves waiting answers to `ready`, for give_answers().
    void make_ready(std::vector<Waiter>& from, nvme::Status status);
    void make_ready_up_to(std::uint32_t group);
    std::uint32_t give_answers();
    /// Syncs to stable media and waits: for room, or for a barrier. Gives no answer yet. False: the sync
    /// failed (then no change is accepted any more), or the journal's open page has no room.
    bool sync_now();
    void settle();
    bool flush_journal();
    bool exchange_open_unit(Stream stream);
    bool log(const LogRecord& record);
    /// The journal has only the pages left that its next two checkpoints need: without these no journal page
    /// would ever become free again.
    [[nodiscard]] bool log_is_crowded() const;
    /// Pages that the journal could program now.
    [[nodiscard]] std::uint64_t journal_pages_left() const;
    /// Whether the journal has pages, with room in the medium below, for so many more records. Checked before
    /// any change that only these records make durable.
    [[nodiscard]] bool journal_takes(std::uint32_t records);
    void record_bad_units();
    void log_bad_units();
    [[nodiscard]] static LogRecord purge_record(nvme::VolumeId volume);
    void log_purges();
    void note_programmed();
    void note_journal_pages(std::uint64_t first_page);
    [[nodiscard]] bool is_dirty() const { return programmed_in_group || journal.dirty(); }

    // collector.cpp
    /// Copies up to `pages` valid pages of the victim; returns how many it moved.
    std::uint32_t collect(std::uint32_t pages);
    [[nodiscard]] bool has_victim() const;
    bool choose_victim();
    enum class Copied : std::uint8_t { kDead, kMoved, kNoRoom };
    Copied copy_page(PageNumber from);
    Copied copy_as(BlockKey key, PageNumber from, PageOob oob, bool readable);
    PageOob lost_order(BlockKey key) const;
    void pay_for_user_page();
    void collect_idle(std::uint32_t pages);
    /// Units that may be opened for users, now or as soon as the groups that emptied them are durable.
    [[nodiscard]] std::uint32_t spare_units() const {
        const std::uint32_t units = pool.free_units() + pool.emptied_units();
        const std::uint32_t reserve = pool.left_for_others(Stream::kUser);
        return units > reserve ? units - reserve : 0;
    }
    /// Frees units until `stream` may open one; false: nothing is left to collect, or a sync failed.
    bool make_room(Stream stream);
    /// Once after a mount: frees a few units for the collector before users may open one.
    void make_up_for_cut();
    [[nodiscard]] std::optional<BlockKey> key_of_page(PageNumber page) const;
    void note_corrected(PageNumber page);

    // floors.cpp: floors, and the tombstones that they make obsolete
    bool log_floor(const VolumeFloor& floor);
    std::size_t drop_resolved(nvme::VolumeId volume, bool older_epochs);
    void drop_all_resolved();
    /// Whether the table takes so many more intervals of the volume; drops resolved tombstones if it must.
    [[nodiscard]] bool tombstone_room(nvme::VolumeId volume, std::size_t intervals);
    /// Whether every sequence below the command's is resolved, so that no older write of its volume can
    /// arrive.
    [[nodiscard]] bool is_next(const ShardCommand& c) const;
    void drop_old_tombstones();

    // checkpoints (shard.cpp)
    [[nodiscard]] bool wants_checkpoint() const;
    /// The collector has no unit to open, and the journal holds more than two checkpoints need: two new
    /// checkpoints free the surplus.
    [[nodiscard]] bool journal_starves_collector() const;
    [[nodiscard]] bool journal_holds_room() const;
    [[nodiscard]] bool has_room_for_checkpoint();
    void advance_checkpoint();

    // recovery_settle.cpp
    [[nodiscard]] std::uint64_t units_of_checkpoint() const;
    /// Writes the checkpoint that ends a recovery, in the newest group found. kNoSpace: there is no page for
    /// it (`no_room_below`: because the medium below is full).
    Result<void> write_recovered();
    Result<void> write_one_recovered();
    [[nodiscard]] bool reserve_checkpoint();
    [[nodiscard]] Error no_room_for_recovered() const;
    /// Tries again, at most once a second; starts the shard on success. Returns 1 when it did.
    std::uint32_t settle_recovery();

    // scrub.cpp
    void scrub(std::uint64_t now_ns);
    void scrub_page(PageNumber page);

    Flash& flash;
    const ShardRange range;
    const EngineOptions options;
    CompletionSink& sink;
    const std::uint32_t pages_per_unit;
    const ShardRoom room;

    UnitPool pool;
    BlockMap map;
    Tombstones tombstones;
    VolumeFloors floors;
    Doubts doubts;
    Journal journal;
    CheckpointWriter checkpoint;
    GroupClock groups;  ///< durable: survives power loss
    EngineCounters counters{};

    bool unsettled = false;      ///< no checkpoint holds what was recovered yet: recovery_settle.cpp
    bool no_room_below = false;  ///< the medium below the flash had no room for the latest checkpoint
    std::uint64_t settle_tried_ns = 0;
    std::uint64_t checkpoint_tried_ns = 0;  ///< when the medium below was last asked for room

    // Durability.
    std::uint64_t clock_ns = 0;        ///< of the last poll
    std::uint64_t group_began_ns = 0;  ///< last poll before the group's first page was programmed
    bool programmed_in_group = false;  ///< a page was programmed in the current group
    bool unstamped = false;            ///< a page was programmed since the last stamp of an idle shard
    bool killable = false;             ///< a kill before the next sync would lose a programmed page
    bool syncing = false;              ///< a sync is in flight
    SyncLevel sync_level = SyncLevel::kPower;
    std::uint32_t sync_group = 0;      ///< group that it makes durable (level kPower)
    bool broken = false;               ///< a sync failed: reads go on, changes are refused
    std::vector<Waiter> wait_power;    ///< in order of groups
    std::vector<Waiter> wait_kill;     ///< not covered by the sync in flight
    std::vector<Waiter> syncing_kill;  ///< answered when the sync in flight has ended
    std::vector<Ready> ready;          ///< given by the next give_answers()
    std::vector<std::uint32_t> bad_to_log;
    std::set<nvme::VolumeId> purges_to_log;  ///< deleted volumes; the journal had no page for the record
    std::uint64_t purges_tried_ns = 0;
    /// A damaged page was copied: its contents do not match its record. In the last two groups recovery takes
    /// such a copy for torn and needs the page that it was made from.
    struct HeldUnits {
        std::uint32_t from;   ///< units emptied in this group or later are not erased ..
        std::uint32_t until;  ///< .. before this group is durable and holds a page
        nvme::VolumeId volume;
        nvme::Epoch epoch;
    };
    std::optional<HeldUnits> held;

    // Collection.
    std::uint32_t victim = kNoUnit;
    std::uint32_t victim_serial = 0;
    std::uint32_t victim_next = 0;        ///< its next page to look at
    std::uint32_t copy_rate = 0;          ///< pages to copy for each user page, in sixteenths
    std::uint32_t copy_debt = 0;          ///< copies still to be made, in sixteenths
    bool cut_made_up = false;             ///< make_up_for_cut() was done since the mount
    std::vector<std::uint8_t> corrected;  ///< by unit of the range: reads that needed correction
    std::vector<std::uint32_t> rewrite;   ///< units to be moved because of `corrected`

    // Checkpoints.
    std::uint64_t programmed_at_slice = 0;  ///< counters.pages_programmed when the last slice ended
    std::uint64_t sealed_at_begin = 0;
    std::uint64_t log_pages_at_begin = 0;
    std::uint32_t group_at_begin = 0;
    bool checkpoint_asked = false;
    std::uint64_t useless_checkpoint = 0;  ///< checkpoint that freed no tombstone; 0: the last one did

    // Scrub.
    std::uint64_t scrub_last_ns = 0;
    std::uint64_t scrub_credit = 0;  ///< 1e9 allow one page
    PageNumber scrub_next = 0;
    std::vector<ScrubError> bad_places;
    /// Unmapped pages without a readable record, and their unit's serial.
    std::vector<std::pair<PageNumber, std::uint32_t>> nobodys;

    std::vector<PlannedBlock> planned;
    bool superseded_whole = false;  ///< the last write changed nothing
    std::uint32_t commands_since_poll = 0;
    std::vector<std::byte> scratch;       ///< one page: payloads whose content decides the order
    std::vector<std::byte> read_scratch;  ///< one page: what is read to be checked
    std::vector<std::byte> zeroes;        ///< one page: contents of lost blocks
};

}  // namespace gnstor::deengine
