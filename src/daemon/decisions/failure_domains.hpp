// failure_domains.hpp: which SSDs fail together. Placement keeps the replicas of a chunk in different domains
// where there are enough (placement.hpp), so labels must never change under data: the map's record keeps
// them, and each volume's record a checksum of them, from which a rebuild without the map tells how they
// were.
//
// A domain is a node; its label is the lowest slot of its SSDs. With one node alone, as in gnstord's own
// process, each SSD is a domain: there is nothing to tell apart but drives. Pure; any thread.
#pragma once

#include <gnstor/placement/placement.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace gnstor::daemon {

/// Every SSD of `map` by itself: its slot is its label. Arrays that were begun before nodes were domains have
/// these.
void label_by_ssd(placement::ArrayMap& map);
/// SSDs of one node together; `nodes` says by slot at which address it is.
void label_by_node(placement::ArrayMap& map, std::span<const std::string> nodes);
/// Of all labels; 0 if and only if they are those of label_by_ssd().
[[nodiscard]] std::uint32_t domains_check(const placement::ArrayMap& map);

}  // namespace gnstor::daemon
