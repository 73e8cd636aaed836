// log_replay.cpp: reading and replaying log records.
#include "deengine/recovery/log_replay.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace gnstor::deengine {

void LogReplay::read() {
    const LoadedCheckpoint& loaded = choice_.loaded();
    JournalIndex& journal = choice_.journal();
    std::uint64_t expected = loaded.begin + 1;
    auto part = loaded.parts.begin();
    const auto places = journal.places();
    for (auto it = std::ranges::lower_bound(places, expected, {}, &JournalPlace::number);
         it != places.end();) {
        const std::uint64_t number = it->number;
        const auto twins = journal.find(number);
        it += static_cast<std::ptrdiff_t>(twins.size());
        ages_.saw(twins.front().group);
        if (number > expected) gaps_.add({expected, number - expected, twins.front().group});
        expected = number + 1;
        part = std::find_if(part, loaded.parts.end(), [&](std::uint64_t p) { return p >= number; });
        if (number == loaded.end || (part != loaded.parts.end() && *part == number)) {
            read_own_part(twins.front());
        } else {
            read_other_page(twins);
        }
    }
    if (!gaps_.all().empty()) findings_.note_change();
    open_units_.choose_last_old(ages_);
}

/// A part of the loaded checkpoint was read before. Of a recovery's findings in it only the doubts still
/// matter, and the pages that it gave up: they need not be kept, though their units may not be erased yet.
void LogReplay::read_own_part(const JournalPlace& place) {
    const bool end = place.number == choice_.loaded().end;
    if (!end && place.type != JournalPage::kCheckpointRecords) return;
    const JournalHeader* header = choice_.journal().read(place);
    if (header == nullptr) return;
    if (end) return open_units_.note_counts(*header, place.page, false);
    for (std::uint32_t i = 0; i < header->count && i < kRecordsPerPage; ++i) {
        const auto record = choice_.journal().entry<LogRecord>(i);
        if (record.type == LogType::kGap) gaps_.add_known(record.sequence, record.blocks);
        if (record.type == LogType::kDoubt || record.type == LogType::kLostRecords) doubts_.note(record);
    }
}

/// `twins`: all places of one number.
void LogReplay::read_other_page(std::span<const JournalPlace> twins) {
    findings_.note_change();
    for (const JournalPlace& twin : twins)
        if (const JournalHeader* header = choice_.journal().read(twin); header != nullptr)
            return read_page(twin, *header);
    const JournalPlace& damaged = twins.front();
    if (damaged.type == JournalPage::kLog) {
        gaps_.add({damaged.number, 1, damaged.group, true});
    } else if (damaged.type == JournalPage::kCheckpointEnd) {
        gaps_.note_damaged_end();
    } else {
        gaps_.note_damaged_part();
    }
}

void LogReplay::read_page(const JournalPlace& place, const JournalHeader& header) {
    open_units_.note_page(header, place.group);
    gaps_.note_completed(header.completed);
    choice_.note_id(header.checkpoint);
    const bool records = header.type == JournalPage::kLog || header.type == JournalPage::kCheckpointRecords;
    if (header.type != JournalPage::kLog) gaps_.note_part(header, choice_.loaded().begin);
    bool stamp = false;
    for (std::uint32_t i = 0; records && i < header.count && i < kRecordsPerPage; ++i) {
        const auto record = choice_.journal().entry<LogRecord>(i);
        records_.push_back({record, header.checkpoint});
        note_record(record);
        stamp = stamp || record.type == LogType::kStamp;
    }
    open_units_.note_counts(header, place.page, stamp);
}

/// Notes what must be known before pages are judged.
void LogReplay::note_record(const LogRecord& record) {
    if (record.type == LogType::kUnitBad && input_.has_unit(record.first)) {
        FoundUnit& unit = units_[record.first];
        if (!unit.bad) ++findings_.report.units_bad;
        unit.bad = true;
        if (unit.serial == record.sequence) unit.failed_from = std::min(unit.failed_from, record.blocks);
    }
    if (record.type == LogType::kClosed && input_.has_unit(record.first)) {
        open_units_.note_closed(record.sequence);
        if (units_[record.first].serial == record.sequence) units_[record.first].full_at = record.blocks;
    }
    if (record.type == LogType::kGap) gaps_.add_known(record.sequence, record.blocks);
    if (record.type == LogType::kTorn && input_.has_page(record.first)) note_torn(record);
}

void LogReplay::note_torn(const LogRecord& record) {
    const std::uint64_t end = std::min<std::uint64_t>(std::uint64_t{record.first} + record.blocks,
                                                      std::uint64_t{input_.first_page} + input_.pages);
    for (PageNumber page = record.first; page < end; ++page)
        if (units_.of_page(page).serial == record.sequence) units_.mark_torn(page);
}

Result<void> LogReplay::replay(ShardState& state) {
    std::set<nvme::VolumeId> purged;
    for (const LoggedRecord& logged : records_)
        if (logged.record.type == LogType::kPurge) purged.insert(logged.record.volume);
    // What a later volume with this VID wrote is young: it is applied again.
    if (!purged.empty())
        state.map.erase_if([&](BlockKey key, MapEntry) { return purged.contains(key_volume(key)); });
    for (const LoggedRecord& logged : records_) GN_TRY(replay_one(logged, state));
    findings_.report.log_records += records_.size();
    return {};
}

Result<void> LogReplay::replay_one(const LoggedRecord& logged, ShardState& state) {
    const LogRecord& r = logged.record;
    switch (r.type) {
        case LogType::kTombstone:
            if (r.blocks == 0 || std::uint64_t{r.first} + r.blocks > (1ull << 32))
                return error(Errc::kCorrupt, "shard {}: the log holds a trim of blocks outside of any volume",
                             input_.range.index);
            if (!input_.lives.lives(r.volume, r.epoch, r.first)) {
                ++findings_.report.pages_outdated;
                findings_.add(
                    fmt::format("a trim of {} blocks from block {} on is dropped: volume {} of epoch {} does "
                                "not exist any more",
                                r.blocks, r.first, r.volume, r.epoch));
                return {};
            }
            replay_tombstone({make_key(r.volume, r.first), r.blocks, r.epoch, r.sequence, logged.born},
                             state);
            return {};
        case LogType::kFloor:
            if (input_.lives.lives(r.volume, r.epoch, 0)) state.floors.raise(r.volume, r.epoch, r.sequence);
            return {};
        case LogType::kPurge:
            state.tombstones.drop_if([&](const Tombstone& t) { return key_volume(t.first) == r.volume; });
            state.floors.forget(r.volume);
            return {};
        case LogType::kDoubt:
        case LogType::kLostRecords:
            doubts_.note(r);
            return {};
        case LogType::kStamp:
            return {};
        case LogType::kUnitBad:
        case LogType::kClosed:
        case LogType::kTorn:
        case LogType::kGap:
            return {};  // known before pages were judged
    }
    return error(Errc::kCorrupt, "shard {}: the log holds a record of unknown type {}", input_.range.index,
                 static_cast<unsigned>(r.type));
}

void LogReplay::replay_tombstone(const Tombstone& t, ShardState& state) {
    state.tombstones.add(t);
    state.floors.seen(key_volume(t.first), t.epoch, t.sequence);
    const WriteOrder order = WriteOrder::of_tombstone(t.epoch, t.sequence);
    const BlockKey end = t.first + t.blocks;
    if (t.blocks < state.map.slots()) {
        for (BlockKey key = t.first; key < end; ++key)
            if (const auto entry = state.map.find(key)) bury(key, entry->page, order, state);
        return;
    }
    std::vector<std::pair<BlockKey, PageNumber>> under;
    state.map.for_each([&](BlockKey key, MapEntry entry) {
        if (key >= t.first && key < end) under.emplace_back(key, entry.page);
    });
    for (const auto& [key, page] : under) bury(key, page, order, state);
}

/// A tombstone covers a key that the checkpoint maps. It was logged after BEGIN, and only over blocks whose
/// stored version was older then: so it is newer than every page from before BEGIN, and the page's record
/// need not be read (it may be gone, if its unit was erased since). A young page may be newer than the
/// tombstone.
void LogReplay::bury(BlockKey key, PageNumber page, const WriteOrder& order, ShardState& state) {
    const FoundUnit& unit = units_.of_page(page);
    PageOob oob{};
    const bool young = page % input_.pages_per_unit >= unit.young_from && !units_.is_torn(page);
    const bool own = young && units_.read_record(page, oob) == FoundUnits::Record::kGood &&
                     make_key(oob.vid, oob.vba) == key && oob.kind != PageKind::kSystem &&
                     oob.unit_serial == unit.serial;
    if (own && units_.order_of(page, oob) > order) {
        state.tombstones.remove(key);
    } else {
        state.map.erase(key);
    }
}

}  // namespace gnstor::deengine
