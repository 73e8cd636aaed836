// place.inl: bodies of placement.hpp.
#pragma once

namespace gnstor::placement {
namespace detail {

/// -log2(u / 2^64) in 16.16 fixed point, for u > 0; integer arithmetic only (repeated squaring, 16 fraction
/// bits).
GN_HD
inline std::uint64_t neg_log2(std::uint64_t u) {
    std::uint32_t leading = 0;
    while ((u & (1ull << 63)) == 0) {
        u <<= 1;
        ++leading;
    }
    std::uint64_t mantissa = u >> 32;  // 1.31: in [2^31, 2^32)
    std::uint32_t fraction = 0;
    for (int bit = 0; bit < 16; ++bit) {
        mantissa = (mantissa * mantissa) >> 31;
        fraction <<= 1;
        if ((mantissa >> 32) != 0) {
            mantissa >>= 1;
            fraction |= 1;
        }
    }
    return (std::uint64_t{leading + 1} << 16) - fraction;
}

/// Smaller is better. With equal weights the hash itself gives the order, without logarithm and division.
GN_HD
inline std::uint64_t rank_key(std::uint64_t hash, std::uint32_t weight, bool weighted) {
    if (!weighted) return ~hash;
    return (neg_log2(hash | 1u) << 24) / weight;
}

/// Index of the lowest set bit; `set` is not 0.
GN_HD
inline std::uint32_t first_of(std::uint64_t set) {
#if GN_DEVICE_PASS
    return static_cast<std::uint32_t>(__ffsll(static_cast<long long>(set)) - 1);
#else
    return static_cast<std::uint32_t>(__builtin_ctzll(set));
#endif
}

/// The hash that a slot is ranked by for a chunk with this seed; greater is better.
GN_HD
inline std::uint64_t rank_hash(std::uint64_t seed, std::uint32_t slot) {
    return mix64(seed ^ mix64(slot + 1));
}

/// The best `wanted` of `members` by hash alone, in one pass. Equal hashes: the lower slot first.
GN_HD
inline Replicas best_of(std::uint64_t members, std::uint32_t wanted, std::uint64_t seed) {
    Replicas out{};
    std::uint64_t best[kMaxReplicas] = {};
    for (; members != 0; members &= members - 1) {
        std::uint32_t slot = first_of(members);
        std::uint64_t hash = rank_hash(seed, slot);
        GN_DEVICE_UNROLL
        for (std::uint32_t i = 0; i < kMaxReplicas; ++i) {
            const bool better = i < out.count ? hash > best[i] : i == out.count;
            if (!better) continue;
            const std::uint64_t worse_hash = best[i];
            const std::uint32_t worse = out.slot[i];
            best[i] = hash;
            out.slot[i] = static_cast<std::uint8_t>(slot);
            hash = worse_hash;
            slot = worse;
            if (i == out.count) break;
        }
        if (out.count < wanted) ++out.count;
    }
    for (std::uint32_t i = out.count; i < kMaxReplicas; ++i) out.slot[i] = 0;
    return out;
}

GN_HD
inline std::uint64_t seed_of(const VolumeGeometry& volume, std::uint32_t chunk) {
    return mix64(volume.hash_factor ^ (std::uint64_t{volume.volume} << 32 | chunk));
}

}  // namespace detail

inline LaneMap LaneMap::of(const ArrayMap& map) {
    LaneMap out{map, 0, 0, 1, 0};
    const std::uint32_t slots = map.slot_count < kMaxSlots ? map.slot_count : kMaxSlots;
    for (std::uint32_t s = 0; s < slots; ++s) {
        if (map.slots[s].state == SlotState::kIn) out.in |= std::uint64_t{1} << s;
        if (!takes_part(map.slots[s])) continue;
        if (map.slots[s].state == SlotState::kOut) out.plain = 0;
        for (std::uint64_t rest = out.members; rest != 0; rest &= rest - 1) {
            const Slot& other = map.slots[detail::first_of(rest)];
            if (other.weight != map.slots[s].weight || other.domain == map.slots[s].domain) out.plain = 0;
        }
        out.members |= std::uint64_t{1} << s;
    }
    return out;
}

GN_HD
inline Replicas place_plain(std::uint64_t members, const VolumeGeometry& volume, std::uint32_t chunk) {
    const std::uint32_t wanted = volume.replicas < kMaxReplicas ? volume.replicas : kMaxReplicas;
    return detail::best_of(members, wanted, detail::seed_of(volume, chunk));
}

namespace detail {
GN_HD
GN_NOINLINE inline std::uint32_t first_by_hash(std::uint64_t members, std::uint64_t seed) {
    std::uint64_t best = 0;
    std::uint32_t first = kMaxSlots;
    // Steps of independent hashes, with a trip count known at compile time.
    constexpr std::uint32_t kStep = 4;
    GN_DEVICE_UNROLL
    for (std::uint32_t at = 0; at < kMaxSlots; at += kStep) {
        if (members >> at == 0) break;  // most arrays have few slots
        if (((members >> at) & ((1u << kStep) - 1)) == 0) continue;
        std::uint64_t hash[kStep];
        GN_DEVICE_UNROLL
        for (std::uint32_t i = 0; i < kStep; ++i) hash[i] = rank_hash(seed, at + i);
        GN_DEVICE_UNROLL
        for (std::uint32_t i = 0; i < kStep; ++i) {
            const bool better = ((members >> (at + i)) & 1) != 0 && (first == kMaxSlots || hash[i] > best);
            best = better ? hash[i] : best;
            first = better ? at + i : first;
        }
    }
    return first;
}
}  // namespace detail

GN_HD
inline std::uint32_t place_first(std::uint64_t members, const VolumeGeometry& volume, std::uint32_t chunk) {
    return detail::first_by_hash(members, detail::seed_of(volume, chunk));
}

GN_HD
inline Replicas place(const LaneMap& map, const VolumeGeometry& volume, std::uint32_t chunk) {
    if (map.plain == 0) return place(static_cast<const ArrayMap&>(map), volume, chunk);
    return place_plain(map.members, volume, chunk);
}

GN_HD
inline Replicas place(const ArrayMap& map, const VolumeGeometry& volume, std::uint32_t chunk) {
    const std::uint64_t seed = detail::seed_of(volume, chunk);
    const std::uint32_t slots = map.slot_count < kMaxSlots ? map.slot_count : kMaxSlots;
    const std::uint32_t wanted = volume.replicas < kMaxReplicas ? volume.replicas : kMaxReplicas;
    bool weighted = false;
    std::uint32_t first_weight = 0;
    for (std::uint32_t s = 0; s < slots; ++s) {
        if (!takes_part(map.slots[s])) continue;
        if (first_weight == 0) first_weight = map.slots[s].weight;
        weighted = weighted || map.slots[s].weight != first_weight;
    }
    Replicas out{};
    // First pass: at most one per failure domain; second pass: fill up from any domain.
    for (int pass = 0; pass < 2 && out.count < wanted; ++pass) {
        while (out.count < wanted) {
            std::uint64_t best_key = 0;
            std::uint64_t best_hash = 0;
            std::uint32_t best = kMaxSlots;
            for (std::uint32_t s = 0; s < slots; ++s) {
                const Slot& slot = map.slots[s];
                if (!takes_part(slot)) continue;
                bool taken = false;
                for (std::uint32_t i = 0; i < out.count; ++i)
                    taken = taken || out.slot[i] == s ||
                            (pass == 0 && map.slots[out.slot[i]].domain == slot.domain);
                if (taken) continue;
                const std::uint64_t hash = detail::rank_hash(seed, s);
                const std::uint64_t key = detail::rank_key(hash, slot.weight, weighted);
                // Ties (the logarithm is rounded) are broken by the hash, so that equal weights rank alike
                // with and without the logarithm: adding or removing a slot of another weight moves nothing
                // else.
                if (best == kMaxSlots || key < best_key || (key == best_key && hash > best_hash)) {
                    best_key = key;
                    best_hash = hash;
                    best = s;
                }
            }
            if (best == kMaxSlots) break;
            out.slot[out.count++] = static_cast<std::uint8_t>(best);
        }
    }
    return out;
}

}  // namespace gnstor::placement
