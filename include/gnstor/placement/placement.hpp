// placement.hpp: which slots hold a chunk. Pure; drives and lanes compute the same answer.
//
// Rendezvous hashing: rank the slots by mix(hash factor, VID, chunk, slot) with capacity weights and take the
// first R, at most one a failure domain where there are enough domains. The map is immutable: a change is a
// new object with a new version (ARRAY.md, rules 2 and 4). Integer arithmetic alone, so that CPU and GPU
// agree to the bit. Why a layer of its own: both deEngine and gnor need it, and neither is above the other.
#pragma once

#include <gnstor/base/hash.hpp>
#include <gnstor/nvme/command.hpp>

#include <cstdint>

namespace gnstor::placement {

inline constexpr std::uint32_t kMaxSlots = 64;
inline constexpr std::uint32_t kMaxReplicas = 4;

enum class SlotState : std::uint8_t { kEmpty = 0, kIn = 1, kRebuilding = 2, kJoining = 3, kDown = 4 };

struct Slot {
    SlotState state;
    std::uint8_t reserved;
    std::uint16_t domain;       ///< failure domain label; stays with the slot whoever fills it
    std::uint32_t weight;       ///< capacity weight, 1 .. 65535; equal weights: equal shares
    std::uint8_t ssd_uuid[16];  ///< which drive (store incarnation) fills the slot
};
static_assert(sizeof(Slot) == 24, "the map travels in MAP SET as it lies in memory");

/// The array's map; also the payload of MAP SET. Little endian.
struct ArrayMap {
    std::uint32_t version;
    std::uint32_t slot_count;
    Slot slots[kMaxSlots];
};

/// A map as lanes have it, with what ranking asks of it found once: a lane pays for each word that it loads.
struct LaneMap : ArrayMap {
    std::uint64_t members;  ///< a bit a slot that takes part
    std::uint64_t in;       ///< a bit a slot that is kIn: reads may go there
    std::uint32_t plain;    ///< 1: members have equal weights, and each a failure domain of its own
    std::uint32_t reserved;
    static LaneMap of(const ArrayMap& map);
};

/// What of a volume placement depends on, and what a lane needs to know of it.
struct VolumeGeometry {
    std::uint64_t hash_factor;
    std::uint64_t capacity_blocks;  ///< 1 .. 2^32
    nvme::VolumeId volume;
    std::uint8_t chunk_shift;  ///< log2 of blocks in a chunk; 4 (64 KiB) by default
    std::uint8_t replicas;     ///< 1 .. kMaxReplicas
    std::uint32_t reserved;
};
static_assert(sizeof(VolumeGeometry) == 24, "it travels in VOLUME ADD");

/// The replicas of a chunk, best rank first.
struct Replicas {
    std::uint8_t slot[kMaxReplicas];
    std::uint32_t count;
};

/// The slots that hold `chunk` (block address >> chunk_shift). Slots that are empty or down take no part;
/// fewer than `replicas` come back when there are fewer slots. O(slots * replicas).
GN_HD
Replicas place(const ArrayMap& map, const VolumeGeometry& volume, std::uint32_t chunk);
/// The same. Of a plain map no slot is looked at: O(slots).
GN_HD
Replicas place(const LaneMap& map, const VolumeGeometry& volume, std::uint32_t chunk);
/// The same, of a map that is plain, from the one word that matters of it.
GN_HD
Replicas place_plain(std::uint64_t members, const VolumeGeometry& volume, std::uint32_t chunk);
/// The first of them; `members` is not empty. For lanes that ask for no more: slots are hashed side by side.
GN_HD
std::uint32_t place_first(std::uint64_t members, const VolumeGeometry& volume, std::uint32_t chunk);

/// Whether `slot` is among them.
GN_HD
inline bool holds(const Replicas& r, std::uint32_t slot) {
    for (std::uint32_t i = 0; i < r.count; ++i)
        if (r.slot[i] == slot) return true;
    return false;
}

}  // namespace gnstor::placement

#include <gnstor/placement/detail/place.inl>
