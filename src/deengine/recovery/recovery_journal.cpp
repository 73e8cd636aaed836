// recovery_journal.cpp: which checkpoint to begin at, and what the log says since.
#include "deengine/recovery/recovery.hpp"

#include <algorithm>

namespace gnstor::deengine {

Result<void> ShardRecovery::find_journal() {
    for (std::uint32_t u = range_.first_unit; u < range_.first_unit + range_.units; ++u) {
        FoundUnit& unit = found(u);
        if (!unit.system || unit.serial == 0) continue;
        for (std::uint32_t i = 0; i < pages_per_unit_; ++i) {
            PageOob oob{};
            const PageNumber page = u * pages_per_unit_ + i;
            const Record record = read_record(page, oob);
            if (record == Record::kErased) continue;
            unit.end = i + 1;
            if (record != Record::kGood || oob.kind != PageKind::kSystem || oob.unit_serial != unit.serial)
                continue;
            journal_.add(page, oob);
        }
    }
    journal_.sort();
    report_.journal_pages += journal_.places().size();
    const std::span<const JournalPlace> places = journal_.places();
    for (auto it = places.rbegin(); it != places.rend(); ++it) {
        const JournalPlace& place = *it;
        // An END that cannot be read was torn by a cut, or is a damaged part: read_log() decides.
        if (place.type == JournalPage::kCheckpointEnd && journal_.read(place) != nullptr &&
            !was_replaced(place))
            ends_.push_back(place);
        if (place.type != JournalPage::kCheckpointBegin) continue;
        const JournalHeader* header = journal_.read(place);
        // A BEGIN that cannot be read has used one id, too: ids rise by one.
        highest_id_ = header != nullptr ? std::max(highest_id_, header->checkpoint) : highest_id_ + 1;
    }
    return {};
}

/// Whether this END's number was given to another page later: every program of the END had failed, its
/// checkpoint was given up, and what the failed programs left can be read only by chance.
bool ShardRecovery::was_replaced(const JournalPlace& end) {
    for (const JournalPlace& twin : journal_.find(end.number)) {
        if (twin.page == end.page) return false;
        if (journal_.read(twin) != nullptr) return twin.type != JournalPage::kCheckpointEnd;
    }
    return false;
}

Result<void> ShardRecovery::load_newest_checkpoint() {
    for (const JournalPlace& end : ends_) {
        Result<void> loaded = load_one(end);
        if (loaded.ok()) return {};
        if (loaded.error().code != Errc::kCorrupt) return loaded;
        find(fmt::format("{}: an older checkpoint is used", loaded.error().message));
        report_.spare_checkpoint = true;
        changed_ = true;
        impl_ = std::make_unique<Shard::Impl>(flash_, range_, options_, sink_);
    }
    return begin_without_checkpoint();
}

Result<void> ShardRecovery::load_one(const JournalPlace& end) {
    CheckpointBegin want{};
    want.first_unit = range_.first_unit;
    want.units = range_.units;
    want.pages_per_unit = pages_per_unit_;
    want.buckets = impl_->map.buckets();
    want.page_bits = impl_->map.page_bits();
    GN_ASSIGN(loaded_,
              load_checkpoint(journal_, end, want, flash_.geometry().pages(), impl_->map, impl_->tombstones));
    bool inside = true;
    impl_->map.for_each_page([&](PageNumber page) { inside = inside && in_range(page); });
    if (!inside)
        return error(Errc::kCorrupt, "checkpoint {}: the block map maps a block to a page of another shard",
                     loaded_.id);
    // The checkpoint before it stays as the spare.
    for (const JournalPlace& other : ends_)
        if (other.number < loaded_.begin && spare_ == 0)
            if (const JournalHeader* header = journal_.read(other); header != nullptr) {
                spare_ = header->checkpoint;
                spare_begin_ = journal_.entry<CheckpointEnd>(0).begin;
            }
    impl_->tombstones.drop_if(
        [&](const Tombstone& t) { return !lives_.lives(key_volume(t.first), t.epoch, key_block(t.first)); });
    for (const VolumeFloor& f : loaded_.floors)
        if (lives_.lives(f.volume, f.epoch, 0)) {
            impl_->floors.raise(f.volume, f.epoch, f.floor);
            impl_->floors.seen(f.volume, f.epoch, f.highest);
        } else if (options_.mutation != Mutation::kApplyOutdatedPage) {
            note_dropped(f.volume, f.epoch);
            // Map entries carry no epoch: all that the checkpoint maps is of the same volume as the floor.
            // The log may lack the purge record: flash may have failed before the volume was deleted.
            impl_->map.erase_if([&](BlockKey key, MapEntry) { return key_volume(key) == f.volume; });
        }
    highest_id_ = std::max(highest_id_, loaded_.id);
    report_.checkpoint = std::max(report_.checkpoint, loaded_.id);
    mark_young_pages();
    return {};
}

/// For a shard whose first mount was not completed, or whose journal still reaches back to its first page.
Result<void> ShardRecovery::begin_without_checkpoint() {
    loaded_ = {};
    loaded_.units.resize(range_.units);
    spare_ = 0;
    changed_ = true;
    const bool has_data =
        std::ranges::any_of(found_, [](const FoundUnit& unit) { return unit.serial != 0 && !unit.system; });
    const bool from_first = !journal_.empty() && journal_.places().front().number == 1;
    const bool first_mount = !has_data && std::ranges::all_of(journal_.places(), [](const JournalPlace& p) {
        return p.group == 1;
    });
    if (!first_mount && !from_first)
        return error(Errc::kCorrupt,
                     "shard {} holds data but no whole checkpoint, and its journal does not reach back to "
                     "its first page: it is not known where the blocks are; read its blocks from replicas on "
                     "other drives, where there are any",
                     range_.index);
    mark_young_pages();
    return {};
}

void ShardRecovery::drop_map() {
    impl_.reset();
}

void ShardRecovery::mark_young_pages() {
    young_.clear();
    for (std::uint32_t u = range_.first_unit; u < range_.first_unit + range_.units; ++u) {
        FoundUnit& unit = found(u);
        const CheckpointUnit& then = loaded_.units[u - range_.first_unit];
        unit.young_from = pages_per_unit_;
        if (then.state == UnitState::kRetiring || then.state == UnitState::kRetired) unit.bad = true;
        if (is_remains(u)) continue;
        const bool reopened = unit.serial != then.serial;
        if (!reopened && then.state != UnitState::kOpen) {
            if (!unit.system) unit.end = then.next;
            continue;
        }
        if (unit.system) continue;
        unit.young_from = reopened ? 0 : then.next;
        unit.end = unit.young_from;
        young_.push_back(u);
    }
    std::ranges::sort(young_, {}, [&](std::uint32_t u) { return found(u).serial; });
}

void ShardRecovery::saw_group(std::uint32_t group) {
    const std::int64_t since = since_begin(group);
    if (since > newest_ && since <= (1 << 30)) newest_ = since;
}

/// Reads all log records since BEGIN; finds gaps in the numbers, and the newest group.
Result<void> ShardRecovery::read_log() {
    for (const std::uint32_t u : young_) {
        FoundUnit& unit = found(u);
        for (std::uint32_t i = unit.young_from; i < pages_per_unit_; ++i) {
            PageOob oob{};
            const Record record = read_record(u * pages_per_unit_ + i, oob);
            if (record == Record::kErased) continue;
            unit.end = i + 1;
            changed_ = true;
            ++report_.pages_scanned;
            if (record != Record::kGood || oob.unit_serial != unit.serial) continue;
            unit.last_good = i + 1;
            saw_group(oob.group);
        }
    }
    std::uint64_t expected = loaded_.begin + 1;
    auto part = loaded_.parts.begin();
    const auto places = journal_.places();
    for (auto it = std::ranges::lower_bound(places, expected, {}, &JournalPlace::number);
         it != places.end();) {
        const std::uint64_t number = it->number;
        const auto twins = journal_.find(number);
        it += static_cast<std::ptrdiff_t>(twins.size());
        saw_group(twins.front().group);
        if (number > expected) gaps_.push_back({expected, number - expected, twins.front().group});
        expected = number + 1;
        part = std::find_if(part, loaded_.parts.end(), [&](std::uint64_t p) { return p >= number; });
        const bool own = number == loaded_.end || (part != loaded_.parts.end() && *part == number);
        if (own) {
            // Its own parts were read before. Of a recovery's findings in them only the doubts still matter,
            // and the pages that it gave up: they need not be kept, though their units may not be erased yet.
            if (twins.front().type == JournalPage::kCheckpointRecords) note_own_records(twins.front());
            const JournalHeader* end = number == loaded_.end ? journal_.read(twins.front()) : nullptr;
            if (end != nullptr) note_counts(*end, twins.front().page, false);
            continue;
        }
        changed_ = true;
        const JournalHeader* header = nullptr;
        const JournalPlace* read = nullptr;
        for (const JournalPlace& twin : twins) {
            if (header == nullptr && (header = journal_.read(twin)) != nullptr) read = &twin;
        }
        if (header != nullptr) {
            read_log_page(*read, *header);
        } else if (twins.front().type == JournalPage::kLog) {
            gaps_.push_back({number, 1, twins.front().group, true});
        } else if (twins.front().type == JournalPage::kCheckpointEnd) {
            ++damaged_ends_;
            if (!others_.empty()) others_.back().end_there = true;
        } else {
            ++damaged_last_parts_;
        }
    }
    if (!gaps_.empty()) changed_ = true;
    report_.units_young += static_cast<std::uint64_t>(
        std::ranges::count_if(young_, [&](std::uint32_t u) { return found(u).end > found(u).young_from; }));
    for (const Stamp& stamp : stamps_)
        if (is_old(stamp.group)) last_old_stamp_ = stamp;
    return judge_gaps();
}

void ShardRecovery::read_log_page(const JournalPlace& place, const JournalHeader& header) {
    stamps_.push_back({place.group, header.open_user, header.open_collector, header.next_serial});
    for (OtherCheckpoint& other : others_) other.completed = other.completed || header.completed == other.id;
    highest_id_ = std::max(highest_id_, header.checkpoint);
    const bool records = header.type == JournalPage::kLog || header.type == JournalPage::kCheckpointRecords;
    if (header.type != JournalPage::kLog) note_part(header);
    bool stamp = false;
    for (std::uint32_t i = 0; records && i < header.count && i < kRecordsPerPage; ++i) {
        const auto record = journal_.entry<LogRecord>(i);
        log_.push_back({record, header.checkpoint});
        note_log_record(record);
        stamp = stamp || record.type == LogType::kStamp;
    }
    note_counts(header, place.page, stamp);
}

void ShardRecovery::note_own_records(const JournalPlace& place) {
    const JournalHeader* header = journal_.read(place);
    for (std::uint32_t i = 0; header != nullptr && i < header->count && i < kRecordsPerPage; ++i) {
        const auto record = journal_.entry<LogRecord>(i);
        if (record.type == LogType::kGap) known_gaps_.push_back({record.sequence, record.blocks, 0});
        if (record.type == LogType::kDoubt || record.type == LogType::kLostRecords) note_doubt(record);
    }
}

bool ShardRecovery::is_known_gap(std::uint64_t first, std::uint64_t count) const {
    return std::ranges::any_of(known_gaps_, [&](const Gap& known) {
        return known.first <= first && first + count <= known.first + known.count;
    });
}

/// Notes what must be known before pages are judged.
void ShardRecovery::note_log_record(const LogRecord& record) {
    const bool ours = record.first >= range_.first_unit && record.first < range_.first_unit + range_.units;
    if (record.type == LogType::kUnitBad && ours) {
        FoundUnit& unit = found(record.first);
        if (!unit.bad) ++report_.units_bad;
        unit.bad = true;
        if (unit.serial == record.sequence) unit.failed_from = std::min(unit.failed_from, record.blocks);
    }
    if (record.type == LogType::kClosed && ours) {
        closed_.insert(record.sequence);
        if (found(record.first).serial == record.sequence) found(record.first).full_at = record.blocks;
    }
    if (record.type == LogType::kGap) known_gaps_.push_back({record.sequence, record.blocks, 0});
    if (record.type != LogType::kTorn || !in_range(record.first)) return;
    const std::uint64_t end = std::min<std::uint64_t>(std::uint64_t{record.first} + record.blocks,
                                                      std::uint64_t{first_page_} + torn_.size());
    for (PageNumber page = record.first; page < end; ++page)
        if (found(unit_of(page)).serial == record.sequence) mark_torn(page);
}

void ShardRecovery::note_part(const JournalHeader& header) {
    const auto known = std::ranges::find(others_, header.checkpoint, &OtherCheckpoint::id);
    const std::uint64_t low = others_.empty() ? loaded_.begin + 1 : others_.back().high + 1;
    OtherCheckpoint& other =
        known != others_.end() ? *known : (others_.push_back({header.checkpoint}), others_.back());
    if (known == others_.end())
        other.low = header.type == JournalPage::kCheckpointBegin ? header.number : low;
    other.parts = std::max(other.parts, header.part + 1);
    other.high = header.number;
    ++other.there;
    // Damaged parts before this one are of the same checkpoint, and this part's number shows that they were
    // written. Of those behind the last part that can be read nothing is known, so they do not count as
    // missing.
    if (header.type != JournalPage::kCheckpointBegin)
        other.there += static_cast<std::uint32_t>(damaged_last_parts_);
    damaged_last_parts_ = 0;
    if (header.type == JournalPage::kCheckpointEnd) other.end_there = true;
}

/// How many pages of the gap may be missing parts of later checkpoints: a missing part accounts for one page
/// between the checkpoint's present parts, and its END for one page behind them.
std::uint64_t ShardRecovery::take_missing_parts(const Gap& gap) {
    std::uint64_t taken = 0;
    const std::uint64_t end = gap.first + gap.count;
    for (OtherCheckpoint& other : others_) {
        const std::uint64_t from = std::max(gap.first, other.low);
        const std::uint64_t to = std::min(end, other.high);
        const std::uint64_t parts = std::min({from < to ? to - from : 0, other.missing, gap.count - taken});
        other.missing -= parts;
        taken += parts;
        if (!other.completed || other.end_there || end <= other.high || taken == gap.count) continue;
        other.end_there = true;
        ++taken;
    }
    return taken;
}

/// Whether the gap is behind everything that is needed: parts of an incomplete checkpoint, which an
/// interrupted recovery may have half erased. A damaged part may have any number, so it accounts for all
/// parts before it.
bool ShardRecovery::is_in_cut_checkpoint(const Gap& gap) const {
    if (damaged_last_parts_ == 0 && damaged_ends_ == 0) return false;
    const std::uint64_t last_end = ends_.empty() ? 0 : ends_.front().number;
    return std::ranges::none_of(journal_.places(), [&](const JournalPlace& place) {
        return place.number > gap.first && (place.type == JournalPage::kLog || place.number <= last_end);
    });
}

/// A gap that a cut made needs no other explanation; parts of checkpoints that are missing there do not
/// account for other gaps. A log page is never a part.
Result<void> ShardRecovery::judge_gaps() {
    for (OtherCheckpoint& other : others_) other.missing = other.parts - std::min(other.there, other.parts);
    std::vector<Gap> doubtful;
    for (const Gap& gap : gaps_) {
        // Records follow contents: a kill loses no contents of a log page that has its record.
        const bool rotted = only_killed_ && gap.log && gap.first < journal_.last_number();
        if (!is_whole(gap.next_group) && !rotted) {
            find(fmt::format(
                "journal pages {} .. {} of the last two groups are missing and are treated as never written",
                gap.first, gap.first + gap.count - 1));
        } else if (!is_known_gap(gap.first, gap.count) && (gap.log || !is_in_cut_checkpoint(gap))) {
            doubtful.push_back(gap);
            continue;
        }
        if (!gap.log) (void)take_missing_parts(gap);
    }
    std::uint64_t lost = 0;
    std::uint64_t first_lost = 0;
    for (const Gap& gap : doubtful) {
        const std::uint64_t here = gap.log ? gap.count : gap.count - take_missing_parts(gap);
        if (lost == 0) first_lost = gap.first;
        lost += here;
    }
    if (lost == 0) return {};
    find(fmt::format("{} journal pages that were durable cannot be read; the first of them is number {}",
                     lost, first_lost));
    if (options_.accept_loss) return {};
    return error(Errc::kCorrupt,
                 "shard {}: page {} of its journal was durable and cannot be read: it is not known which "
                 "blocks were trimmed; read its blocks from replicas on other drives, where there are any, "
                 "or give up the trims in that page with `gnstor ssd recover STORE --accept-loss --write`",
                 range_.index, first_lost);
}

Result<void> ShardRecovery::replay_log() {
    std::set<nvme::VolumeId> purged;
    for (const LoggedRecord& logged : log_)
        if (logged.record.type == LogType::kPurge) purged.insert(logged.record.volume);
    // What a later volume with this VID wrote is young: it is applied again.
    if (!purged.empty())
        impl_->map.erase_if([&](BlockKey key, MapEntry) { return purged.contains(key_volume(key)); });
    for (const LoggedRecord& logged : log_) GN_TRY(replay(logged));
    report_.log_records += log_.size();
    return {};
}

Result<void> ShardRecovery::replay(const LoggedRecord& logged) {
    const LogRecord& r = logged.record;
    switch (r.type) {
        case LogType::kTombstone:
            if (r.blocks == 0 || std::uint64_t{r.first} + r.blocks > (1ull << 32))
                return error(Errc::kCorrupt, "shard {}: the log holds a trim of blocks outside of any volume",
                             range_.index);
            if (!lives_.lives(r.volume, r.epoch, r.first)) {
                ++report_.pages_outdated;
                find(
                    fmt::format("a trim of {} blocks from block {} on is dropped: volume {} of epoch {} does "
                                "not exist any more",
                                r.blocks, r.first, r.volume, r.epoch));
                return {};
            }
            replay_tombstone({make_key(r.volume, r.first), r.blocks, r.epoch, r.sequence, logged.born});
            return {};
        case LogType::kFloor:
            if (lives_.lives(r.volume, r.epoch, 0)) impl_->floors.raise(r.volume, r.epoch, r.sequence);
            return {};
        case LogType::kPurge:
            impl_->tombstones.drop_if([&](const Tombstone& t) { return key_volume(t.first) == r.volume; });
            impl_->floors.forget(r.volume);
            return {};
        case LogType::kDoubt:
        case LogType::kLostRecords:
            note_doubt(r);
            return {};
        case LogType::kStamp:
            return {};
        case LogType::kUnitBad:
        case LogType::kClosed:
        case LogType::kTorn:
        case LogType::kGap:
            return {};  // known before pages were judged
    }
    return error(Errc::kCorrupt, "shard {}: the log holds a record of unknown type {}", range_.index,
                 static_cast<unsigned>(r.type));
}

void ShardRecovery::replay_tombstone(const Tombstone& t) {
    impl_->tombstones.add(t);
    impl_->floors.seen(key_volume(t.first), t.epoch, t.sequence);
    const WriteOrder order = WriteOrder::of_tombstone(t.epoch, t.sequence);
    const BlockKey end = t.first + t.blocks;
    if (t.blocks < impl_->map.slots()) {
        for (BlockKey key = t.first; key < end; ++key)
            if (const auto entry = impl_->map.find(key)) bury(key, entry->page, order);
        return;
    }
    std::vector<std::pair<BlockKey, PageNumber>> under;
    impl_->map.for_each([&](BlockKey key, MapEntry entry) {
        if (key >= t.first && key < end) under.emplace_back(key, entry.page);
    });
    for (const auto& [key, page] : under) bury(key, page, order);
}

/// A tombstone covers a key that the checkpoint maps. It was logged after BEGIN, and only over blocks whose
/// stored version was older then: so it is newer than every page from before BEGIN, and the page's record
/// need not be read (it may be gone, if its unit was erased since). A young page may be newer than the
/// tombstone.
void ShardRecovery::bury(BlockKey key, PageNumber page, const WriteOrder& order) {
    const FoundUnit& unit = found(unit_of(page));
    PageOob oob{};
    const bool young = page % pages_per_unit_ >= unit.young_from && !is_torn(page);
    const bool own = young && read_record(page, oob) == Record::kGood && make_key(oob.vid, oob.vba) == key &&
                     oob.kind != PageKind::kSystem && oob.unit_serial == unit.serial;
    if (own && order_of(page, oob) > order) {
        impl_->tombstones.remove(key);
    } else {
        impl_->map.erase(key);
    }
}

}  // namespace gnstor::deengine
