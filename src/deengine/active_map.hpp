// active_map.hpp: the map that this drive serves under, its grant, and which chunks it holds. ARRAY.md, rules
// 2 to 4.
//
// Invariants
//   * no map is active after construction: a drive boots without a grant;
//   * the ownership cache only remembers what place() said under the active map and the present volumes;
//   forget() empties it.
// Owned by one thread; no allocation after construction.
#pragma once

#include <gnstor/nvme/vendor.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gnstor::deengine {

class ActiveMap {
  public:
    ActiveMap() : cache_(kCacheEntries, 0) {}

    void activate(const nvme::MapSet& set, std::uint64_t now_ns) {
        if (set.map.version != set_.map.version || !active_) forget();
        set_ = set;
        active_ = true;
        expires_ns_ = set.grant_ms == 0 ? ~0ull : now_ns + std::uint64_t{set.grant_ms} * 1'000'000;
    }
    [[nodiscard]] bool granted(std::uint64_t now_ns) const { return active_ && now_ns < expires_ns_; }
    [[nodiscard]] std::uint32_t version() const { return active_ ? set_.map.version : 0; }

    /// Whether this drive's slot is among the replicas of the chunk.
    [[nodiscard]] bool owns(const placement::VolumeGeometry& volume, std::uint32_t chunk) {
        const std::uint64_t key = (std::uint64_t{volume.volume} << 32) | chunk;
        std::uint64_t& entry = cache_[mix64(key) % kCacheEntries];
        if ((entry >> 2) == key && (entry & kKnown) != 0) return (entry & kOwned) != 0;
        const bool owned = placement::holds(placement::place(set_.map, volume, chunk), set_.slot);
        entry = (key << 2) | (owned ? kOwned : 0) | kKnown;
        return owned;
    }
    /// After a change of the volumes.
    void forget() { std::ranges::fill(cache_, 0); }

  private:
    static constexpr std::uint64_t kKnown = 1;
    static constexpr std::uint64_t kOwned = 2;
    static constexpr std::uint32_t kCacheEntries = 16384;  // 128 KiB: stays in the second-level cache

    bool active_ = false;
    std::uint64_t expires_ns_ = 0;
    nvme::MapSet set_{};
    std::vector<std::uint64_t> cache_;
};

}  // namespace gnstor::deengine
