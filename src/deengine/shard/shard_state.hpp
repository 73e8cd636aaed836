// shard_state.hpp: what all parts of a shard work on: its units, its tables, its journal and its groups.
//
// Recovery fills it from flash; then commands (shard_impl.hpp) and the parts that serve them change it.
// Invariants, between two commands
//   * a data page is valid in the pool exactly while the map names it: pool.valid_pages() == map.size();
//   * a key is never both in the map and under a tombstone.
// Each part has the rest of its state for itself. One owner thread.
#pragma once

#include "deengine/log/checkpoint.hpp"
#include "deengine/log/journal.hpp"
#include "deengine/log/unit_pool.hpp"
#include "deengine/map/block_map.hpp"
#include "deengine/map/doubts.hpp"
#include "deengine/map/tombstones.hpp"
#include "deengine/shard/copy_windows.hpp"
#include "deengine/shard/durability_groups.hpp"
#include "deengine/shard/shard.hpp"
#include "deengine/shard/shard_room.hpp"
#include "deengine/shard/volume_floors.hpp"

namespace gnstor::deengine {

struct ShardState {
    /// Time between requests for space in the medium below the flash, after a refusal.
    static constexpr std::uint64_t kRoomNs = 1'000'000'000;

    /// Of an empty shard, as of a new drive.
    ShardState(Flash& flash_in, const ShardRange& range_in, const EngineOptions& options_in);

    /// Most pages that may be valid: all less reserve, journal and bad units.
    [[nodiscard]] std::uint64_t page_limit() const {
        const std::uint32_t good = pool.good_units();
        return good > room.units_kept ? std::uint64_t{good - room.units_kept} * pages_per_unit : 0;
    }
    /// Pages that may still become valid.
    [[nodiscard]] std::uint64_t pages_left() const {
        const std::uint64_t limit = page_limit();
        return limit > pool.valid_pages() ? limit - pool.valid_pages() : 0;
    }
    /// Keeps free units for the journal; how many depends on the number of tombstones.
    void reserve_for_journal() {
        pool.set_system_reserve(room.system_reserve(tombstones.size(), pages_per_unit));
    }
    /// A page is programmed in the current group.
    void note_program() { groups.note_program(now_ns); }
    /// The map no longer names `page`.
    void forget_page(PageNumber page) {
        if (options.mutation == Mutation::kCollectorForgetsMap) [[unlikely]] {
            // The mutated collector has freed this page already, and another block may be there now.
            if (pool.info(pool.unit_of(page)).valid == 0 || pool.info(pool.unit_of(page)).system) return;
        }
        pool.invalidate(page, groups.current());
        if (options.mutation == Mutation::kFreeUnitEarly) [[unlikely]]
            pool.durable(groups.current());
    }
    /// Takes the present figures of the tables into `counters`.
    void refresh_gauges();

    Flash& flash;
    const ShardRange range;
    const EngineOptions options;
    const std::uint32_t pages_per_unit;
    const ShardRoom room;

    UnitPool pool;
    BlockMap map;
    Tombstones tombstones;
    VolumeFloors floors;
    Doubts doubts;
    Journal journal;
    CheckpointWriter checkpoint;
    DurabilityGroups groups;
    CopyWindows windows;
    EngineCounters counters{};
    std::uint64_t now_ns = 0;  ///< of the last poll
};

}  // namespace gnstor::deengine
