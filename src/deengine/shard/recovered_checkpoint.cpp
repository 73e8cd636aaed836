// recovered_checkpoint.cpp: attempts at the checkpoint that ends a recovery.
#include "deengine/shard/recovered_checkpoint.hpp"

#include <utility>

namespace gnstor::deengine {
namespace {

constexpr std::uint32_t kPagesPerStep = 256;

}  // namespace

std::uint64_t RecoveredCheckpoint::units_needed() const {
    return (state_.checkpoint.pages_needed() + state_.pages_per_unit - 1) / state_.pages_per_unit;
}

Result<void> RecoveredCheckpoint::write() {
    UnitPool& pool = state_.pool;
    GN_TRY(write_one());
    pool.release_held(state_.groups.current());
    // Cuts leave the journal in many units, and on a full drive no unit for the collector to begin with. A
    // second checkpoint releases all units of the journal before the first.
    pool.durable(state_.groups.current());
    const std::uint32_t reserve = state_.room.system_reserve(state_.tombstones.size(), state_.pages_per_unit);
    const bool crowded = pool.free_units() <= reserve + UnitPool::kReserve;
    const std::uint64_t units = units_needed();
    if (!crowded || state_.journal.units() <= 2 * units || pool.free_units() <= units) return {};
    const Result<void> second = write_one();
    // The first checkpoint holds all that was recovered: it suffices.
    return schedule_.no_room_below() ? Result<void>{} : second;
}

Result<void> RecoveredCheckpoint::write_one() {
    CheckpointWriter& checkpoint = state_.checkpoint;
    UnitPool& pool = state_.pool;
    DurabilityGroups& groups = state_.groups;
    const std::uint64_t before = checkpoint.completed();
    // Units without valid pages may be freed already if the free ones do not suffice: all that replaces their
    // pages is durable. Better now than after half a checkpoint was written for nothing.
    bool made_room = pool.free_units() <= units_needed();
    if (made_room) pool.durable(groups.current());
    if (!schedule_.reserve()) {
        made_room = true;
        pool.durable(groups.current());
        if (!schedule_.reserve()) return why_not();
    }
    // A drive that cannot be mounted is worse than a cut during this checkpoint that loses a doubt.
    bool released = log_.pages_left() <= checkpoint.pages_needed();
    if (released) {
        pool.release_held(groups.current());
        pool.durable(groups.current());
    }
    while (checkpoint.completed() == before) {
        if (!checkpoint.active() && !checkpoint.start()) break;
        groups.note_durable(groups.current() - 1);
        (void)checkpoint.step(kPagesPerStep, groups.clock());
        if (checkpoint.failed()) {
            schedule_.set_no_room_below(state_.journal.medium_full());
            // A unit that failed while this checkpoint was written may have been the last free one.
            if (!schedule_.no_room_below() && !std::exchange(released, true))
                pool.release_held(groups.current());
            else if (std::exchange(made_room, true))
                return why_not();
            pool.durable(groups.current());
            continue;
        }
        if (!checkpoint.wants_sync()) continue;
        if (state_.flash.sync(SyncLevel::kPower) != FlashStatus::kOk) {
            durability_.note_broken();
            return error(Errc::kIo,
                         "shard {}: the result of the recovery cannot be made durable; check the disk under "
                         "the store for errors, and open the drive again",
                         state_.range.index);
        }
        groups.note_durable(groups.current());
        (void)checkpoint.step(1, groups.clock());
    }
    return {};
}

Error RecoveredCheckpoint::why_not() const {
    const std::uint32_t shard = state_.range.index;
    if (schedule_.no_room_below())
        return error(Errc::kNoSpace,
                     "shard {}: the disk under the store is full, and has no room for the checkpoint of the "
                     "recovery; free {} KiB on that disk",
                     shard, (units_needed() + 1) * state_.pages_per_unit * (nvme::kBlockBytes / 1024));
    return error(Errc::kNoSpace,
                 "shard {}: the flash has too few free pages for the checkpoint of the recovery (it needs {} "
                 "pages, {} are left; {} erase units are free, {} are bad); nothing was changed; mount with "
                 "more units, or read its blocks from replicas on other drives, where there are any",
                 shard, state_.checkpoint.pages_needed(), log_.pages_left(), state_.pool.free_units(),
                 state_.pool.units() - state_.pool.good_units());
}

bool RecoveredCheckpoint::retry() {
    if (durability_.broken() || state_.now_ns < tried_ns_ + ShardState::kRoomNs) return false;
    const bool first = std::exchange(tried_ns_, state_.now_ns) == 0;
    // Units that deletions emptied count as free: all that replaces their pages is durable.
    state_.pool.durable(state_.groups.current());
    if (first || log_.pages_left() < state_.checkpoint.pages_needed()) return false;
    if (!write().ok()) return false;
    pending_ = false;
    return true;
}

}  // namespace gnstor::deengine
