// active_map.hpp: the map in force on this drive, its grant, and which chunks the drive holds. docs/array.md,
// rules 2 to 4.
//
// Invariants
//   * no map is active after construction: a drive boots without a grant;
//   * owns() agrees with place() (placement.hpp): with equal weights SlotRank computes it faster, else
//     owns() calls place();
//   * the ownership cache holds answers for the active map and the present volumes only; forget() empties it.
// Owned by one thread; no allocation after construction.
#pragma once

#include <gnstor/nvme/vendor.hpp>

#include "deengine/access/grant.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace gnstor::deengine {

/// Whether one slot is among a chunk's replicas, without computing the others. Agrees with place(): with
/// equal weights and at least as many failure domains as replicas, a slot is chosen exactly if it ranks first
/// in its domain and fewer other domains than replicas have a slot that ranks before it.
class SlotRank {
  public:
    SlotRank() = default;
    SlotRank(const placement::ArrayMap& map, std::uint32_t own_slot) {
        const std::uint32_t slots = std::min(map.slot_count, placement::kMaxSlots);
        std::uint16_t domains[placement::kMaxSlots];
        std::uint32_t weight = 0;
        equal_weights_ = own_slot < slots && placement::takes_part(map.slots[own_slot]);
        for (std::uint32_t s = 0; s < slots; ++s) {
            const placement::Slot& slot = map.slots[s];
            if (!placement::takes_part(slot)) continue;
            if (weight == 0) weight = slot.weight;
            equal_weights_ = equal_weights_ && slot.weight == weight;
            const std::uint16_t* const known = std::find(domains, domains + domains_, slot.domain);
            const auto domain = static_cast<std::uint8_t>(known - domains);
            if (domain == domains_) domains[domains_++] = slot.domain;
            if (s == own_slot) {
                own_ = {mix64(s + 1), domain};
            } else {
                others_[count_++] = {mix64(s + 1), domain};
            }
        }
    }
    /// Whether holds() is valid for volumes with so many replicas.
    [[nodiscard]] bool knows(std::uint32_t replicas) const {
        return equal_weights_ && domains_ >= std::min(replicas, placement::kMaxReplicas);
    }
    /// Other slots that may hold data: holds() takes time in proportion.
    [[nodiscard]] std::uint32_t others() const { return count_; }
    [[nodiscard]] bool holds(const placement::VolumeGeometry& volume, std::uint32_t chunk) const {
        const std::uint64_t seed = mix64(volume.hash_factor ^ (std::uint64_t{volume.volume} << 32 | chunk));
        const std::uint64_t own = mix64(seed ^ own_.hash);
        std::uint64_t before = 0;  // one bit per domain
        for (std::uint32_t i = 0; i < count_; ++i)
            before |= static_cast<std::uint64_t>(mix64(seed ^ others_[i].hash) > own) << others_[i].domain;
        const auto wanted = std::min<int>(volume.replicas, placement::kMaxReplicas);
        return ((before >> own_.domain) & 1u) == 0 && std::popcount(before) < wanted;
    }

  private:
    struct Ranked {
        std::uint64_t hash;   ///< of the slot's number, as place() mixes it in
        std::uint8_t domain;  ///< counted from 0 in order of appearance
    };
    bool equal_weights_ = false;
    std::uint32_t domains_ = 0;
    std::uint32_t count_ = 0;
    Ranked own_{};
    Ranked others_[placement::kMaxSlots] = {};
};

class ActiveMap {
  public:
    ActiveMap() : cache_(kCacheEntries, 0) {}

    void activate(const nvme::MapSet& set) {
        if (set.map.version != set_.map.version || !active_) forget();
        set_ = set;
        rank_ = SlotRank(set.map, set.slot);
        active_ = true;
    }
    /// The grant begins only after activate().
    [[nodiscard]] Grant& grant() { return grant_; }
    [[nodiscard]] bool granted(std::uint64_t now_ns) const { return grant_.lasts(now_ns); }
    [[nodiscard]] std::uint32_t version() const { return active_ ? set_.map.version : 0; }
    /// State of the slot that this drive fills; kEmpty: it fills none.
    [[nodiscard]] placement::SlotState own_state() const {
        return set_.slot < placement::kMaxSlots ? set_.map.slots[set_.slot].state
                                                : placement::SlotState::kEmpty;
    }

    /// Whether reads are answered: a slot that is rebuilding lacks blocks, which would read as never written.
    [[nodiscard]] bool may_read() const { return own_state() != placement::SlotState::kRebuilding; }
    /// Whether this drive's slot is among the replicas of the chunk.
    [[nodiscard]] bool owns(const placement::VolumeGeometry& volume, std::uint32_t chunk) {
        const bool quick = rank_.knows(volume.replicas);
        if (quick && rank_.others() <= kAlwaysQuick) return rank_.holds(volume, chunk);
        const std::uint64_t key = (std::uint64_t{volume.volume} << 32) | chunk;
        std::uint64_t& entry = cache_[mix64(key) % kCacheEntries];
        if ((entry >> 2) == key && (entry & kKnown) != 0) return (entry & kOwned) != 0;
        const bool owned = quick ? rank_.holds(volume, chunk)
                                 : placement::holds(placement::place(set_.map, volume, chunk), set_.slot);
        entry = (key << 2) | (owned ? kOwned : 0) | kKnown;
        return owned;
    }
    /// Empties the ownership cache: after a change of the volumes.
    void forget() { std::ranges::fill(cache_, 0); }

  private:
    static constexpr std::uint64_t kKnown = 1;
    static constexpr std::uint64_t kOwned = 2;
    static constexpr std::uint32_t kCacheEntries = 16384;  // 128 KiB: stays in the second-level cache
    static constexpr std::uint32_t kAlwaysQuick = 16;      // other slots; ranking them costs about one miss

    bool active_ = false;
    Grant grant_;
    nvme::MapSet set_{};
    SlotRank rank_;
    std::vector<std::uint64_t> cache_;
};

}  // namespace gnstor::deengine
