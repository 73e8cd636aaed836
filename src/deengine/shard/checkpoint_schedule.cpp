// checkpoint_schedule.cpp: the bodies of checkpoint_schedule.hpp.
#include "deengine/shard/checkpoint_schedule.hpp"

namespace gnstor::deengine {
namespace {

constexpr std::uint32_t kPagesPerCheckpointPage = 4;   ///< pages programmed since the last slice
constexpr std::uint32_t kMaxGroupDistance = 1u << 30;  ///< group numbers are compared modulo 2^32

}  // namespace

void CheckpointSchedule::note_begin() {
    sealed_at_begin_ = state_.pool.units_sealed();
    group_at_begin_ = state_.groups.current();
    log_.note_checkpoint();
}

bool CheckpointSchedule::is_due() const {
    if (asked_) return true;
    const std::uint64_t sealed = state_.pool.units_sealed() - sealed_at_begin_;
    return sealed >= state_.room.units_between_checkpoints ||
           log_.pages_since_checkpoint() >= state_.room.log_pages_between_checkpoints ||
           pruner_.wants_checkpoint() || state_.groups.current() - group_at_begin_ > kMaxGroupDistance ||
           log_.starves_collector();
}

/// One page more than its own, for records that wait to be logged.
bool CheckpointSchedule::reserve() {
    no_room_below_ = !state_.pool.reserve(state_.checkpoint.pages_needed() + 1);
    return !no_room_below_;
}

/// After a refusal the medium below is asked again a second later.
bool CheckpointSchedule::has_room() {
    if (no_room_below_ && state_.now_ns < room_asked_ns_ + ShardState::kRoomNs) return false;
    room_asked_ns_ = state_.now_ns;
    return reserve();
}

bool CheckpointSchedule::begin() {
    const std::uint64_t needed = state_.checkpoint.pages_needed();
    if (log_.pages_left() < needed) (void)collector_.make_room(Stream::kUser);
    if (log_.pages_left() < needed || !has_room() || !state_.checkpoint.start()) return false;
    asked_ = false;
    note_begin();
    programmed_at_slice_ = state_.counters.pages_programmed;
    return true;
}

void CheckpointSchedule::step(std::uint32_t pages) {
    const std::uint64_t first_page = state_.journal.next_number();
    (void)state_.checkpoint.step(pages, state_.groups.clock());
    log_.note_pages(first_page);
}

/// The last free unit is left to the log.
void CheckpointSchedule::advance() {
    if (!state_.checkpoint.active() && (!is_due() || !begin())) return;
    UnitPool& pool = state_.pool;
    if (pool.free_units() < 2 && !collector_.make_room(Stream::kUser) && !pool.has_page(Stream::kSystem))
        return;
    const std::uint64_t before = state_.checkpoint.completed();
    const std::uint64_t since = state_.counters.pages_programmed - programmed_at_slice_;
    step(state_.options.checkpoint_pages_per_poll +
         static_cast<std::uint32_t>(since / kPagesPerCheckpointPage));
    programmed_at_slice_ = state_.counters.pages_programmed;
    if (state_.checkpoint.completed() == before) return;
    ++state_.counters.checkpoints;
    pruner_.note_checkpoint();
}

Result<void> CheckpointSchedule::write_last() {
    CheckpointWriter& checkpoint = state_.checkpoint;
    const std::uint64_t begun = checkpoint.begun_last();
    // Bounded: each step programs pages, or waits for a sync.
    const std::uint64_t steps = 4 * (state_.room.checkpoint_pages + 64);
    for (std::uint64_t i = 0; i < steps && !durability_.broken(); ++i) {
        if (!checkpoint.active() && checkpoint.completed() > begun) return {};
        if (!checkpoint.active() && !checkpoint.start()) break;
        if (state_.pool.free_units() < 2) (void)collector_.make_room(Stream::kUser);
        step(state_.options.checkpoint_pages_per_poll);
        if (checkpoint.wants_sync() && !durability_.sync_now()) break;
    }
    return error(Errc::kIo,
                 "a drive was closed without a checkpoint: its flash has no room for a checkpoint or cannot "
                 "sync; what was acknowledged is recovered from the log at the next opening");
}

}  // namespace gnstor::deengine
