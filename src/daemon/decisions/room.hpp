// room.hpp: how much more data an array takes. Pure.
#pragma once

#include <gnstor/placement/placement.hpp>

#include "daemon/decisions/inspector.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gnstor::daemon {

/// Blocks that volumes with so many replicas may still take until the first SSD is full, by the share of each
/// slot in placement; a few percent less rather than more. `free_blocks` has the free blocks of each slot of
/// the map, at most 2^44. 0: the map has fewer slots with SSDs than replicas.
[[nodiscard]] std::uint64_t room_for(const placement::ArrayMap& map,
                                     std::span<const std::uint64_t> free_blocks, std::uint32_t replicas);

/// What fits into volumes of some number of replicas until the first SSD is full, in blocks.
struct Room {
    std::optional<std::uint64_t>
        usable;  ///< in all, if nothing were stored; nullopt: an SSD's capacity is not known
    std::optional<std::uint64_t> free;  ///< more than is stored; nullopt: the use of an SSD is not known
};

/// For 1 replica, 2 replicas and so on, as many as there are SSDs in the map.
[[nodiscard]] std::vector<Room> room_of(const ArrayInfo& info, const placement::ArrayMap& map);

}  // namespace gnstor::daemon
