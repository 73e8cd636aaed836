// recovery_settle.cpp: the checkpoint of what was recovered, and shards that wait for room for it.
//
// A shard is unsettled when its recovery has found everything, but the medium below the flash (a full disk
// under a sparse store) has no room for the checkpoint of that. It serves reads with the recovered map and
// refuses writes. Volumes can be deleted: the firmware's state records a deletion, as if a cut had followed
// it, and the units that it empties have room for the checkpoint. Invariants while it is unsettled
//   * only parts of that checkpoint are programmed, in the newest group found: if the process ends, that is
//     another cut of the same recovery, and the next mount finds what this one found;
//   * an attempt begins when all its pages have room below, so that an attempt without room has programmed
//     and erased nothing;
//   * nothing is acknowledged that a next mount would have to find.
// poll() tries again once a second.
#include "deengine/shard/shard_impl.hpp"

#include <utility>

namespace gnstor::deengine {
namespace {

constexpr std::uint32_t kPagesPerStep = 256;

}  // namespace

std::uint64_t Shard::Impl::units_of_checkpoint() const {
    return (checkpoint.pages_needed() + pages_per_unit - 1) / pages_per_unit;
}

Result<void> Shard::Impl::write_recovered() {
    GN_TRY(write_one_recovered());
    pool.release_held(groups.current);
    // Cuts leave the journal in many units, and on a full drive no unit for the collector to begin with. A
    // second checkpoint releases all units of the journal before the first.
    pool.durable(groups.current);
    const std::uint32_t reserve = room.system_reserve(tombstones.size(), pages_per_unit);
    const bool crowded = pool.free_units() <= reserve + UnitPool::kReserve;
    const std::uint64_t units = units_of_checkpoint();
    if (!crowded || journal.units() <= 2 * units || pool.free_units() <= units) return {};
    const Result<void> second = write_one_recovered();
    // The first checkpoint holds all that was recovered: it suffices.
    return no_room_below ? Result<void>{} : second;
}

/// One page more than its own, for records that wait to be logged.
bool Shard::Impl::reserve_checkpoint() {
    return pool.reserve(checkpoint.pages_needed() + 1);
}

Result<void> Shard::Impl::write_one_recovered() {
    const std::uint64_t before = checkpoint.completed();
    // Units without valid pages may be freed already if the free ones do not suffice: all that replaces their
    // pages is durable. Better now than after half a checkpoint was written for nothing.
    bool made_room = pool.free_units() <= units_of_checkpoint();
    if (made_room) pool.durable(groups.current);
    no_room_below = !reserve_checkpoint();
    if (no_room_below) {
        made_room = true;
        pool.durable(groups.current);
        no_room_below = !reserve_checkpoint();
    }
    if (no_room_below) return no_room_for_recovered();
    if (journal_pages_left() <= checkpoint.pages_needed()) {
        // A drive that cannot be mounted is worse than a cut during this checkpoint that loses a doubt.
        pool.release_held(groups.current);
        pool.durable(groups.current);
    }
    while (checkpoint.completed() == before) {
        if (!checkpoint.active() && !checkpoint.start()) break;
        groups.durable = groups.current - 1;
        (void)checkpoint.step(kPagesPerStep, groups);
        if (checkpoint.failed()) {
            no_room_below = journal.medium_full();
            if (std::exchange(made_room, true)) return no_room_for_recovered();
            pool.durable(groups.current);
            continue;
        }
        if (!checkpoint.wants_sync()) continue;
        if (flash.sync(SyncLevel::kPower) != FlashStatus::kOk) {
            broken = true;
            return error(Errc::kIo,
                         "shard {}: the result of the recovery cannot be made durable; check the disk under "
                         "the store for errors, and open the drive again",
                         range.index);
        }
        groups.durable = groups.current;
        (void)checkpoint.step(1, groups);
    }
    return {};
}

Error Shard::Impl::no_room_for_recovered() const {
    if (no_room_below)
        return error(Errc::kNoSpace,
                     "shard {}: the disk under the store is full, and has no room for the checkpoint of the "
                     "recovery; free {} KiB on that disk",
                     range.index, (units_of_checkpoint() + 1) * pages_per_unit * (nvme::kBlockBytes / 1024));
    return error(Errc::kNoSpace,
                 "shard {}: the flash has no free page for the checkpoint of the recovery ({} erase units "
                 "are free, {} are bad); nothing was changed; mount with more units, or read its blocks from "
                 "replicas on other drives, where there are any",
                 range.index, pool.free_units(), pool.units() - pool.good_units());
}

std::uint32_t Shard::Impl::settle_recovery() {
    if (broken || clock_ns < settle_tried_ns + kRoomNs) return 0;
    const bool first = std::exchange(settle_tried_ns, clock_ns) == 0;
    // Units that deletions emptied count as free: all that replaces their pages is durable.
    pool.durable(groups.current);
    if (first || journal_pages_left() < checkpoint.pages_needed()) return 0;
    if (!write_recovered().ok()) return 0;
    unsettled = false;
    start(groups.current);
    return 1;
}

}  // namespace gnstor::deengine
