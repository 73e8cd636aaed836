// room.hpp: how much more data an array takes. Pure.
#pragma once

#include <gnstor/placement/placement.hpp>

#include "daemon/decisions/inspector.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::daemon {

/// Blocks that volumes with so many replicas may still take until the first SSD is full, by the share of each
/// slot in placement; a few percent less rather than more. `free_blocks` has the free blocks of each slot of
/// the map, at most 2^44. 0: the map has fewer slots with SSDs than replicas.
[[nodiscard]] std::uint64_t room_for(const placement::ArrayMap& map,
                                     std::span<const std::uint64_t> free_blocks, std::uint32_t replicas);

/// The same for 1 replica, 2 replicas and so on, as many as there are SSDs. Empty: the use of an SSD of the map
/// is not known.
[[nodiscard]] std::vector<std::uint64_t> room_of(const ArrayInfo& info, const placement::ArrayMap& map);

}  // namespace gnstor::daemon
