// durability.cpp: when a sync begins, what belongs into its group, and what its end releases.
#include "deengine/shard/durability.hpp"

namespace gnstor::deengine {
namespace {

using nvme::Status;

/// Programmed pages reach stable media after at most this time, even if no command waits: recovery may take
/// the last two groups for torn, so they should be young.
constexpr std::uint64_t kGroupNsMax = 1'000'000'000;

}  // namespace

/// What the answer reports may be older than the current group: waiting for pending work is enough.
void Durability::answer_when(Wait wait, std::uint64_t tag) {
    if (broken_ && wait != Wait::kNone) return answer(tag, Status::kWriteFault);
    if (wait == Wait::kMode && !state_.options.volatile_cache) wait = Wait::kPower;
    if (wait == Wait::kPower) {
        if (is_dirty()) return answers_.wait_for_group(tag, state_.groups.current());
        if (syncing_ && sync_level_ == SyncLevel::kPower) return answers_.wait_for_group(tag, sync_group_);
    } else if (wait == Wait::kMode) {
        if (state_.journal.dirty() || state_.groups.killable()) return answers_.wait_for_next_sync(tag);
        if (syncing_ && !state_.flash.survives_kill()) return answers_.wait_for_sync(tag);
    }
    answer(tag, Status::kSuccess);
}

bool Durability::needs_sync() const {
    if (syncing_) return false;
    return answers_.waits_for_group() || answers_.waits_for_next_sync() || state_.checkpoint.wants_sync() ||
           wants_units_back() || group_is_old() || wants_stamp();
}

bool Durability::group_is_old() const {
    return is_dirty() && state_.groups.is_older(kGroupNsMax, state_.now_ns);
}

/// Recovery may take pages of the last two groups for torn. So an idle shard programs one page two groups
/// behind its last durable one: the page proves that the earlier groups were durable.
bool Durability::wants_stamp() const {
    return state_.groups.unstamped() && !syncing_ && !is_dirty() && !state_.checkpoint.active() &&
           state_.groups.is_older(kGroupNsMax, state_.now_ns) && state_.pool.has_page(Stream::kSystem) &&
           !log_.is_crowded();
}

/// The group in between stays empty.
void Durability::stamp() {
    hold_.note_empty_group();
    state_.groups.skip();
    LogRecord record{};
    record.type = LogType::kStamp;
    (void)log_.append(record);
}

/// Emptied units should become free before a write has to wait for them.
bool Durability::wants_units_back() const {
    const UnitPool& pool = state_.pool;
    return pool.emptied_units() != 0 &&
           pool.free_units() <= pool.left_for_others(Stream::kUser) + state_.room.margin;
}

void Durability::end_group() {
    if (!state_.groups.programmed()) hold_.note_empty_group();
    sync_group_ = state_.groups.end(state_.now_ns);
}

void Durability::note_damaged_copy(const PageOob& damaged) {
    if (state_.options.mutation == Mutation::kDamagedCopyNotHeld) [[unlikely]]
        return;
    hold_.begin(state_.groups.current(), damaged);
}

/// Gives a group that would end empty a page, so that units held back become free. Without a page for it they
/// never could: then the hold is dropped.
void Durability::log_for_held_units() {
    if (!hold_.active() || is_dirty()) return;
    if (!state_.pool.has_page(Stream::kSystem) || !log_.append(hold_.filler())) hold_.drop();
}

void Durability::begin_sync() {
    const bool stamps = wants_stamp();
    if (stamps) stamp();
    if (answers_.waits_for_group() || wants_units_back()) log_for_held_units();
    // No page for the journal: waiting answers fail, because nothing can become durable now and none may wait
    // for ever.
    if (!log_.flush()) return answers_.release_later(Status::kCapacityExceeded);
    const bool power = answers_.waits_for_group() || state_.checkpoint.wants_sync() || wants_units_back() ||
                       group_is_old() || stamps;
    if (!power && !state_.groups.killable()) return answers_.release_next_sync(Status::kSuccess);
    sync_level_ = power ? SyncLevel::kPower : SyncLevel::kKill;
    if (power && !answers_.waits_for_group() && group_is_old()) ++state_.counters.groups_aged;
    if (power) end_group();
    if (stamps) state_.groups.note_stamp();
    state_.groups.note_kill_sync();
    answers_.note_sync();
    syncing_ = true;
    ++state_.counters.syncs;
    if (state_.flash.sync_begin(sync_level_) != FlashStatus::kOk) end_sync(false);
}

void Durability::finish_sync() {
    if (!syncing_) return;
    const SyncState sync = state_.flash.sync_poll();
    if (sync != SyncState::kBusy) end_sync(sync == SyncState::kDone);
}

void Durability::end_sync(bool good) {
    syncing_ = false;
    if (!good) {
        broken_ = true;
        answers_.release_later(Status::kWriteFault);
        return answers_.release_sync(Status::kWriteFault);
    }
    answers_.release_sync(Status::kSuccess);
    if (sync_level_ != SyncLevel::kPower) return;
    state_.groups.note_durable(sync_group_);
    state_.pool.durable(hold_.erasable(sync_group_));
    answers_.release_group(sync_group_);
}

bool Durability::sync_now() {
    while (syncing_) finish_sync();  // the flash's own deadline ends it
    if (broken_) return false;
    log_for_held_units();
    if (!log_.flush()) return false;
    state_.groups.note_kill_sync();
    answers_.note_sync();
    ++state_.counters.syncs;
    sync_flash_now();
    return !broken_;
}

void Durability::sync_flash_now() {
    sync_level_ = SyncLevel::kPower;
    end_group();
    end_sync(state_.flash.sync(SyncLevel::kPower) == FlashStatus::kOk);
}

void Durability::settle() {
    const bool waits = syncing_ || answers_.waits_for_group() || answers_.waits_for_next_sync();
    if (waits && !sync_now())
        answers_.release_later(broken_ ? Status::kWriteFault : Status::kCapacityExceeded);
    (void)give_answers();
}

}  // namespace gnstor::deengine
