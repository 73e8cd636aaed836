// shard.cpp: a shard's commands, reads and purges, and its poll: the order of what the parts do.
#include "deengine/shard/shard.hpp"

#include "deengine/shard/audit.hpp"
#include "deengine/shard/shard_impl.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::deengine {
namespace {

using nvme::Status;

constexpr std::uint32_t kIdlePagesPerPoll = 8;
constexpr std::uint32_t kMapAhead = 12;   ///< how far a multi-block read looks ahead in the map
constexpr std::uint32_t kPagesAhead = 8;  ///< pages that it prefetches ahead

}  // namespace

Shard::Impl::Impl(Flash& flash_in, const ShardRange& range_in, const EngineOptions& options_in,
                  CompletionSink& sink_in)
    : ShardState(flash_in, range_in, options_in),
      sink(sink_in),
      log(*this),
      durability(*this, log, sink_in),
      collector(*this, log, durability),
      pruner(*this, log),
      schedule(*this, log, durability, collector, pruner),
      recovered(*this, log, durability, schedule),
      scrubber(*this, collector),
      changes(*this, log, durability, collector, pruner, schedule),
      copies(
          *this, changes, pruner,
          {[this](BlockKey key) { return is_in_doubt(key); },
           [this](BlockKey key, std::byte* to) { return read_block(key, 0, nvme::kSectorsPerBlock, to); }}) {}

void Shard::Impl::start(std::uint32_t newest_group) {
    groups.restore(newest_group + 1, newest_group);
    pool.durable(newest_group);
    schedule.note_begin();
    pruner.drop_all_resolved();
    if (options.mutation != Mutation::kMountUnchanged) floors.forget_notes();
    reserve_for_journal();
}

void Shard::Impl::execute(const ShardCommand& c) {
    ++commands_since_poll;
    if (recovered.pending() && c.op != ShardOp::kRead && c.op != ShardOp::kFlush &&
        c.op != ShardOp::kCopyRead && c.op != ShardOp::kCopySurvey) [[unlikely]]
        return durability.answer(c.tag, Status::kCapacityExceeded);
    using Wait = Durability::Wait;
    Wait wait = c.stable ? Wait::kPower : Wait::kMode;
    Status status = Status::kSuccess;
    switch (c.op) {
        case ShardOp::kRead:
            status = read(c);
            if (status == Status::kDoubtful) [[unlikely]]
                return sink.on_complete(c.tag, status, c.blocks == 1 ? present_order(c) : 0);
            // A read with FUA is answered when its data is stable (NVM Command Set 1.0, 3.2.4).
            if (!c.stable) return durability.answer(c.tag, status);
            break;
        case ShardOp::kFlush:
            return durability.answer_when(Wait::kPower, c.tag);
        case ShardOp::kWrite:
            if (options.mutation == Mutation::kCompleteBeforeProgram) [[unlikely]] {
                durability.answer(c.tag, Status::kSuccess);
                (void)changes.write(c);
                return;
            }
            status = changes.write(c);
            if (changes.superseded_whole() && options.mutation == Mutation::kAnswerSupersededEarly)
                [[unlikely]]
                wait = Wait::kNone;
            break;
        case ShardOp::kZero:
        case ShardOp::kTrim:
            status = changes.trim(c);
            break;
        case ShardOp::kCopyOpen:
            return open_window(c);
        case ShardOp::kCopyRead:
            copies.read(c);
            return sink.on_complete(c.tag, Status::kSuccess, c.volume_epoch);
        case ShardOp::kCopySurvey:
            copies.survey(c);
            return sink.on_complete(c.tag, Status::kSuccess, c.volume_epoch);
        case ShardOp::kCopyWrite:
        case ShardOp::kCopyMend:
            status = copies.write(c);
            break;
    }
    if (!ok(status)) return durability.answer(c.tag, status);
    durability.answer_when(wait, c.tag);
}

/// Busy while a trim may be unresolved and without a tombstone: the window could not know it.
void Shard::Impl::open_window(const ShardCommand& c) {
    const bool all_told =
        floors.all_told(c.volume, c.volume_epoch) || options.mutation == Mutation::kCopyUntoldTrim;
    if (!all_told) return durability.answer(c.tag, Status::kBusy);
    sink.on_complete(c.tag, Status::kSuccess, windows.open(c, tombstones, now_ns, options.mutation));
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
        collector.note_corrected(entry->page);
    if (good) return Status::kSuccess;
    ++counters.media_errors;
    std::memset(to, 0, std::size_t{sectors} * nvme::kSectorBytes);  // do not expose what was copied
    return Status::kUnrecoveredReadError;
}

/// finish_sync() runs twice: for a sync begun earlier, and for the sync begun here, which fast flash
/// completes at once.
std::uint32_t Shard::Impl::poll(std::uint64_t time_ns) {
    now_ns = time_ns;
    if (recovered.pending()) [[unlikely]] {
        if (!recovered.retry()) return 0;
        start(groups.current());
        return 1;
    }
    const bool idle = commands_since_poll == 0;
    commands_since_poll = 0;
    durability.finish_sync();
    if (!durability.broken()) {
        reserve_for_journal();
        log.record_bad_units();
        if (log.purges_wait() && now_ns >= purges_tried_ns + kRoomNs) (void)record_purges();
        schedule.advance();
        if (idle) collector.collect_idle(kIdlePagesPerPoll);
        if (durability.needs_sync()) durability.begin_sync();
        durability.finish_sync();
        if (checkpoint.active() && !checkpoint.wants_sync()) schedule.advance();
    }
    if (options.scrub_pages_per_second != 0) scrubber.poll(now_ns);
    return durability.give_answers();
}

void Shard::Impl::set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor) {
    if (recovered.pending()) return;  // each write carries the floor again
    pruner.set_floor(volume, epoch, floor);
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
    windows.forget(volume);
    floors.forget(volume);
}

/// Keeps a later volume with this VID from finding this one's blocks in an older checkpoint.
bool Shard::Impl::record_purge(nvme::VolumeId volume) {
    if (recovered.pending()) {
        // The next mount drops pages without a volume; the pending checkpoint will contain the record.
        const LogRecord record = ShardLog::purge_record(volume);
        checkpoint.add_records({&record, 1});
        return true;
    }
    log.add_purge(volume);
    return record_purges();
}

/// If the journal has no page, a sync of the flash alone frees the units that deletions emptied, because the
/// deletions are durable in the firmware's state, and the journal opens one of them. Not while a trim waits
/// in the journal: only its record makes it durable, so no unit may be freed before.
bool Shard::Impl::record_purges() {
    purges_tried_ns = now_ns;
    if (durability.sync_now() && !log.purges_wait()) return true;
    if (durability.broken() || journal.waits(LogType::kTombstone)) return false;
    durability.sync_flash_now();
    return durability.sync_now() && !log.purges_wait();
}

Result<void> Shard::Impl::close() {
    if (recovered.pending() && !durability.broken()) return recovered.why_not();
    durability.settle();
    return schedule.write_last();
}

const EngineCounters& Shard::Impl::present_counters() {
    refresh_gauges();
    counters.unsettled = recovered.pending() ? 1 : 0;
    return counters;
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
    impl_->durability.settle();
}
void Shard::set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor) {
    impl_->set_floor(volume, epoch, floor);
}
bool Shard::purge(nvme::VolumeId volume) {
    impl_->forget_volume(volume);
    return impl_->record_purge(volume);
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
    return impl_->present_counters();
}
std::uint64_t Shard::mapped_blocks() const {
    return impl_->map.size();
}
const std::vector<ScrubError>& Shard::bad_places() const {
    return impl_->scrubber.bad_places();
}
std::uint64_t Shard::page_limit() const {
    return impl_->page_limit();
}
std::vector<std::string> Shard::audit() const {
    return deengine::audit(*impl_);
}
void Shard::for_each_block(
    const std::function<void(nvme::VolumeId, nvme::BlockAddress, PageNumber)>& call) const {
    impl_->map.for_each(
        [&](BlockKey key, MapEntry entry) { call(key_volume(key), key_block(key), entry.page); });
}

}  // namespace gnstor::deengine
