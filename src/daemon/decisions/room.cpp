#include "daemon/decisions/room.hpp"

#include <algorithm>
#include <array>

namespace gnstor::daemon {
namespace {

constexpr std::uint32_t kChunks = 131'072;  // a share of one in 64 is then known within about 2 %

/// Of kChunks chunks, how many each slot holds; nullopt: the map has fewer slots with SSDs than replicas.
using Shares = std::optional<std::array<std::uint32_t, placement::kMaxSlots>>;

Shares shares_of(const placement::ArrayMap& map, std::uint32_t replicas) {
    const placement::VolumeGeometry volume{
        0x9E3779B97F4A7C15ull, std::uint64_t{1} << 32, 1, 4, static_cast<std::uint8_t>(replicas), 0};
    std::array<std::uint32_t, placement::kMaxSlots> chunks{};
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
        const placement::Replicas at = placement::place(map, volume, chunk);
        if (at.count < replicas) return std::nullopt;
        for (std::uint32_t r = 0; r < at.count; ++r) ++chunks[at.slot[r]];
    }
    return chunks;
}

std::uint64_t until_the_first_is_full(const Shares& shares, std::span<const std::uint64_t> blocks) {
    if (!shares) return 0;
    std::uint64_t room = ~std::uint64_t{0};
    for (std::size_t s = 0; s < blocks.size(); ++s)
        if ((*shares)[s] != 0) room = std::min(room, blocks[s] * kChunks / (*shares)[s]);
    return room;
}

}  // namespace

std::uint64_t room_for(const placement::ArrayMap& map, std::span<const std::uint64_t> free_blocks,
                       std::uint32_t replicas) {
    return until_the_first_is_full(shares_of(map, replicas), free_blocks.first(map.slot_count));
}

std::vector<Room> room_of(const ArrayInfo& info, const placement::ArrayMap& map) {
    std::array<std::uint64_t, placement::kMaxSlots> capacity{}, free{};
    std::uint32_t slots = 0;
    bool capacity_known = true, use_known = true;
    for (const SsdInfo& ssd : info.ssds) {
        if (ssd.slot == kSpareSlot) continue;
        ++slots;
        capacity[ssd.slot] = ssd.capacity_blocks;
        free[ssd.slot] = ssd.capacity_blocks - std::min(ssd.capacity_blocks, ssd.used_blocks.value_or(0));
        capacity_known &= ssd.capacity_blocks != 0;  // 0: the SSD was not found when gnstord started
        use_known &= ssd.used_blocks.has_value();
    }
    std::vector<Room> room;
    for (std::uint32_t r = 1; r <= std::min(slots, placement::kMaxReplicas); ++r) {
        const Shares shares = shares_of(map, r);
        const auto fits = [&](bool known, std::span<const std::uint64_t> blocks) {
            return known ? std::optional(until_the_first_is_full(shares, blocks.first(map.slot_count)))
                         : std::nullopt;
        };
        room.push_back({fits(capacity_known, capacity), fits(use_known, free)});
    }
    return room;
}

}  // namespace gnstor::daemon
