// full_disk.cpp: a sparse store on a disk that gets full, and has room again.
//
// While the disk is full, the drive may refuse changes with Capacity Exceeded, serves reads and deletes
// volumes; a mount without room for its checkpoint waits. When the disk has room again, the drive takes
// changes within seconds, without another mount.
#include "deengine/sim/world.hpp"

#include <fmt/core.h>

namespace gnstor::deengine::sim {
namespace {

constexpr int kSecondsToSettle = 4;

}  // namespace

void World::fill_or_empty_disk() {
    const bool full = !medium_->disk_is_full();
    note(full ? "the disk below is full" : "the disk below has room");
    medium_->fill_disk(full);
    if (!full) return check_disk_with_room();
    ++counters_.disks_full;
    room_below_ = false;
}

/// Whatever was refused before is answered when the drive takes everything again.
void World::check_disk_with_room() {
    const bool waited = drive_->engine().unsettled();
    for (int i = 0; i < kSecondsToSettle && !crash_medium_; ++i) drive_->poll(kSecondNs);
    if (crash_medium_ || failed()) return;
    if (drive_->engine().unsettled()) return fail("the drive waits for room below, and there is room");
    counters_.settled += waited ? 1 : 0;
    note_settled();
    idle(kPollsMax);
    room_below_ = crash_medium_ == nullptr;
}

/// What a mount found of lost records it has written down, and no later one finds it again.
void World::note_settled() {
    if (drive_->engine().unsettled()) return;
    records_gone_ = false;
    known_bad_ = bad_records(*medium_);
}

/// A boot has its checkpoint, or waits for room for it on a full disk alone.
void World::note_boot(Drive& drive, const Medium& medium) {
    if (drive.engine().unsettled()) {
        ++counters_.mounts_waiting;
        if (!medium.disk_is_full()) fail("a mount waits for room below, and there is room");
    } else if (&drive == drive_.get() && !medium.disk_is_full()) {
        room_below_ = true;
    }
}

}  // namespace gnstor::deengine::sim
