// recovery_checkpoint.cpp: units go back to the pool, and what was recovered is written as a checkpoint.
//
// Until that checkpoint is durable, an interrupted recovery must find what this one found: so recovery
// programs in the newest group found, and takes only units without valid pages.
#include "deengine/recovery/recovery.hpp"

#include <algorithm>

namespace gnstor::deengine {
namespace {

/// Serials that are skipped: units whose first pages a power cut lost may have had them.
///
/// On a medium where an unreadable page stays unreadable this changes nothing (mutation no-serial-gap): the
/// next serial is above every serial that anything readable names, because all of these are counted:
///   * records of pages: the highest of each unit; pages with lower ones in it do not count;
///   * headers of journal pages (open units, next serial), parts of the loaded checkpoint included
///     (LoadedCheckpoint::next_serial);
///   * log records (bad units, torn pages) and a checkpoint's unit table: the header of their page has a
///     next serial above those that they name, because a unit is opened before anything is recorded of it.
/// So nothing readable names the first use of a serial that is given out twice; stamps, tables and lists that
/// are read later mean its second unit. The gap is for a page whose read fails in one recovery and succeeds
/// in a later one.
constexpr std::uint32_t kSerialGap = 64;

}  // namespace

/// Finds the system units with pages that this recovery, or one that begins at the spare checkpoint, reads.
void ShardRecovery::plan_journal_units() {
    const std::uint64_t keep_from = spare_ != 0 ? spare_begin_ : loaded_.begin;
    const std::uint64_t last_end = ends_.empty() ? 0 : ends_.front().number;
    for (const JournalPlace& place : journal_.places()) {
        const std::uint32_t u = unit_of(place.page);
        auto kept = std::ranges::find(journal_units_, u, &KeptUnit::unit);
        if (kept == journal_units_.end()) {
            journal_units_.push_back({u, place.number, place.number, false, true, false});
            kept = journal_units_.end() - 1;
        }
        kept->last = std::max(kept->last, place.number);
        if (!is_known_gap(place.number, 1)) kept->given_up = false;
        kept->old = kept->old || is_old(place.group);
        // Behind the last END only log pages count; parts there are of an incomplete checkpoint.
        if (place.number >= keep_from && (place.type == JournalPage::kLog || place.number <= last_end))
            kept->needed = true;
    }
    std::erase_if(journal_units_,
                  [&](const KeptUnit& unit) { return unit.last < keep_from || unit.given_up; });
    std::ranges::sort(journal_units_, [&](const KeptUnit& a, const KeptUnit& b) {
        return a.first != b.first ? a.first < b.first : found(a.unit).serial < found(b.unit).serial;
    });
    // Gives up units only from the end: a hole before pages of old groups would look like a loss.
    while (!journal_units_.empty() && !journal_units_.back().needed) {
        const KeptUnit& gone = journal_units_.back();
        gaps_.push_back({gone.first, gone.last - gone.first + 1, 0});
        // If it were half erased, its remaining pages of old groups would look like a loss too.
        if (gone.old) held_.insert(gone.unit);
        journal_units_.pop_back();
    }
}

void ShardRecovery::restore_units() {
    plan_journal_units();
    std::vector<bool> valid(range_.units, false), torn(range_.units, false);
    impl_->map.for_each_page([&](PageNumber page) { valid[unit_of(page) - range_.first_unit] = true; });
    for (const PageNumber page : torn_pages_) torn[unit_of(page) - range_.first_unit] = true;
    const std::uint32_t newest = loaded_.group + static_cast<std::uint32_t>(newest_);
    for (std::uint32_t u = range_.first_unit; u < range_.first_unit + range_.units; ++u) {
        const FoundUnit& unit = found(u);
        const CheckpointUnit& then = loaded_.units[u - range_.first_unit];
        UnitInfo info;
        info.serial = std::max(unit.serial, then.serial);
        info.next = unit.end;
        info.erases = then.erases + (unit.serial > then.serial ? 1 : 0);
        info.group = newest;
        if (!unit.programmed) {
            info.next = 0;
        } else if (std::ranges::find(journal_units_, u, &KeptUnit::unit) != journal_units_.end()) {
            info.system = true;
            const bool last = u == journal_units_.back().unit;
            info.state = last && unit.end < pages_per_unit_ ? UnitState::kOpen : UnitState::kSealed;
        } else if (valid[u - range_.first_unit] || !unit.system || held_.contains(u)) {
            // Without valid pages: emptied, and free when this recovery's checkpoint is durable. A unit that
            // was open is programmed further, or cuts would leave a full drive with ever more half used
            // units; but not if its last records are lost, because flash would program those pages next.
            const bool was_open =
                unit.young_from < pages_per_unit_ && unit.end < pages_per_unit_ && unit.end == end_of(u);
            info.state = was_open ? UnitState::kOpen : UnitState::kSealed;
            if (is_remains(u) && unit.serial != 0) info.next = pages_per_unit_;
            // If it were erased before a checkpoint records the doubt or the loss, a cut would hide both.
            info.held = !unit.system && (torn[u - range_.first_unit] || unit.serial == 0 || records_lost_);
        }
        if (unit.bad) info.state = UnitState::kRetiring;
        impl_->pool.restore(u, info);
    }
}

void ShardRecovery::add_findings() {
    std::vector<LogRecord> records;
    std::ranges::sort(torn_pages_);
    if (options_.mutation == Mutation::kTornNotRecorded) torn_pages_.clear();
    for (const PageNumber page : torn_pages_) {
        const std::uint32_t serial = found(unit_of(page)).serial;
        if (!records.empty() && records.back().first + records.back().blocks == page &&
            records.back().sequence == serial) {
            ++records.back().blocks;
            continue;
        }
        LogRecord record{};
        record.type = LogType::kTorn;
        record.first = page;
        record.blocks = 1;
        record.sequence = serial;
        records.push_back(record);
    }
    for (const Gap& gap : gaps_) {
        LogRecord record{};
        record.type = LogType::kGap;
        record.sequence = gap.first;
        record.blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(gap.count, ~0u));
        records.push_back(record);
    }
    for (const nvme::VolumeId volume : dead_volumes_) {
        LogRecord record{};
        record.type = LogType::kPurge;
        record.volume = volume;
        records.push_back(record);
    }
    impl_->checkpoint.add_records(records);
}

Result<void> ShardRecovery::sync() {
    if (flash_.sync(SyncLevel::kPower) == FlashStatus::kOk) return {};
    return error(Errc::kIo,
                 "shard {}: the pages on flash cannot be made durable; check the disk under the store for "
                 "errors, and open the drive again",
                 range_.index);
}

Result<void> ShardRecovery::put_lost_blocks() {
    const std::vector<std::byte> zeroes(nvme::kBlockBytes);
    UnitPool& pool = impl_->pool;
    if (options_.mutation == Mutation::kLostBlockNotPut) return {};
    for (const BlockKey key : lost_) {
        // No collection here: it would begin new groups before the checkpoint.
        if (!pool.has_page(Stream::kCollector)) pool.durable(impl_->groups.current);
        const bool room = pool.has_page(Stream::kCollector);
        const VolumeFloor* seen = impl_->floors.find(key_volume(key));
        PageOob oob{};
        oob.vid = key_volume(key);
        oob.vba = key_block(key);
        oob.kind = PageKind::kLostOrder;
        oob.epoch = seen != nullptr ? seen->epoch : 0;
        oob.sequence = seen != nullptr ? seen->highest : 0;
        oob.version = kOobVersion;
        oob.group = impl_->groups.current;
        PageNumber page = kNoPage;
        const auto ticket = impl_->map.reserve(key);
        if (!room || !ticket ||
            impl_->program(Stream::kCollector, zeroes.data(), oob, page) != nvme::Status::kSuccess)
            return error(Errc::kNoSpace,
                         "shard {}: no flash page is free to record that block {} of volume {} is lost; read "
                         "its blocks from replicas on other drives, where there are any",
                         range_.index, key_block(key), key_volume(key));
        impl_->map.commit(*ticket, {page, false});
    }
    return {};
}

Result<void> ShardRecovery::write_checkpoint() {
    // What a killed process left is complete, but perhaps not stable yet: sync before anything relies on it.
    if (options_.mutation != Mutation::kSkipFirstSync) GN_TRY(sync());
    Shard::Impl& shard = *impl_;
    std::uint32_t serial = loaded_.next_serial;
    for (const FoundUnit& unit : found_) serial = std::max(serial, unit.serial + 1);
    for (const Stamp& stamp : stamps_) serial = std::max(serial, stamp.next_serial);
    shard.groups.current = loaded_.group + static_cast<std::uint32_t>(newest_);
    shard.groups.durable = shard.groups.current - 1;
    shard.pool.start(serial + (options_.mutation == Mutation::kNoSerialGap ? 0 : kSerialGap));
    std::uint64_t last_number = journal_.last_number();
    for (const Gap& gap : gaps_) last_number = std::max(last_number, gap.first + gap.count - 1);
    shard.journal.restore(last_number + 1);
    for (const KeptUnit& unit : journal_units_) shard.journal.note_unit(unit.unit, unit.first);
    shard.checkpoint.restore(loaded_.id, loaded_.begin, spare_, spare_begin_);
    shard.checkpoint.restore_floors(loaded_.floors, {});
    shard.checkpoint.restore_begun(highest_id_);
    if (loaded_.id != 0 && !changed_) {
        shard.pool.release_held(shard.groups.current);
        return {};
    }
    add_findings();
    shard.drop_all_resolved();  // the log may have more tombstones than the table ever held at once
    GN_TRY(put_lost_blocks());
    const Result<void> written = impl_->write_recovered();
    // Nothing is served before the first checkpoint of a store, or one that gives up data, is written. Pages
    // for lost blocks are in the newest group, in which an unsettled shard must have programmed nothing.
    if (written.ok() || !shard.no_room_below || loaded_.id == 0 || options_.accept_loss || !lost_.empty())
        return written;
    shard.unsettled = true;
    find(
        fmt::format("{}; nothing is lost, blocks can be read, and writes are refused until the disk has room",
                    written.error().message));
    return {};
}

}  // namespace gnstor::deengine
