// shard_room.hpp: how a shard divides its units between data, journal and reserve, and how often it begins a
// checkpoint. Pure; from geometry and options only, so that the capacity does not change with wear.
#pragma once

#include "deengine/engine_types.hpp"

#include <cstddef>
#include <cstdint>

namespace gnstor::deengine {

/// Buckets of the block map of a shard with so many pages.
std::uint32_t map_buckets(std::uint64_t pages, const EngineOptions& options);

struct ShardRoom {
    std::size_t tombstones;          ///< most intervals kept
    std::uint64_t checkpoint_pages;  ///< of the longest checkpoint, approximately
    std::uint64_t fixed_pages;       ///< of checkpoint_pages, those that do not depend on tombstones
    std::uint64_t log_pages_between_checkpoints;
    std::uint32_t units_between_checkpoints;
    std::uint32_t units_kept;  ///< not for data: reserve, open units, journal, an allowance for bad units
    std::uint32_t margin;      ///< with fewer units beyond the reserve, each user page causes copies
    std::uint32_t ahead;       ///< units beyond these that an idle shard tries to keep free

    static ShardRoom of(std::uint32_t units, std::uint32_t pages_per_unit, const EngineOptions& options);
    /// Free units reserved for the journal: for one checkpoint, and for another if a cut interrupts recovery.
    [[nodiscard]] std::uint32_t system_reserve(std::size_t tombstones_now,
                                               std::uint32_t pages_per_unit) const;
    /// Pages usable for blocks, with no bad unit.
    [[nodiscard]] std::uint64_t data_pages(std::uint32_t units, std::uint32_t pages_per_unit) const {
        return units > units_kept ? std::uint64_t{units - units_kept} * pages_per_unit : 0;
    }
};

/// Units [first, first + units) of shard `index` of `count`.
struct UnitSlice {
    std::uint32_t first;
    std::uint32_t units;
};
constexpr UnitSlice units_of_shard(std::uint32_t units, std::uint32_t index, std::uint32_t count) {
    const auto first = static_cast<std::uint32_t>(std::uint64_t{index} * units / count);
    return {first, static_cast<std::uint32_t>((std::uint64_t{index} + 1) * units / count) - first};
}

/// Blocks that a drive of this geometry offers: all less over-provisioning, reserve and journals.
std::uint64_t promised_blocks(const FlashGeometry& geometry, std::uint32_t shards,
                              const EngineOptions& options);
/// The least number of units that offers `blocks` and gives the collector its over-provisioning.
std::uint32_t units_for_blocks(std::uint64_t blocks, std::uint32_t pages_per_unit, std::uint32_t shards,
                               const EngineOptions& options);

}  // namespace gnstor::deengine
