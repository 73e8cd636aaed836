// shard_log.cpp: records, the pages they need, and the units that they are about.
#include "deengine/shard/shard_log.hpp"

namespace gnstor::deengine {
namespace {

constexpr std::uint64_t kPagesBesideCheckpoints = 8;  ///< for records of a sync, a floor or a bad unit
constexpr int kFlushAttempts = 8;                     ///< system units that may fail under one flush

}  // namespace

bool ShardLog::append(const LogRecord& record) {
    const std::uint64_t first_page = state_.journal.next_number();
    const bool appended = state_.journal.append(record, state_.groups.current());
    note_pages(first_page);
    return appended;
}

void ShardLog::note_pages(std::uint64_t first_page) {
    const std::uint64_t pages = state_.journal.next_number() - first_page;
    if (pages == 0) return;
    state_.counters.system_pages += pages;
    state_.counters.pages_programmed += pages;
    state_.note_program();
}

bool ShardLog::flush() {
    const std::uint64_t first_page = state_.journal.next_number();
    for (int attempt = 0; attempt < kFlushAttempts; ++attempt) {
        append_bad_units();
        append_purges();
        if (!state_.journal.flush(state_.groups.current())) break;
        // A unit that failed during the flush needs a record, too.
        for (const std::uint32_t unit : state_.pool.take_newly_bad()) bad_units_.push_back(unit);
        if (bad_units_.empty()) break;
    }
    note_pages(first_page);
    return !state_.journal.dirty() && bad_units_.empty();
}

void ShardLog::append_bad_units() {
    for (const std::uint32_t unit : state_.pool.take_newly_bad()) bad_units_.push_back(unit);
    while (!bad_units_.empty()) {
        const UnitInfo& info = state_.pool.info(bad_units_.back());
        LogRecord record{};
        record.type = LogType::kUnitBad;
        record.first = bad_units_.back();
        record.blocks = info.next;
        record.sequence = info.serial;
        if (!append(record)) return;
        bad_units_.pop_back();
    }
}

LogRecord ShardLog::purge_record(nvme::VolumeId volume) {
    LogRecord record{};
    record.type = LogType::kPurge;
    record.volume = volume;
    return record;
}

void ShardLog::append_purges() {
    while (!purges_.empty() && takes(1) && append(purge_record(*purges_.begin())))
        purges_.erase(purges_.begin());
}

/// After a kill, a unit that was closed before it was full must not look as if its last pages were lost: the
/// journal records that before it names another open unit. If the journal cannot, the unit stays open.
bool ShardLog::exchange_open_unit(Stream stream) {
    const std::uint32_t unit = state_.pool.open_unit(stream);
    if (unit != kNoUnit && state_.pool.info(unit).next != 0) {
        LogRecord record{};
        record.type = LogType::kClosed;
        record.first = unit;
        record.blocks = state_.pool.info(unit).next;
        record.sequence = state_.pool.info(unit).serial;
        if (!takes(1)) return false;
        if (append(record)) (void)flush();
    }
    return state_.pool.exchange_open_unit(stream);
}

std::uint64_t ShardLog::pages_left() const {
    const UnitPool& pool = state_.pool;
    const std::uint32_t open = pool.open_unit(Stream::kSystem);
    const std::uint32_t rest = open == kNoUnit ? 0 : state_.pages_per_unit - pool.info(open).next;
    return std::uint64_t{pool.free_units()} * state_.pages_per_unit + rest;
}

bool ShardLog::takes(std::uint32_t records) {
    const std::uint64_t pages = (state_.journal.records_waiting() + records) / kRecordsPerPage + 1;
    return pages_left() >= pages && state_.pool.reserve(pages);
}

/// Pages must be left for two checkpoints, because the first keeps the log since the one before it. If the
/// log is so long that a checkpoint is due, more: it may grow by as much again beside each of the two.
bool ShardLog::is_crowded() const {
    if (pages_left() < 2 * state_.checkpoint.pages_needed() + kPagesBesideCheckpoints) return true;
    const std::uint64_t due = state_.room.log_pages_between_checkpoints;
    if (pages_since_checkpoint() < due) return false;
    const std::uint64_t beside = (2 * due + state_.pages_per_unit - 1) / state_.pages_per_unit + 1;
    return state_.pool.free_units() < state_.pool.left_for_others(Stream::kCollector) + beside;
}

/// A shard that is not polled for long may have all its free units in the journal: each sync for room
/// programs a log page if a damaged page was copied (erase_hold.hpp), and only poll() advances checkpoints.
bool ShardLog::holds_surplus() const {
    // Units of two checkpoints, wherever in a unit the first one begins.
    const std::uint64_t pages = 2 * state_.checkpoint.pages_needed() + 2 * (state_.pages_per_unit - 1);
    return state_.journal.units() > pages / state_.pages_per_unit;
}

}  // namespace gnstor::deengine
