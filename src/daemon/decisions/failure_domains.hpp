// failure_domains.hpp: which SSDs fail together. Placement keeps the replicas of a chunk in different domains
// where there are enough (placement.hpp). So labels must never change while there is data: the map's record
// stores them, and each volume's record stores a checksum of them, by which a rebuild without the map finds
// out how slots were labelled.
//
// A domain is a node; its label is the lowest slot of its SSDs. With a single node, as in gnstord's own
// process, each SSD is a domain. Pure; any thread.
#pragma once

#include <gnstor/placement/placement.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace gnstor::daemon {

/// Labels every SSD of `map` with its own slot. Arrays created before domains were nodes have these labels.
void label_by_ssd(placement::ArrayMap& map);
/// Gives the SSDs of one node the same label; `nodes` has the node's address of each slot.
void label_by_node(placement::ArrayMap& map, std::span<const std::string> nodes);
/// Checksum of all labels; 0 if and only if they are those of label_by_ssd().
[[nodiscard]] std::uint32_t domains_check(const placement::ArrayMap& map);

}  // namespace gnstor::daemon
