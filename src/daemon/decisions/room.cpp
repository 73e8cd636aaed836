#include "daemon/decisions/room.hpp"

#include <algorithm>
#include <array>

namespace gnstor::daemon {

std::uint64_t room_for(const placement::ArrayMap& map, std::span<const std::uint64_t> free_blocks,
                       std::uint32_t replicas) {
    constexpr std::uint32_t kChunks = 131'072;  // a share of one in 64 is then known within about 2 %
    const placement::VolumeGeometry volume{
        0x9E3779B97F4A7C15ull, std::uint64_t{1} << 32, 1, 4, static_cast<std::uint8_t>(replicas), 0};
    std::array<std::uint32_t, placement::kMaxSlots> chunks{};
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
        const placement::Replicas at = placement::place(map, volume, chunk);
        if (at.count < replicas) return 0;
        for (std::uint32_t r = 0; r < at.count; ++r) ++chunks[at.slot[r]];
    }
    std::uint64_t room = ~std::uint64_t{0};
    for (std::uint32_t s = 0; s < map.slot_count; ++s)
        if (chunks[s] != 0) room = std::min(room, free_blocks[s] * kChunks / chunks[s]);
    return room;
}

std::vector<std::uint64_t> room_of(const ArrayInfo& info, const placement::ArrayMap& map) {
    std::array<std::uint64_t, placement::kMaxSlots> free_blocks{};
    std::uint32_t slots = 0;
    for (const SsdInfo& ssd : info.ssds) {
        if (ssd.slot == kSpareSlot) continue;
        if (!ssd.used_blocks) return {};
        free_blocks[ssd.slot] = ssd.capacity_blocks - std::min(ssd.capacity_blocks, *ssd.used_blocks);
        ++slots;
    }
    std::vector<std::uint64_t> room;
    for (std::uint32_t r = 1; r <= std::min(slots, placement::kMaxReplicas); ++r)
        room.push_back(room_for(map, free_blocks, r));
    return room;
}

}  // namespace gnstor::daemon
