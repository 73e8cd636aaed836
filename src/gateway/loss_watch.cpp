#include "gateway/loss_watch.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gnstor::gateway {

namespace {

bool serves(const placement::ArrayMap& map, std::uint32_t slot) {
    const auto state = map.slots[slot].state;
    return slot < map.slot_count && state != placement::SlotState::kEmpty &&
           state != placement::SlotState::kDown;
}

}  // namespace

bool LossWatch::look_at(const placement::ArrayMap& map, bool changing) {
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
    // What was settled before is for the array to repair, and reads say what it cannot.
    if (answers_ == settled_ && !changing) return false;
    gone_ |= gone;
    // A degraded map had fewer SSDs for a write than the volume has replicas.
    const std::uint32_t needed = std::max(1u, std::min(replicas_, served));
    if (lost_ || gone == 0 || static_cast<std::uint32_t>(std::popcount(gone_)) < needed) return false;
    lost_ = true;
    return true;
}

std::uint32_t LossWatch::slots_gone() const {
    return static_cast<std::uint32_t>(std::popcount(gone_));
}

}  // namespace gnstor::gateway
