// tombstone_pruner.cpp: floors into the journal, and tombstones out of the table.
#include "deengine/shard/tombstone_pruner.hpp"

#include <algorithm>

namespace gnstor::deengine {

void TombstonePruner::set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor) {
    VolumeFloors& floors = state_.floors;
    const VolumeFloor* known = floors.find(volume);
    if (known != nullptr && (known->epoch > epoch || (known->epoch == epoch && known->logged >= floor)))
        return;
    floors.raise(volume, epoch, floor);
    // A floor that a crash forgets only keeps tombstones longer: its record is not waited for, and takes no
    // page that a checkpoint (which holds the floor) may need.
    if (log_floor(*floors.find(volume))) (void)drop_resolved(volume, false);
}

/// Whether the journal holds the record.
bool TombstonePruner::log_floor(const VolumeFloor& floor) {
    LogRecord record{};
    record.type = LogType::kFloor;
    record.volume = floor.volume;
    record.epoch = floor.epoch;
    record.sequence = floor.floor;
    if (log_.is_crowded() || !log_.append(record)) return false;
    state_.floors.logged(floor.volume);
    return true;
}

/// Drops tombstones at or below the volume's floor; with `older_epochs` also those of older epochs, whose
/// writes are no longer accepted.
std::size_t TombstonePruner::drop_resolved(nvme::VolumeId volume, bool older_epochs) {
    const VolumeFloor* known = state_.floors.find(volume);
    if (known == nullptr) return 0;
    const VolumeFloor f = *known;
    return state_.tombstones.drop_if(volume, [&](const Tombstone& t) {
        return t.epoch == f.epoch ? t.sequence <= f.logged : older_epochs && t.epoch < f.epoch;
    });
}

void TombstonePruner::drop_all_resolved() {
    for (const VolumeFloor& f : state_.floors.entries()) {
        state_.floors.logged(f.volume);
        (void)drop_resolved(f.volume, false);
    }
}

bool TombstonePruner::has_room(nvme::VolumeId volume, std::size_t intervals) {
    if (state_.tombstones.has_room(volume, intervals)) return true;
    const VolumeFloor* known = state_.floors.find(volume);
    if (known != nullptr && known->floor > known->logged) (void)log_floor(*known);
    return drop_resolved(volume, true) != 0 && state_.tombstones.has_room(volume, intervals);
}

bool TombstonePruner::is_next(const ShardCommand& c) const {
    const VolumeFloor* known = state_.floors.find(c.volume);
    return known != nullptr && known->epoch == c.epoch && c.sequence == known->floor + 1;
}

/// Drops tombstones at or below a floor of the older kept checkpoint, or of an epoch closed by then, that
/// were made before that checkpoint began.
void TombstonePruner::note_checkpoint() {
    const std::uint64_t kept = state_.checkpoint.spare();
    useless_checkpoint_ = 0;
    if (kept == 0) return;
    std::vector<VolumeFloor> by_volume = state_.checkpoint.kept_floors();
    std::ranges::sort(by_volume, {}, &VolumeFloor::volume);
    const std::size_t dropped = state_.tombstones.drop_if([&](const Tombstone& t) {
        if (t.born >= kept) return false;
        const auto f = std::ranges::lower_bound(by_volume, key_volume(t.first), {}, &VolumeFloor::volume);
        if (f == by_volume.end() || f->volume != key_volume(t.first)) return false;
        return t.epoch < f->epoch || (t.epoch == f->epoch && t.sequence <= f->floor);
    });
    // A checkpoint that freed no tombstone: a crowded table does not start the next one.
    if (dropped == 0) useless_checkpoint_ = state_.checkpoint.completed();
}

}  // namespace gnstor::deengine
