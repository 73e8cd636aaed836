// floors.cpp: which sequences of a volume are resolved, and which tombstones are dropped for that.
// docs/array.md, rule 8.
//
// A tombstone says two things: an older write of its blocks, which may still arrive, is superseded; and older
// pages of these blocks, which a recovery may still find, do not count. The first ends with the floor: no
// sequence up to it is accepted any more. The second does not need the table:
//   * a recovery maps a page that was programmed before the checkpoint which it begins at only if that
//     checkpoint maps it, and no checkpoint maps what was trimmed before it;
//   * every other page that it reads is younger than the checkpoint; so a trim of that page is younger, too,
//     and the journal holds the trim's record from that checkpoint on.
// So tombstones at or below a floor are dropped at once.
// Invariants
//   * before a tombstone is dropped for a floor, the journal holds the floor's record, ahead of everything
//     later: a checkpoint that lacks the tombstone holds the floor, and a recovery that begins at a
//     checkpoint with the tombstone finds the record or still has the tombstone;
//   * a change with the sequence right above the floor is never refused for lack of room here: nothing older
//     can arrive, so its trim needs no tombstone, and the tombstones over its blocks are of resolved
//     sequences. A writer whose floor advances therefore completes all its changes, however small the table.
#include "deengine/shard/shard_impl.hpp"

#include <algorithm>

namespace gnstor::deengine {

void Shard::Impl::set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor) {
    if (unsettled) return;  // each write carries the floor again
    const VolumeFloor* known = floors.find(volume);
    if (known != nullptr && (known->epoch > epoch || (known->epoch == epoch && known->logged >= floor)))
        return;
    floors.raise(volume, epoch, floor);
    // A floor that a crash forgets only keeps tombstones longer: its record is not waited for, and takes no
    // page that a checkpoint (which holds the floor) may need.
    if (log_floor(*floors.find(volume))) (void)drop_resolved(volume, false);
}

/// Whether the journal holds the record.
bool Shard::Impl::log_floor(const VolumeFloor& floor) {
    LogRecord record{};
    record.type = LogType::kFloor;
    record.volume = floor.volume;
    record.epoch = floor.epoch;
    record.sequence = floor.floor;
    if (log_is_crowded() || !log(record)) return false;
    floors.logged(floor.volume);
    return true;
}

/// Drops tombstones at or below the volume's floor; with `older_epochs` also those of older epochs, whose
/// writes are no longer accepted.
std::size_t Shard::Impl::drop_resolved(nvme::VolumeId volume, bool older_epochs) {
    const VolumeFloor* known = floors.find(volume);
    if (known == nullptr) return 0;
    const VolumeFloor f = *known;
    return tombstones.drop_if(volume, [&](const Tombstone& t) {
        return t.epoch == f.epoch ? t.sequence <= f.logged : older_epochs && t.epoch < f.epoch;
    });
}

/// After a mount: the checkpoint that it began at holds the floors.
void Shard::Impl::drop_all_resolved() {
    for (const VolumeFloor& f : floors.entries()) {
        floors.logged(f.volume);
        (void)drop_resolved(f.volume, false);
    }
}

bool Shard::Impl::tombstone_room(nvme::VolumeId volume, std::size_t intervals) {
    if (tombstones.has_room(volume, intervals)) return true;
    const VolumeFloor* known = floors.find(volume);
    if (known != nullptr && known->floor > known->logged) (void)log_floor(*known);
    return drop_resolved(volume, true) != 0 && tombstones.has_room(volume, intervals);
}

bool Shard::Impl::is_next(const ShardCommand& c) const {
    const VolumeFloor* known = floors.find(c.volume);
    return known != nullptr && known->epoch == c.epoch && c.sequence == known->floor + 1;
}

/// Drops tombstones at or below a floor of the older kept checkpoint, or of an epoch closed by then, that
/// were made before that checkpoint began.
void Shard::Impl::drop_old_tombstones() {
    const std::uint64_t kept = checkpoint.spare();
    useless_checkpoint = 0;
    if (kept == 0) return;
    std::vector<VolumeFloor> by_volume = checkpoint.kept_floors();
    std::ranges::sort(by_volume, {}, &VolumeFloor::volume);
    const std::size_t dropped = tombstones.drop_if([&](const Tombstone& t) {
        if (t.born >= kept) return false;
        const auto f = std::ranges::lower_bound(by_volume, key_volume(t.first), {}, &VolumeFloor::volume);
        if (f == by_volume.end() || f->volume != key_volume(t.first)) return false;
        return t.epoch < f->epoch || (t.epoch == f->epoch && t.sequence <= f->floor);
    });
    // A checkpoint that freed no tombstone: a crowded table does not start the next one.
    if (dropped == 0) useless_checkpoint = checkpoint.completed();
}

}  // namespace gnstor::deengine
