// shard.cpp: a shard's commands, reads and purges, and its poll: background work and its order.
#include "deengine/shard/shard.hpp"

#include "deengine/shard/shard_impl.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace gnstor::deengine {
namespace {

using nvme::Status;

constexpr std::uint32_t kPagesPerCheckpointPage = 4;  ///< pages programmed since the last slice
constexpr std::uint32_t kIdlePagesPerPoll = 8;
constexpr std::uint32_t kMapAhead = 12;                ///< how far a multi-block read looks ahead in the map
constexpr std::uint32_t kPagesAhead = 8;               ///< pages that it prefetches ahead
constexpr std::uint32_t kMaxGroupDistance = 1u << 30;  ///< group numbers are compared modulo 2^32
constexpr std::size_t kWaitersReserved = 4096;

}  // namespace

Shard::Impl::Impl(Flash& flash_in, const ShardRange& range_in, const EngineOptions& options_in,
                  CompletionSink& sink_in)
    : flash(flash_in),
      range(range_in),
      options(options_in),
      sink(sink_in),
      pages_per_unit(flash_in.geometry().pages_per_unit),
      room(ShardRoom::of(range_in.units, pages_per_unit, options_in)),
      pool(flash_in, range_in.first_unit, range_in.units),
      map(flash_in.geometry().pages(),
          map_buckets(std::uint64_t{range_in.units} * pages_per_unit, options_in)),
      tombstones(room.tombstones),
      journal(flash_in, pool),
      checkpoint(journal, pool, map, tombstones, floors.entries(), doubts),
      corrected(range_in.units),
      scrub_next(range_in.first_unit * pages_per_unit),
      planned(options_in.mdts_blocks),
      scratch(nvme::kBlockBytes),
      read_scratch(nvme::kBlockBytes),
      zeroes(nvme::kBlockBytes) {
    wait_power.reserve(kWaitersReserved);
    wait_kill.reserve(kWaitersReserved);
    syncing_kill.reserve(kWaitersReserved);
    ready.reserve(kWaitersReserved);
    checkpoint.set_end_before_durable(options.mutation == Mutation::kCheckpointBeforeLog);
    checkpoint.set_forgets_moves(options.mutation == Mutation::kMovedNotRecorded);
    checkpoint.set_buckets_per_part(options.buckets_per_part);
    map.set_move_keeps_way(options.mutation == Mutation::kMoveKeepsWay);
}

void Shard::Impl::start(std::uint32_t newest_group) {
    groups.current = newest_group + 1;
    groups.durable = newest_group;
    pool.durable(newest_group);
    group_at_begin = groups.current;
    sealed_at_begin = pool.units_sealed();
    log_pages_at_begin = journal.log_pages();
    drop_all_resolved();
    pool.set_system_reserve(room.system_reserve(tombstones.size(), pages_per_unit));
    refresh_gauges();
}

void Shard::Impl::execute(const ShardCommand& c) {
    ++commands_since_poll;
    if (unsettled && c.op != ShardOp::kRead && c.op != ShardOp::kFlush) [[unlikely]]
        return answer(c.tag, Status::kCapacityExceeded);
    Wait wait = c.stable ? Wait::kPower : Wait::kMode;
    Status status = Status::kSuccess;
    switch (c.op) {
        case ShardOp::kRead:
            status = read(c);
            if (status == Status::kDoubtful) [[unlikely]]
                return sink.on_complete(c.tag, status, c.blocks == 1 ? present_order(c) : 0);
            // A read with FUA is answered when its data is stable (NVM Command Set 1.0, 3.2.4).
            if (!c.stable) return answer(c.tag, status);
            break;
        case ShardOp::kFlush:
            return answer_when(Wait::kPower, c.tag);
        case ShardOp::kWrite:
            if (options.mutation == Mutation::kCompleteBeforeProgram) [[unlikely]] {
                answer(c.tag, Status::kSuccess);
                (void)write(c);
                return;
            }
            status = write(c);
            if (superseded_whole && options.mutation == Mutation::kAnswerSupersededEarly) [[unlikely]]
                wait = Wait::kNone;
            break;
        case ShardOp::kZero:
        case ShardOp::kTrim:
            status = trim(c);
            break;
    }
    if (!ok(status)) return answer(c.tag, status);
    answer_when(wait, c.tag);
}

void Shard::Impl::answer(std::uint64_t tag, Status status) {
    sink.on_complete(tag, status, 0);
}

Status Shard::Impl::read(const ShardCommand& c) {
    if (!doubts.empty()) [[unlikely]]
        if (const Status s = check_doubts(c); !ok(s)) return s;
    if (c.sectors != 0) return read_block(make_key(c.volume, c.first), c.first_sector, c.sectors, c.data);
    if (c.blocks > 1) {
        for (std::uint32_t i = 0; i < std::min(c.blocks, kMapAhead); ++i)
            map.prefetch(make_key(c.volume, c.first + i));
        for (std::uint32_t i = 0; i < std::min(c.blocks, kPagesAhead); ++i)
            prefetch_page(make_key(c.volume, c.first + i), 0);
    }
    for (std::uint32_t i = 0; i < c.blocks; ++i) {
        if (i + kMapAhead < c.blocks) map.prefetch(make_key(c.volume, c.first + i + kMapAhead));
        if (i + kPagesAhead < c.blocks) prefetch_page(make_key(c.volume, c.first + i + kPagesAhead), 0);
        const Status s = read_block(make_key(c.volume, c.first + i), 0, nvme::kSectorsPerBlock,
                                    c.data + std::size_t{i} * nvme::kBlockBytes);
        if (!ok(s)) return s;
    }
    return Status::kSuccess;
}

/// The map names the older version of a block in doubt: only a reader that has asked all replicas gets it.
Status Shard::Impl::check_doubts(const ShardCommand& c) {
    std::uint32_t in_doubt = 0;
    for (std::uint32_t i = 0; i < c.blocks; ++i)
        in_doubt += is_in_doubt(make_key(c.volume, c.first + i)) ? 1 : 0;
    if (in_doubt == 0) return Status::kSuccess;
    (c.accept_older ? counters.older_read : counters.doubts_refused) += in_doubt;
    return c.accept_older ? Status::kSuccess : Status::kDoubtful;
}

/// Listed as in doubt, or of no later epoch than the volume's lost records. A page that cannot be read is not
/// an older version: its read fails.
bool Shard::Impl::is_in_doubt(BlockKey key) {
    if (doubts.contains(key)) return true;
    const nvme::Epoch* lost = doubts.lost_of(key_volume(key));
    if (lost == nullptr) return false;
    const auto entry = map.find(key);
    if (!entry) return tombstones.find(key).value_or(WriteOrder{}).epoch <= *lost;
    PageOob oob{};
    const bool known = has_data(flash.read_oob(entry->page, oob)) && make_key(oob.vid, oob.vba) == key;
    return known && oob.kind == PageKind::kData && oob.epoch <= *lost;
}

/// Order of the block's present version (nvme/vendor.hpp); 0: none, or not known.
std::uint64_t Shard::Impl::present_order(const ShardCommand& c) {
    const BlockKey key = make_key(c.volume, c.first);
    if (const auto entry = map.find(key)) {
        PageOob oob{};
        const bool known = has_data(flash.read_oob(entry->page, oob)) && make_key(oob.vid, oob.vba) == key;
        return known ? nvme::present_order(oob.epoch, oob.sequence) : 0;
    }
    const WriteOrder trimmed = tombstones.find(key).value_or(WriteOrder{});
    return nvme::present_order(trimmed.epoch, trimmed.sequence);
}

/// Prefetches what the copy of a block waits for: stores on devices read the pages of several blocks
/// together.
void Shard::Impl::prefetch_page(BlockKey key, std::uint32_t first_sector) const {
    const auto entry = map.find(key);
    if (!entry) return;
    flash.prefetch(entry->page);
    if (first_sector < nvme::kSectorsPerBlock) flash.prefetch_data(entry->page, first_sector);
}

Status Shard::Impl::read_block(BlockKey key, std::uint32_t first_sector, std::uint32_t sectors,
                               std::byte* to) {
    ++counters.blocks_read;
    const auto entry = map.find(key);
    if (!entry) {
        std::memset(to, 0, std::size_t{sectors} * nvme::kSectorBytes);
        return Status::kSuccess;
    }
    PageOob oob;
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    const FlashStatus status = flash.read_page(entry->page, first_sector, sectors, to, crcs, oob);
    // The record names the page's block: a second check, after the exact map.
    const bool good = has_data(status) && make_key(oob.vid, oob.vba) == key && oob.kind == PageKind::kData &&
                      std::memcmp(crcs, oob.sector_crc + first_sector, sectors * sizeof(crcs[0])) == 0;
    if (status == FlashStatus::kCorrected) [[unlikely]]
        note_corrected(entry->page);
    if (good) return Status::kSuccess;
    ++counters.media_errors;
    std::memset(to, 0, std::size_t{sectors} * nvme::kSectorBytes);  // do not expose what was copied
    return Status::kUnrecoveredReadError;
}

/// finish_sync() runs twice: for a sync begun earlier, and for the sync begun here, which fast flash
/// completes at once.
std::uint32_t Shard::Impl::poll(std::uint64_t now_ns) {
    clock_ns = now_ns;
    if (unsettled) [[unlikely]]
        return settle_recovery();
    const bool idle = commands_since_poll == 0;
    commands_since_poll = 0;
    finish_sync();
    if (!broken) {
        pool.set_system_reserve(room.system_reserve(tombstones.size(), pages_per_unit));
        record_bad_units();
        if (!purges_to_log.empty() && clock_ns >= purges_tried_ns + kRoomNs) (void)record_purges();
        advance_checkpoint();
        if (idle) collect_idle(kIdlePagesPerPoll);
        if (needs_sync()) begin_sync();
        finish_sync();
        if (checkpoint.active() && !checkpoint.wants_sync()) advance_checkpoint();
    }
    if (options.scrub_pages_per_second != 0) scrub(now_ns);
    return give_answers();
}

/// The volume's record was removed before: commands for it are refused already.
bool Shard::Impl::purge(nvme::VolumeId volume) {
    forget_volume(volume);
    return record_purge(volume);
}

void Shard::Impl::forget_volume(nvme::VolumeId volume) {
    map.erase_if([&](BlockKey key, MapEntry entry) {
        if (key_volume(key) != volume) return false;
        forget_page(entry.page);
        return true;
    });
    tombstones.drop_if(volume, [](const Tombstone&) { return true; });
    doubts.drop_if([&](BlockKey key, const WriteOrder&) { return key_volume(key) == volume; });
    doubts.drop_lost(volume);
    floors.forget(volume);
    refresh_gauges();
}

/// Keeps a later volume with this VID from finding this one's blocks in an older checkpoint.
bool Shard::Impl::record_purge(nvme::VolumeId volume) {
    if (unsettled) {
        // The next mount drops pages without a volume; the pending checkpoint will contain the record.
        const LogRecord record = purge_record(volume);
        checkpoint.add_records({&record, 1});
        return true;
    }
    purges_to_log.insert(volume);
    return record_purges();
}

/// If the journal has no page, a sync of the flash alone frees the units that deletions emptied, because the
/// deletions are durable in the firmware's state, and the journal opens one of them. Not while a trim waits
/// in the journal: only its record makes it durable, so no unit may be freed before.
bool Shard::Impl::record_purges() {
    purges_tried_ns = clock_ns;
    bool durable = sync_now() && purges_to_log.empty();
    if (!durable && !broken && !journal.waits(LogType::kTombstone)) {
        sync_level = SyncLevel::kPower;
        end_group();
        end_sync(flash.sync(SyncLevel::kPower) == FlashStatus::kOk);
        durable = sync_now() && purges_to_log.empty();
    }
    refresh_gauges();
    return durable;
}

bool Shard::Impl::wants_checkpoint() const {
    if (checkpoint_asked) return true;
    const std::uint64_t sealed = pool.units_sealed() - sealed_at_begin;
    const std::uint64_t logs = journal.log_pages() - log_pages_at_begin;
    const bool crowded =
        tombstones.size() > tombstones.capacity() / 2 && useless_checkpoint != checkpoint.completed();
    return sealed >= room.units_between_checkpoints || logs >= room.log_pages_between_checkpoints ||
           crowded || groups.current - group_at_begin > kMaxGroupDistance || journal_starves_collector();
}

bool Shard::Impl::journal_starves_collector() const {
    return !pool.has_page(Stream::kCollector) && pool.emptied_units() == 0 && journal_holds_room();
}

/// A shard that is not polled for long may have all its free units in the journal: each sync for room
/// programs a log page if a damaged page was copied (log_for_held_units()), and only poll() advances
/// checkpoints.
bool Shard::Impl::journal_holds_room() const {
    // Units of two checkpoints, wherever in a unit the first one begins.
    const std::uint64_t most = (2 * checkpoint.pages_needed() + 2 * (pages_per_unit - 1)) / pages_per_unit;
    return journal.units() > most;
}

/// Whether the medium below the flash has the room; after a refusal it is asked again a second later.
bool Shard::Impl::has_room_for_checkpoint() {
    if (no_room_below && clock_ns < checkpoint_tried_ns + kRoomNs) return false;
    checkpoint_tried_ns = clock_ns;
    no_room_below = !reserve_checkpoint();
    return !no_room_below;
}

/// Begins a checkpoint, or writes its next slice. The last free unit is left to the log.
void Shard::Impl::advance_checkpoint() {
    if (!checkpoint.active()) {
        if (!wants_checkpoint()) return;
        // A checkpoint that does not fit would waste the last pages.
        const std::uint64_t needed = checkpoint.pages_needed();
        if (journal_pages_left() < needed) (void)make_room(Stream::kUser);
        if (journal_pages_left() < needed || !has_room_for_checkpoint() || !checkpoint.start()) return;
        checkpoint_asked = false;
        sealed_at_begin = pool.units_sealed();
        log_pages_at_begin = journal.log_pages();
        group_at_begin = groups.current;
        programmed_at_slice = counters.pages_programmed;
    }
    if (pool.free_units() < 2 && !make_room(Stream::kUser) && !pool.has_page(Stream::kSystem)) return;
    const std::uint64_t before = checkpoint.completed();
    const std::uint64_t first_page = journal.next_number();
    // Keeps pace with programs meanwhile: the next recovery must scan every page programmed since BEGIN.
    const std::uint64_t since = counters.pages_programmed - programmed_at_slice;
    const auto slice =
        options.checkpoint_pages_per_poll + static_cast<std::uint32_t>(since / kPagesPerCheckpointPage);
    (void)checkpoint.step(slice, groups);
    note_journal_pages(first_page);
    programmed_at_slice = counters.pages_programmed;
    if (checkpoint.completed() == before) return;
    ++counters.checkpoints;
    drop_old_tombstones();
}

Result<void> Shard::Impl::close() {
    if (unsettled && !broken) return no_room_for_recovered();
    settle();
    const std::uint64_t begun = checkpoint.begun_last();
    // Bounded: each step programs pages, or waits for a sync.
    for (std::uint64_t i = 0; i < 4 * (room.checkpoint_pages + 64) && !broken; ++i) {
        if (!checkpoint.active() && checkpoint.completed() > begun) return {};
        if (!checkpoint.active() && !checkpoint.start()) break;
        if (pool.free_units() < 2) (void)make_room(Stream::kUser);
        const std::uint64_t first_page = journal.next_number();
        (void)checkpoint.step(options.checkpoint_pages_per_poll, groups);
        note_journal_pages(first_page);
        if (checkpoint.wants_sync() && !sync_now()) break;
    }
    return error(Errc::kIo,
                 "a drive was closed without a checkpoint: its flash has no room for a checkpoint or cannot "
                 "sync; what was acknowledged is recovered from the log at the next opening");
}

std::uint64_t Shard::Impl::page_limit() const {
    const std::uint32_t good = pool.good_units();
    return good > room.units_kept ? std::uint64_t{good - room.units_kept} * pages_per_unit : 0;
}

void Shard::Impl::refresh_gauges() {
    counters.mapped_blocks = map.size();
    const std::uint64_t limit = page_limit();
    counters.free_pages = limit > pool.valid_pages() ? limit - pool.valid_pages() : 0;
    counters.units_erased = pool.units_erased();
    counters.tombstones = tombstones.size();
    counters.doubtful = doubts.size();
    counters.doubtful_volumes = doubts.lost().size();
    counters.unstamped = unstamped ? 1 : 0;
    counters.unsettled = unsettled ? 1 : 0;
    counters.displaced = map.moves();
    counters.displaced_in_slices = checkpoint.moves_across_cursor();
    counters.units_bad = pool.units() - pool.good_units();
    counters.data_pages = limit;
    counters.data_pages_new = room.data_pages(pool.units(), pages_per_unit);
}

Shard::Shard(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Shard::~Shard() = default;

void Shard::execute(const ShardCommand& command) {
    impl_->execute(command);
}
std::uint32_t Shard::poll(std::uint64_t now_ns) {
    return impl_->poll(now_ns);
}
void Shard::settle() {
    impl_->settle();
}
void Shard::set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor) {
    impl_->set_floor(volume, epoch, floor);
}
bool Shard::purge(nvme::VolumeId volume) {
    return impl_->purge(volume);
}
bool Shard::record_purge(nvme::VolumeId volume) {
    return impl_->record_purge(volume);
}
void Shard::forget_volume(nvme::VolumeId volume) {
    impl_->forget_volume(volume);
}
void Shard::prefetch(nvme::VolumeId volume, nvme::BlockAddress block) const {
    impl_->map.prefetch(make_key(volume, block));
}
void Shard::prefetch_page(nvme::VolumeId volume, nvme::BlockAddress block, std::uint32_t first_sector) const {
    impl_->prefetch_page(make_key(volume, block), first_sector);
}
Result<void> Shard::close() {
    return impl_->close();
}
const EngineCounters& Shard::counters() const {
    impl_->refresh_gauges();
    return impl_->counters;
}
std::uint64_t Shard::mapped_blocks() const {
    return impl_->map.size();
}
const std::vector<ScrubError>& Shard::bad_places() const {
    return impl_->bad_places;
}
std::uint64_t Shard::page_limit() const {
    return impl_->page_limit();
}

}  // namespace gnstor::deengine
