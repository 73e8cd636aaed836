// shard_state.cpp: an empty shard, and its figures.
#include "deengine/shard/shard_state.hpp"

namespace gnstor::deengine {

ShardState::ShardState(Flash& flash_in, const ShardRange& range_in, const EngineOptions& options_in)
    : flash(flash_in),
      range(range_in),
      options(options_in),
      pages_per_unit(flash_in.geometry().pages_per_unit),
      room(ShardRoom::of(range_in.units, pages_per_unit, options_in)),
      pool(flash_in, range_in.first_unit, range_in.units),
      map(flash_in.geometry().pages(),
          map_buckets(std::uint64_t{range_in.units} * pages_per_unit, options_in)),
      tombstones(room.tombstones),
      journal(flash_in, pool),
      checkpoint(journal, pool, map, tombstones, floors.entries(), doubts),
      groups(flash_in) {
    checkpoint.set_end_before_durable(options.mutation == Mutation::kCheckpointBeforeLog);
    checkpoint.set_forgets_moves(options.mutation == Mutation::kMovedNotRecorded);
    checkpoint.set_buckets_per_part(options.buckets_per_part);
    map.set_move_keeps_way(options.mutation == Mutation::kMoveKeepsWay);
}

void ShardState::refresh_gauges() {
    counters.mapped_blocks = map.size();
    counters.free_pages = pages_left();
    counters.units_erased = pool.units_erased();
    counters.tombstones = tombstones.size();
    counters.doubtful = doubts.size();
    counters.doubtful_volumes = doubts.lost().size();
    counters.unstamped = groups.unstamped() ? 1 : 0;
    counters.displaced = map.moves();
    counters.displaced_in_slices = checkpoint.moves_across_cursor();
    counters.units_bad = pool.units() - pool.good_units();
    counters.data_pages = page_limit();
    counters.data_pages_new = room.data_pages(pool.units(), pages_per_unit);
}

}  // namespace gnstor::deengine
