// placement.hpp: which slots hold a chunk. Pure; drives and GPU or CPU lanes compute the same result.
//
// Rendezvous hashing: rank the slots by mix(hash factor, VID, chunk, slot) with capacity weights and take the
// first R, at most one per failure domain where there are enough domains. The map is immutable: a change is a
// new object with a new version (docs/array.md, rules 2 and 4). Integer arithmetic only, so that CPU and GPU
// results are identical. A layer of its own, because deEngine and gnor both need it and neither may use the
// other.
#pragma once

#include <gnstor/base/hash.hpp>
#include <gnstor/nvme/command.hpp>

#include <cstdint>

namespace gnstor::placement {

inline constexpr std::uint32_t kMaxSlots = 64;
inline constexpr std::uint32_t kMaxReplicas = 4;

/// docs/array.md, rules 10, 12 and 14. kOut: the slot keeps its chunks, but its SSD is silent: it is neither read nor
/// written, and returns as kRebuilding.
enum class SlotState : std::uint8_t {
    kEmpty = 0,
    kIn = 1,
    kRebuilding = 2,
    kJoining = 3,
    kDown = 4,
    kOut = 5
};
inline constexpr SlotState kLastSlotState = SlotState::kOut;

struct Slot {
    SlotState state;
    std::uint8_t reserved;
    std::uint16_t domain;       ///< failure domain label; stays with the slot when another drive fills it
    std::uint32_t weight;       ///< capacity weight, 1 .. 65535; equal weights: equal shares
    std::uint8_t ssd_uuid[16];  ///< which drive (store incarnation) fills the slot
};
static_assert(sizeof(Slot) == 24, "the map travels in MAP SET as it lies in memory");

/// Whether a slot may hold data; a slot that is rebuilding, joining or out counts.
GN_HD
inline bool takes_part(const Slot& slot) {
    return slot.state != SlotState::kEmpty && slot.state != SlotState::kDown && slot.weight != 0;
}

/// Whether writes and flushes go to the SSD of a slot in this state. A slot that is out keeps its chunks, and is not
/// written.
GN_HD
inline bool is_written(SlotState state) {
    return state == SlotState::kIn || state == SlotState::kRebuilding || state == SlotState::kJoining;
}

/// The array's map; also the payload of MAP SET. Little endian.
struct ArrayMap {
    std::uint32_t version;
    std::uint32_t slot_count;
    Slot slots[kMaxSlots];
};

/// The lanes' copy of the map with precomputed members of place(): a lane pays for each word that it loads.
struct LaneMap : ArrayMap {
    std::uint64_t members;  ///< bit s: slot s may hold data (takes_part())
    std::uint64_t in;       ///< bit s: slot s is kIn, reads may go there
    std::uint32_t plain;  ///< 1: all members have equal weights and distinct failure domains, and none is out
    std::uint32_t reserved;
    static LaneMap of(const ArrayMap& map);
};

/// The fields of a volume that placement and lanes need.
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

/// The slots that hold `chunk` (block address >> chunk_shift), also those that are out. Empty and down slots
/// are skipped; fewer than `replicas` are returned if there are fewer slots. O(slots * replicas).
GN_HD
Replicas place(const ArrayMap& map, const VolumeGeometry& volume, std::uint32_t chunk);
/// The same. For a plain map no slot entry is read: O(slots).
GN_HD
Replicas place(const LaneMap& map, const VolumeGeometry& volume, std::uint32_t chunk);
/// The same, for a plain map, from LaneMap::members alone.
GN_HD
Replicas place_plain(std::uint64_t members, const VolumeGeometry& volume, std::uint32_t chunk);
/// The first replica only; `members` is not 0. Faster than place_plain(): independent hashes run in parallel.
GN_HD
std::uint32_t place_first(std::uint64_t members, const VolumeGeometry& volume, std::uint32_t chunk);

/// Whether `slot` is one of the replicas.
GN_HD
inline bool holds(const Replicas& r, std::uint32_t slot) {
    for (std::uint32_t i = 0; i < r.count; ++i)
        if (r.slot[i] == slot) return true;
    return false;
}

}  // namespace gnstor::placement

#include <gnstor/placement/detail/place.inl>
