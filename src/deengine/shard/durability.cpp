// durability.cpp: groups of programs, the syncs that make them durable, and the answers that wait for that.
// Invariants: shard_impl.hpp.
//
// A group is all that is programmed between two syncs to stable media.
// In power mode every change waits for its group. In process mode a change waits only until a kill cannot
// lose it: for the journal's open page and, where the flash loses data in a kill, for a sync of that level;
// FLUSH and FUA wait for the group. Only syncs to stable media raise the group number.
#include "deengine/shard/shard_impl.hpp"

#include <algorithm>

namespace gnstor::deengine {
namespace {

using nvme::Status;

/// Programmed pages reach stable media after at most this time, even if no command waits: recovery may take
/// the last two groups for torn, so they should be young.
constexpr std::uint64_t kGroupNsMax = 1'000'000'000;
constexpr std::uint64_t kPagesBesideCheckpoints = 8;  ///< for records of a sync, a floor or a bad unit
constexpr int kFlushAttempts = 8;                     ///< system units that may fail under one flush

}  // namespace

/// What the answer reports may be older than the current group: waiting for pending work is enough.
void Shard::Impl::answer_when(Wait wait, std::uint64_t tag) {
    if (broken && wait != Wait::kNone) return answer(tag, Status::kWriteFault);
    if (wait == Wait::kMode && !options.volatile_cache) wait = Wait::kPower;
    if (wait == Wait::kPower) {
        if (is_dirty()) return wait_power.push_back({tag, groups.current});
        if (syncing && sync_level == SyncLevel::kPower) return wait_power.push_back({tag, sync_group});
    } else if (wait == Wait::kMode) {
        if (journal.dirty() || killable) return wait_kill.push_back({tag, groups.current});
        if (syncing && !flash.survives_kill()) return syncing_kill.push_back({tag, groups.current});
    }
    answer(tag, Status::kSuccess);
}

void Shard::Impl::note_programmed() {
    if (!programmed_in_group) group_began_ns = clock_ns;
    programmed_in_group = true;
    unstamped = true;
    killable = killable || !flash.survives_kill();
}

void Shard::Impl::note_journal_pages(std::uint64_t first_page) {
    const std::uint64_t pages = journal.next_number() - first_page;
    if (pages == 0) return;
    counters.system_pages += pages;
    counters.pages_programmed += pages;
    note_programmed();
}

bool Shard::Impl::log(const LogRecord& record) {
    const std::uint64_t first_page = journal.next_number();
    const bool appended = journal.append(record, groups.current);
    note_journal_pages(first_page);
    return appended;
}

std::uint64_t Shard::Impl::journal_pages_left() const {
    const std::uint32_t open = pool.open_unit(Stream::kSystem);
    const std::uint32_t rest = open == kNoUnit ? 0 : pages_per_unit - pool.info(open).next;
    return std::uint64_t{pool.free_units()} * pages_per_unit + rest;
}

bool Shard::Impl::journal_takes(std::uint32_t records) {
    const std::uint64_t pages = (journal.records_waiting() + records) / kRecordsPerPage + 1;
    return journal_pages_left() >= pages && pool.reserve(pages);
}

/// Pages must be left for two checkpoints, because the first keeps the log since the one before it. If the
/// log is so long that a checkpoint is due, more: it may grow by as much again beside each of the two.
bool Shard::Impl::log_is_crowded() const {
    if (journal_pages_left() < 2 * checkpoint.pages_needed() + kPagesBesideCheckpoints) return true;
    const std::uint64_t due = room.log_pages_between_checkpoints;
    if (journal.log_pages() - log_pages_at_begin < due) return false;
    const std::uint64_t beside = (2 * due + pages_per_unit - 1) / pages_per_unit + 1;
    return pool.free_units() < pool.left_for_others(Stream::kCollector) + beside;
}

/// Records a failed unit at once, so that no later process tries it again, and the page of the failed program
/// never looks like one that rotted.
void Shard::Impl::record_bad_units() {
    if (pool.has_newly_bad() || !bad_to_log.empty()) (void)flush_journal();
}

void Shard::Impl::log_bad_units() {
    for (const std::uint32_t unit : pool.take_newly_bad()) bad_to_log.push_back(unit);
    while (!bad_to_log.empty()) {
        const UnitInfo& info = pool.info(bad_to_log.back());
        LogRecord record{};
        record.type = LogType::kUnitBad;
        record.first = bad_to_log.back();
        record.blocks = info.next;
        record.sequence = info.serial;
        if (!log(record)) return;
        bad_to_log.pop_back();
    }
}

LogRecord Shard::Impl::purge_record(nvme::VolumeId volume) {
    LogRecord record{};
    record.type = LogType::kPurge;
    record.volume = volume;
    return record;
}

void Shard::Impl::log_purges() {
    while (!purges_to_log.empty() && journal_takes(1) && log(purge_record(*purges_to_log.begin())))
        purges_to_log.erase(purges_to_log.begin());
}

bool Shard::Impl::flush_journal() {
    const std::uint64_t first_page = journal.next_number();
    for (int attempt = 0; attempt < kFlushAttempts; ++attempt) {
        log_bad_units();
        log_purges();
        if (!journal.flush(groups.current)) break;
        // A unit that failed during the flush needs a record, too.
        for (const std::uint32_t unit : pool.take_newly_bad()) bad_to_log.push_back(unit);
        if (bad_to_log.empty()) break;
    }
    note_journal_pages(first_page);
    return !journal.dirty() && bad_to_log.empty();
}

/// After a kill, a unit that was closed before it was full must not look as if its last pages were lost: the
/// journal records that before it names another open unit. If the journal cannot, the unit stays open.
bool Shard::Impl::exchange_open_unit(Stream stream) {
    const std::uint32_t unit = pool.open_unit(stream);
    if (unit != kNoUnit && pool.info(unit).next != 0) {
        LogRecord record{};
        record.type = LogType::kClosed;
        record.first = unit;
        record.blocks = pool.info(unit).next;
        record.sequence = pool.info(unit).serial;
        if (!journal_takes(1)) return false;
        if (log(record)) (void)flush_journal();
    }
    return pool.exchange_open_unit(stream);
}

bool Shard::Impl::needs_sync() const {
    if (syncing) return false;
    return !wait_power.empty() || !wait_kill.empty() || checkpoint.wants_sync() || wants_units_back() ||
           group_is_old() || wants_stamp();
}

bool Shard::Impl::group_is_old() const {
    return is_dirty() && clock_ns > group_began_ns + kGroupNsMax;
}

/// Recovery may take pages of the last two groups for torn. So an idle shard programs one page two groups
/// behind its last durable one: the page proves that the earlier groups were durable.
bool Shard::Impl::wants_stamp() const {
    return unstamped && !syncing && !is_dirty() && !checkpoint.active() &&
           clock_ns > group_began_ns + kGroupNsMax && pool.has_page(Stream::kSystem) && !log_is_crowded();
}

/// The group in between stays empty, and empty groups do not count for units held back.
void Shard::Impl::stamp() {
    if (held) ++held->until;
    ++groups.current;
    LogRecord record{};
    record.type = LogType::kStamp;
    (void)log(record);
}

/// Emptied units should become free before a write has to wait for them.
bool Shard::Impl::wants_units_back() const {
    return pool.emptied_units() != 0 &&
           pool.free_units() <= pool.left_for_others(Stream::kUser) + room.margin;
}

/// An empty group does not count for units held back.
void Shard::Impl::end_group() {
    if (held && !programmed_in_group) ++held->until;
    sync_group = groups.current++;
    programmed_in_group = false;
    group_began_ns = clock_ns;
}

/// Call after copying a damaged page in this group.
void Shard::Impl::hold_units_back(const PageOob& damaged) {
    if (options.mutation == Mutation::kDamagedCopyNotHeld) [[unlikely]]
        return;
    const std::uint32_t from = held ? held->from : groups.current;
    held = HeldUnits{from, groups.current + 2, damaged.vid, damaged.epoch};
}

/// Gives a group that would end empty a page, a floor record that changes nothing, so that units held back
/// become free. Without a page for it they never could: then the hold is dropped.
void Shard::Impl::log_for_held_units() {
    if (!held || is_dirty()) return;
    LogRecord record{};
    record.type = LogType::kFloor;
    record.volume = held->volume;
    record.epoch = held->epoch;
    if (!pool.has_page(Stream::kSystem) || !log(record)) held.reset();
}

void Shard::Impl::free_emptied_units() {
    if (held && static_cast<std::int32_t>(sync_group - held->until) < 0) return pool.durable(held->from - 1);
    held.reset();
    pool.durable(sync_group);
}

void Shard::Impl::begin_sync() {
    const bool stamps = wants_stamp();
    if (stamps) stamp();
    if (!wait_power.empty() || wants_units_back()) log_for_held_units();
    if (!flush_journal()) {
        // No page for the journal: waiting answers fail, because nothing can become durable now and none may
        // wait for ever.
        make_ready(wait_power, Status::kCapacityExceeded);
        make_ready(wait_kill, Status::kCapacityExceeded);
        return;
    }
    const bool power =
        !wait_power.empty() || checkpoint.wants_sync() || wants_units_back() || group_is_old() || stamps;
    if (!power && !killable) return make_ready(wait_kill, Status::kSuccess);
    sync_level = power ? SyncLevel::kPower : SyncLevel::kKill;
    if (power && wait_power.empty() && group_is_old()) ++counters.groups_aged;
    if (power) end_group();
    if (stamps) unstamped = false;
    killable = false;
    syncing_kill.swap(wait_kill);
    syncing = true;
    ++counters.syncs;
    if (flash.sync_begin(sync_level) != FlashStatus::kOk) end_sync(false);
}

void Shard::Impl::finish_sync() {
    if (!syncing) return;
    const SyncState state = flash.sync_poll();
    if (state != SyncState::kBusy) end_sync(state == SyncState::kDone);
}

void Shard::Impl::end_sync(bool good) {
    syncing = false;
    if (!good) {
        broken = true;
        make_ready(wait_power, Status::kWriteFault);
        make_ready(wait_kill, Status::kWriteFault);
        return make_ready(syncing_kill, Status::kWriteFault);
    }
    make_ready(syncing_kill, Status::kSuccess);
    if (sync_level != SyncLevel::kPower) return;
    groups.durable = sync_group;
    free_emptied_units();
    make_ready_up_to(sync_group);
}

void Shard::Impl::make_ready(std::vector<Waiter>& from, Status status) {
    for (const Waiter& waiter : from) ready.push_back({waiter.tag, status});
    from.clear();
}

void Shard::Impl::make_ready_up_to(std::uint32_t group) {
    const auto end = std::ranges::find_if(wait_power, [&](const Waiter& waiter) {
        return static_cast<std::int32_t>(waiter.group - group) > 0;
    });
    for (auto it = wait_power.begin(); it != end; ++it) ready.push_back({it->tag, Status::kSuccess});
    wait_power.erase(wait_power.begin(), end);
}

/// The sink may submit commands, which may add to `ready`: these are given next time.
std::uint32_t Shard::Impl::give_answers() {
    if (ready.empty()) return 0;
    std::vector<Ready> giving;
    giving.swap(ready);
    for (const Ready& each : giving) answer(each.tag, each.status);
    const auto count = static_cast<std::uint32_t>(giving.size());
    if (ready.empty()) {
        giving.clear();
        ready.swap(giving);  // keeps its memory
    }
    return count;
}

bool Shard::Impl::sync_now() {
    while (syncing) finish_sync();  // the flash's own deadline ends it
    if (broken) return false;
    log_for_held_units();
    if (!flush_journal()) return false;
    sync_level = SyncLevel::kPower;
    end_group();
    killable = false;
    syncing_kill.swap(wait_kill);
    ++counters.syncs;
    end_sync(flash.sync(SyncLevel::kPower) == FlashStatus::kOk);
    return !broken;
}

void Shard::Impl::settle() {
    const auto waits = [&] { return syncing || !wait_power.empty() || !wait_kill.empty(); };
    if (waits() && !sync_now()) {
        const Status status = broken ? Status::kWriteFault : Status::kCapacityExceeded;
        make_ready(wait_power, status);
        make_ready(wait_kill, status);
    }
    (void)give_answers();
}

}  // namespace gnstor::deengine
