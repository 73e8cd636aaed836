#include "gateway/write_loss_tracker.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace gnstor::gateway {

namespace {

bool serves(const placement::ArrayMap& map, std::uint32_t slot) {
    return slot < map.slot_count && placement::is_written(map.slots[slot].state);
}

}  // namespace

bool WriteLossTracker::look_at(const placement::ArrayMap& map, bool changing) {
    if (map.version == map_.version) return false;
    std::uint32_t served = 0;
    std::uint64_t gone = 0;
    for (std::uint32_t s = 0; s < placement::kMaxSlots; ++s) {
        if (!serves(map_, s)) continue;
        ++served;
        const placement::Slot &before = map_.slots[s], &after = map.slots[s];
        const bool same =
            serves(map, s) && std::memcmp(before.ssd_uuid, after.ssd_uuid, sizeof before.ssd_uuid) == 0;
        if (!same) gone |= 1ull << s;
    }
    map_ = map;
    // Without uncovered changes nothing is at risk here: the array repairs what was flushed, and reads report
    // what it cannot.
    if (answers_ == settled_ && !changing) return false;
    gone_ |= gone;
    // Under a degraded map a write may be on fewer SSDs than the volume has replicas.
    fewest_ = std::min(fewest_, served);
    const std::uint32_t needed = std::max(1u, std::min(replicas_, fewest_));
    if (gone == 0 || static_cast<std::uint32_t>(std::popcount(gone_)) < needed) return false;
    told_ = false;  // hosts have not been told of this loss
    return !std::exchange(lost_, true);
}

WriteLossTracker WriteLossTracker::resume(std::uint32_t replicas, const LossRecord* predecessor,
                                          const placement::ArrayMap& map) {
    WriteLossTracker now(replicas, map);
    now.inherited_ = predecessor == nullptr || (predecessor->lost && !predecessor->told);
    if (predecessor == nullptr) return now;
    WriteLossTracker before(replicas, predecessor->map);
    before.gone_ = predecessor->gone;
    before.fewest_ = predecessor->fewest;
    before.answers_ = predecessor->dirty ? 1 : 0;
    now.inherited_ = before.look_at(map, false) || now.inherited_;
    now.answers_ = before.answers_;
    now.fewest_ = before.fewest_;
    if (!now.inherited_) now.gone_ = before.gone_;
    return now;
}

LossRecord WriteLossTracker::record(bool changing) const {
    LossRecord record;
    record.map = map_;
    record.gone = gone_;
    record.fewest = fewest_;
    record.dirty = changing || unsettled() != 0;
    record.lost = lost_ || inherited_;
    record.told = told_;
    return record;
}

std::uint32_t WriteLossTracker::slots_gone() const {
    return static_cast<std::uint32_t>(std::popcount(gone_));
}

}  // namespace gnstor::gateway
