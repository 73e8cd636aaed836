// failure_domains.cpp: labels of slots, and their checksum.
#include "daemon/decisions/failure_domains.hpp"

#include <gnstor/base/crc32c.hpp>

#include <algorithm>

namespace gnstor::daemon {
namespace {

bool filled(const placement::ArrayMap& map, std::uint32_t slot) {
    return map.slots[slot].state != placement::SlotState::kEmpty;
}

}  // namespace

void label_by_ssd(placement::ArrayMap& map) {
    for (std::uint32_t s = 0; s < map.slot_count; ++s)
        if (filled(map, s)) map.slots[s].domain = static_cast<std::uint16_t>(s);
}

void label_by_node(placement::ArrayMap& map, std::span<const std::string> nodes) {
    label_by_ssd(map);
    std::uint32_t one = 0;
    while (one < map.slot_count && !filled(map, one)) ++one;
    bool several = false;
    placement::ArrayMap grouped = map;
    for (std::uint32_t s = 0; s < map.slot_count; ++s) {
        if (!filled(map, s)) continue;
        std::uint32_t first = 0;
        while (!filled(map, first) || nodes[first] != nodes[s]) ++first;
        grouped.slots[s].domain = static_cast<std::uint16_t>(first);
        several = several || first != one;
    }
    if (several) map = grouped;
}

std::uint32_t domains_check(const placement::ArrayMap& map) {
    std::uint32_t check = 0;
    bool grouped = false;
    for (std::uint32_t s = 0; s < map.slot_count; ++s) {
        const std::uint16_t label = map.slots[s].domain;
        const std::uint8_t bytes[2] = {static_cast<std::uint8_t>(label),
                                       static_cast<std::uint8_t>(label >> 8)};
        check = crc32c(bytes, sizeof(bytes), check);
        grouped = grouped || (filled(map, s) && label != s);
    }
    return grouped ? std::max(1u, check) : 0;
}

}  // namespace gnstor::daemon
