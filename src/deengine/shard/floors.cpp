// floors.cpp: which sequences of a volume are resolved, and what the shard forgets because of it. ARRAY.md,
// rule 8.
//
// A tombstone says two things: that an older write of its blocks, which may still come, is superseded; and
// that older pages of them, which a recovery may still find, do not count. The first ends with the floor: no
// sequence up to it is accepted any more. The second does not need the table:
//   * a recovery maps no page that was programmed before the checkpoint which it begins at, unless that
//   checkpoint maps it, and no checkpoint maps what was trimmed before it;
//   * every page that it does look at is younger, so was the trim, and the journal holds the trim's record
//   from that checkpoint on.
// So what a floor passes is dropped at once. Invariants
//   * before a tombstone is dropped for a floor, the floor's record stands in the journal, in front of
//   everything later: a checkpoint that lacks the tombstone holds the floor, and a recovery that begins at
//   one that has it finds the record or still has the tombstone;
//   * a change whose sequence is the one above the floor is never refused for want of room here: nothing
//   older than it can come, so its trim needs no tombstone, and what it finds above it are tombstones of
//   resolved sequences. A writer whose floor moves therefore comes to an end with all that it does, however
//   small the table.
#include "deengine/shard/shard_impl.hpp"

#include <algorithm>

namespace gnstor::deengine {

void Shard::Impl::set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor) {
    if (unsettled) return;  // each write tells it again
    const VolumeFloor* known = floors.find(volume);
    if (known != nullptr && (known->epoch > epoch || (known->epoch == epoch && known->logged >= floor)))
        return;
    floors.raise(volume, epoch, floor);
    // A floor that a crash forgets only keeps tombstones longer: it is not waited for, and takes no page that
    // a checkpoint (which holds it) may need.
    if (log_floor(*floors.find(volume))) (void)drop_resolved(volume, false);
}

/// Whether it stands in the journal.
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

/// What lies at or below the volume's floor; of older epochs too, if there is need: no write of theirs is
/// accepted any more.
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

/// What lies at or below a floor, or in an epoch that was closed, as the older kept checkpoint says, and was
/// trimmed before that one began.
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
    // While checkpoints free nothing, a crowded table is no reason for the next one.
    if (dropped == 0) useless_checkpoint = checkpoint.completed();
}

}  // namespace gnstor::deengine
