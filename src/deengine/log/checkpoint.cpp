// checkpoint.cpp: the writer: one page a step; keeps its position between steps; gives up where flash has no
// page.
#include "deengine/log/checkpoint.hpp"

#include <gnstor/base/crc32c.hpp>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace gnstor::deengine {
namespace {

constexpr std::uint32_t kMovedPerPart = kJournalPayload / sizeof(CheckpointMoved);
constexpr std::uint32_t kUnitsPerPart = kJournalPayload / sizeof(CheckpointUnit);

std::uint32_t parts_for(std::uint64_t entries, std::uint32_t per_part) {
    return static_cast<std::uint32_t>((entries + per_part - 1) / per_part);
}

LogRecord doubt_record(BlockKey key, const WriteOrder& order) {
    LogRecord record{};
    record.type = LogType::kDoubt;
    record.volume = key_volume(key);
    record.first = key_block(key);
    record.blocks = order.crc;
    record.epoch = order.epoch;
    record.sequence = order.sequence;
    return record;
}

}  // namespace

std::uint32_t log_pages_due(std::uint32_t units, std::uint32_t pages_per_unit) {
    // A small drive has no room for a long log.
    const std::uint64_t pages = std::uint64_t{units} * pages_per_unit;
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(pages / 64, 4, 64 + units / 8));
}

std::uint32_t journal_share(std::uint32_t units, std::uint32_t pages_per_unit, std::uint32_t buckets) {
    // Begin, end, a page each of tombstones, floors, moved entries and records, beside the tables.
    const std::uint32_t checkpoint =
        6 + parts_for(units, kUnitsPerPart) + parts_for(buckets, kBucketsPerPart);
    const std::uint32_t pages = 3 * checkpoint + 2 * log_pages_due(units, pages_per_unit);
    return parts_for(pages, pages_per_unit) + 1;
}

CheckpointWriter::CheckpointWriter(Journal& journal, UnitPool& pool, BlockMap& map,
                                   const Tombstones& tombstones, const std::vector<VolumeFloor>& floors,
                                   const Doubts& doubts)
    : journal_(journal),
      pool_(pool),
      map_(map),
      tombstones_(tombstones),
      floors_(floors),
      doubts_(doubts),
      payload_(kJournalPayload) {
    moved_.reserve(std::size_t{kMovedPerPart} * 2);
}

CheckpointWriter::~CheckpointWriter() {
    map_.set_move_listener(nullptr);
}

void CheckpointWriter::restore(std::uint64_t newest, std::uint64_t newest_begin, std::uint64_t spare,
                               std::uint64_t spare_begin) {
    newest_ = {newest, newest_begin, {}};
    spare_ = {spare, spare_begin, {}};
    journal_.set_completed(newest);
    restore_begun(newest);
}

void CheckpointWriter::restore_floors(std::vector<VolumeFloor> newest, std::vector<VolumeFloor> spare) {
    newest_.floors = std::move(newest);
    spare_.floors = std::move(spare);
}

void CheckpointWriter::restore_begun(std::uint64_t highest_id) {
    begun_ = std::max(begun_, highest_id);
    journal_.set_checkpoint(begun_);
}

void CheckpointWriter::add_records(std::span<const LogRecord> records) {
    records_.insert(records_.end(), records.begin(), records.end());
}

std::uint64_t CheckpointWriter::pages_needed() const {
    constexpr auto parts = [](std::uint64_t entries, std::size_t bytes) {
        return parts_for(entries, static_cast<std::uint32_t>(kJournalPayload / bytes));
    };
    return 2 + parts(pool_.units(), sizeof(CheckpointUnit)) + parts_for(map_.buckets(), buckets_per_part_) +
           parts(tombstones_.size(), sizeof(CheckpointTombstone)) +
           parts(floors_.size(), sizeof(CheckpointFloor)) +
           parts(records_.size() + doubts_.records(), sizeof(LogRecord));
}

bool CheckpointWriter::start() {
    if (active()) return false;
    failed_ = false;
    parts_ = 0;
    crc_ = 0;
    enter(Phase::kBegin);
    return true;
}

std::uint32_t CheckpointWriter::step(std::uint32_t pages, const GroupClock& groups) {
    std::uint32_t done = 0;
    while (done < pages && active()) {
        if (phase_ == Phase::kDurable && !groups.is_durable(wait_group_) && !end_before_durable_) break;
        if (phase_ == Phase::kEnded) {
            if (groups.is_durable(wait_group_)) complete(groups.current);
            break;
        }
        const std::uint32_t parts_before = parts_;
        if (!step_page(groups.current)) {
            give_up();
            break;
        }
        done += parts_ - parts_before;
    }
    return done;
}

/// Writes at most a page, or enters the next phase.
bool CheckpointWriter::step_page(std::uint32_t group) {
    const auto as_is = [](const auto& entry) { return entry; };
    switch (phase_) {
        case Phase::kBegin:
            return write_begin(group);
        case Phase::kUnits:
            return write_list<CheckpointUnit>(JournalPage::kCheckpointUnits, units_, as_is, Phase::kMap,
                                              group);
        case Phase::kMap:
            return write_map(group);
        case Phase::kTombstones:
            return write_list<CheckpointTombstone>(
                JournalPage::kCheckpointTombstones, tombstones_then_,
                [](const Tombstone& t) {
                    return CheckpointTombstone{t.first, t.blocks, t.epoch, t.sequence, t.born};
                },
                Phase::kFloors, group);
        case Phase::kFloors:
            return write_list<CheckpointFloor>(
                JournalPage::kCheckpointFloors, writing_.floors,
                [](const VolumeFloor& f) {
                    return CheckpointFloor{f.volume, 0, f.epoch, f.floor, f.highest};
                },
                Phase::kRecords, group);
        case Phase::kRecords:
            return write_list<LogRecord>(JournalPage::kCheckpointRecords, records_then_, as_is,
                                         Phase::kDurable, group);
        case Phase::kDurable:
            return write_end(group);
        case Phase::kIdle:
        case Phase::kEnded:
            break;
    }
    return true;
}

void CheckpointWriter::enter(Phase phase) {
    phase_ = phase;
    at_ = 0;
    if (phase == Phase::kTombstones) {
        map_.set_move_listener(nullptr);
        tombstones_then_.clear();
        tombstones_.for_each([&](const Tombstone& t) { tombstones_then_.push_back(t); });
        writing_.floors = floors_;
        records_then_ = records_;
        doubts_.for_each([&](BlockKey key, const WriteOrder& order) {
            records_then_.push_back(doubt_record(key, order));
        });
        for (const auto& [volume, epoch] : doubts_.lost()) {
            LogRecord record{};
            record.type = LogType::kLostRecords;
            record.volume = volume;
            record.epoch = epoch;
            records_then_.push_back(record);
        }
    }
}

bool CheckpointWriter::write(JournalPage type, std::uint32_t count, std::uint64_t first, std::size_t bytes,
                             std::uint32_t group) {
    JournalHeader header{};
    header.type = type;
    header.checkpoint = writing_.id;
    header.part = parts_;
    header.count = count;
    header.first = first;
    std::uint32_t oob_crc = 0;
    if (!journal_.write(header, std::span(payload_).first(bytes), group, &oob_crc)) return false;
    crc_ = crc32c(&oob_crc, sizeof(oob_crc), crc_);
    ++parts_;
    wait_group_ = group;
    return true;
}

template <class Entry, class Source, class Convert>
bool CheckpointWriter::write_list(JournalPage type, const std::vector<Source>& list, Convert&& convert,
                                  Phase next, std::uint32_t group) {
    const std::size_t count = std::min(list.size() - at_, kJournalPayload / sizeof(Entry));
    for (std::size_t i = 0; i < count; ++i) {
        const Entry entry = convert(list[at_ + i]);
        std::memcpy(payload_.data() + i * sizeof(Entry), &entry, sizeof(entry));
    }
    if (count != 0 && !write(type, static_cast<std::uint32_t>(count), at_, count * sizeof(Entry), group))
        return false;
    at_ += count;
    if (at_ == list.size()) enter(next);
    return true;
}

bool CheckpointWriter::write_begin(std::uint32_t group) {
    // Log records made so far belong before BEGIN. (write() would flush them too, but the unit table must
    // include a unit that the flush opens.)
    if (!journal_.flush(group)) return false;
    writing_ = {begun_ + 1, 0, {}};
    units_.clear();
    for (std::uint32_t u = pool_.first(); u < pool_.first() + pool_.units(); ++u) {
        const UnitInfo& info = pool_.info(u);
        units_.push_back({info.serial, info.next, info.erases, info.state, info.system, 0});
    }
    const CheckpointBegin begin{pool_.first(),
                                pool_.units(),
                                pool_.pages_per_unit(),
                                map_.buckets(),
                                map_.page_bits(),
                                pool_.next_serial(),
                                group,
                                0};
    std::memcpy(payload_.data(), &begin, sizeof(begin));
    if (!write(JournalPage::kCheckpointBegin, 1, 0, sizeof(begin), group)) return false;
    writing_.begin = journal_.next_number() - 1;
    begun_ = writing_.id;
    journal_.set_checkpoint(begun_);
    moved_.clear();
    cursor_ = 0;
    map_.set_move_listener(this);
    enter(Phase::kUnits);
    return true;
}

bool CheckpointWriter::write_map(std::uint32_t group) {
    if (moved_.size() >= kMovedPerPart || (cursor_ == map_.buckets() && !moved_.empty()))
        return write_moved(group);
    if (cursor_ == map_.buckets()) {
        enter(Phase::kTombstones);
        return true;
    }
    const std::uint32_t count = std::min(buckets_per_part_, map_.buckets() - cursor_);
    map_.copy_out(cursor_, count, payload_.data());
    if (!write(JournalPage::kCheckpointMap, count, cursor_, std::size_t{count} * BlockMap::kBucketBytes,
               group))
        return false;
    cursor_ += count;
    return true;
}

bool CheckpointWriter::write_moved(std::uint32_t group) {
    const std::size_t count = std::min<std::size_t>(moved_.size(), kMovedPerPart);
    std::memcpy(payload_.data(), moved_.data(), count * sizeof(CheckpointMoved));
    if (!write(JournalPage::kCheckpointMoved, static_cast<std::uint32_t>(count), 0,
               count * sizeof(CheckpointMoved), group))
        return false;
    moved_.erase(moved_.begin(), moved_.begin() + static_cast<std::ptrdiff_t>(count));
    return true;
}

bool CheckpointWriter::write_end(std::uint32_t group) {
    const CheckpointEnd end{writing_.begin, parts_, crc_};
    std::memcpy(payload_.data(), &end, sizeof(end));
    if (!write(JournalPage::kCheckpointEnd, 1, writing_.begin, sizeof(end), group)) return false;
    enter(Phase::kEnded);
    return true;
}

void CheckpointWriter::moved(BlockKey key, MapEntry entry, std::uint32_t from, std::uint32_t to) {
    if ((from < cursor_) == (to < cursor_)) return;
    ++moves_across_;
    if (!forgets_moves_) moved_.push_back({key, entry.page, entry.tombstone ? 1u : 0u});
}

void CheckpointWriter::complete(std::uint32_t group) {
    spare_ = std::exchange(newest_, std::exchange(writing_, {}));
    journal_.set_completed(newest_.id);
    if (spare_.id != 0) journal_.release(spare_.begin, group);
    records_.clear();
    enter(Phase::kIdle);
}

void CheckpointWriter::give_up() {
    map_.set_move_listener(nullptr);
    moved_.clear();
    failed_ = true;
    enter(Phase::kIdle);
}

}  // namespace gnstor::deengine
