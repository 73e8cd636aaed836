// known_answers.hpp: placements that no processor and no future version may change: data lies where they say.
//
// Computed once by an independent implementation (rank all, then filter) in another language. For CPU and GPU
// tests.
#pragma once

#include <gnstor/placement/placement.hpp>

namespace gnstor::placement::test {

struct KnownAnswer {
    int map;  ///< argument of known_map()
    std::uint64_t hash_factor;
    nvme::VolumeId volume;
    std::uint32_t chunk;
    std::uint8_t replicas;
    std::uint32_t count;
    std::uint8_t slot[kMaxReplicas];
};

/// 0: 8 equal slots, a domain each; 1: 12 equal slots in 3 domains; 2: weights 1, 2, 4, 1, 2, 4; 3: 16 slots
/// of weights 1 to 5, two a domain, in states in, rebuilding, down, in, empty, in, and so on.
GN_HD
inline ArrayMap known_map(int which) {
    constexpr SlotState kStates[6] = {SlotState::kIn, SlotState::kRebuilding, SlotState::kDown,
                                      SlotState::kIn, SlotState::kEmpty,      SlotState::kIn};
    constexpr std::uint32_t kSlots[4] = {8, 12, 6, 16};
    ArrayMap map{};
    map.version = 1;
    map.slot_count = kSlots[which];
    for (std::uint32_t i = 0; i < map.slot_count; ++i) {
        Slot& slot = map.slots[i];
        slot.state = which == 3 ? kStates[i % 6] : SlotState::kIn;
        slot.domain = static_cast<std::uint16_t>(which == 1 ? i / 4 : which == 3 ? i / 2 : i);
        slot.weight = which == 2 ? 1u << (i % 3) : which == 3 ? 1 + (i * 7) % 5 : 1;
    }
    return map;
}

inline constexpr KnownAnswer kKnownAnswers[] = {
    {0, 0x0ull, 1, 0x0u, 1, 1, {5, 0, 0, 0}},
    {0, 0x123456789ABCDEF0ull, 2, 0x7u, 1, 1, {3, 0, 0, 0}},
    {0, 0xFFFFFFFFFFFFFFFFull, 65535, 0xFFFFFFFFu, 1, 1, {3, 0, 0, 0}},
    {0, 0xDEADBEEFull, 300, 0x3039u, 1, 1, {4, 0, 0, 0}},
    {0, 0x0ull, 1, 0x0u, 2, 2, {5, 4, 0, 0}},
    {0, 0x123456789ABCDEF0ull, 2, 0x7u, 2, 2, {3, 6, 0, 0}},
    {0, 0xFFFFFFFFFFFFFFFFull, 65535, 0xFFFFFFFFu, 2, 2, {3, 1, 0, 0}},
    {0, 0xDEADBEEFull, 300, 0x3039u, 2, 2, {4, 2, 0, 0}},
    {0, 0x0ull, 1, 0x0u, 4, 4, {5, 4, 1, 0}},
    {0, 0x123456789ABCDEF0ull, 2, 0x7u, 4, 4, {3, 6, 5, 2}},
    {0, 0xFFFFFFFFFFFFFFFFull, 65535, 0xFFFFFFFFu, 4, 4, {3, 1, 5, 0}},
    {0, 0xDEADBEEFull, 300, 0x3039u, 4, 4, {4, 2, 3, 5}},
    {1, 0x0ull, 1, 0x0u, 1, 1, {5, 0, 0, 0}},
    {1, 0x123456789ABCDEF0ull, 2, 0x7u, 1, 1, {3, 0, 0, 0}},
    {1, 0xFFFFFFFFFFFFFFFFull, 65535, 0xFFFFFFFFu, 1, 1, {3, 0, 0, 0}},
    {1, 0xDEADBEEFull, 300, 0x3039u, 1, 1, {4, 0, 0, 0}},
    {1, 0x0ull, 1, 0x0u, 2, 2, {5, 11, 0, 0}},
    {1, 0x123456789ABCDEF0ull, 2, 0x7u, 2, 2, {3, 6, 0, 0}},
    {1, 0xFFFFFFFFFFFFFFFFull, 65535, 0xFFFFFFFFu, 2, 2, {3, 10, 0, 0}},
    {1, 0xDEADBEEFull, 300, 0x3039u, 2, 2, {4, 10, 0, 0}},
    {1, 0x0ull, 1, 0x0u, 4, 4, {5, 11, 1, 4}},
    {1, 0x123456789ABCDEF0ull, 2, 0x7u, 4, 4, {3, 6, 8, 5}},
    {1, 0xFFFFFFFFFFFFFFFFull, 65535, 0xFFFFFFFFu, 4, 4, {3, 10, 5, 9}},
    {1, 0xDEADBEEFull, 300, 0x3039u, 4, 4, {4, 10, 2, 3}},
    {2, 0x0ull, 1, 0x0u, 1, 1, {5, 0, 0, 0}},
    {2, 0x123456789ABCDEF0ull, 2, 0x7u, 1, 1, {5, 0, 0, 0}},
    {2, 0xFFFFFFFFFFFFFFFFull, 65535, 0xFFFFFFFFu, 1, 1, {3, 0, 0, 0}},
    {2, 0xDEADBEEFull, 300, 0x3039u, 1, 1, {4, 0, 0, 0}},
    {2, 0x0ull, 1, 0x0u, 2, 2, {5, 4, 0, 0}},
    {2, 0x123456789ABCDEF0ull, 2, 0x7u, 2, 2, {5, 3, 0, 0}},
    {2, 0xFFFFFFFFFFFFFFFFull, 65535, 0xFFFFFFFFu, 2, 2, {3, 1, 0, 0}},
    {2, 0xDEADBEEFull, 300, 0x3039u, 2, 2, {4, 2, 0, 0}},
    {2, 0x0ull, 1, 0x0u, 4, 4, {5, 4, 1, 0}},
    {2, 0x123456789ABCDEF0ull, 2, 0x7u, 4, 4, {5, 3, 2, 1}},
    {2, 0xFFFFFFFFFFFFFFFFull, 65535, 0xFFFFFFFFu, 4, 4, {3, 1, 5, 4}},
    {2, 0xDEADBEEFull, 300, 0x3039u, 4, 4, {4, 2, 5, 1}},
    {3, 0x0ull, 1, 0x0u, 1, 1, {5, 0, 0, 0}},
    {3, 0x123456789ABCDEF0ull, 2, 0x7u, 1, 1, {3, 0, 0, 0}},
    {3, 0xFFFFFFFFFFFFFFFFull, 65535, 0xFFFFFFFFu, 1, 1, {3, 0, 0, 0}},
    {3, 0xDEADBEEFull, 300, 0x3039u, 1, 1, {13, 0, 0, 0}},
    {3, 0x0ull, 1, 0x0u, 2, 2, {5, 7, 0, 0}},
    {3, 0x123456789ABCDEF0ull, 2, 0x7u, 2, 2, {3, 6, 0, 0}},
    {3, 0xFFFFFFFFFFFFFFFFull, 65535, 0xFFFFFFFFu, 2, 2, {3, 12, 0, 0}},
    {3, 0xDEADBEEFull, 300, 0x3039u, 2, 2, {13, 15, 0, 0}},
    {3, 0x0ull, 1, 0x0u, 4, 4, {5, 7, 11, 1}},
    {3, 0x123456789ABCDEF0ull, 2, 0x7u, 4, 4, {3, 6, 11, 9}},
    {3, 0xFFFFFFFFFFFFFFFFull, 65535, 0xFFFFFFFFu, 4, 4, {3, 12, 9, 1}},
    {3, 0xDEADBEEFull, 300, 0x3039u, 4, 4, {13, 15, 7, 1}},
};

/// Whether place() gives this answer.
GN_HD
inline bool agrees(const KnownAnswer& known) {
    VolumeGeometry g{};
    g.hash_factor = known.hash_factor;
    g.volume = known.volume;
    g.replicas = known.replicas;
    const Replicas r = place(known_map(known.map), g, known.chunk);
    bool same = r.count == known.count;
    for (std::uint32_t i = 0; i < known.count; ++i) same = same && r.slot[i] == known.slot[i];
    return same;
}

}  // namespace gnstor::placement::test
