// shard_impl.hpp: a shard at work: its state, and the parts that serve its commands. Executes reads, and has
// the parts do the rest, in order.
//
//   changes      writes, zeroes and trims
//   copies       the commands of a rebuild
//   durability   groups and syncs, and the answers that wait for them
//   log          records in the journal
//   collector    garbage collection
//   schedule     checkpoints while the shard works
//   recovered    the checkpoint that ends a recovery
//   pruner       tombstones that are resolved
//   scrubber     reads of data at rest
//
// Each part owns what it alone changes; what several change is ShardState. Invariants are with each of them.
// One owner thread.
#pragma once

#include "deengine/shard/changes.hpp"
#include "deengine/shard/checkpoint_schedule.hpp"
#include "deengine/shard/collector.hpp"
#include "deengine/shard/copies.hpp"
#include "deengine/shard/durability.hpp"
#include "deengine/shard/recovered_checkpoint.hpp"
#include "deengine/shard/scrubber.hpp"
#include "deengine/shard/shard_log.hpp"
#include "deengine/shard/shard_state.hpp"
#include "deengine/shard/tombstone_pruner.hpp"

namespace gnstor::deengine {

struct Shard::Impl : ShardState {
    /// An empty shard, as of a new drive. Recovery fills the state from flash (recovery.cpp), then start().
    Impl(Flash& flash_in, const ShardRange& range_in, const EngineOptions& options_in,
         CompletionSink& sink_in);

    /// Ends a mount. Before it: map, tombstones, floors, journal and checkpoint restored; pool restored and
    /// started, with every mapped page validated; everything on flash made durable (SyncLevel::kPower).
    /// Groups continue above `newest_group`, the highest one found.
    void start(std::uint32_t newest_group);

    void execute(const ShardCommand& c);
    std::uint32_t poll(std::uint64_t time_ns);
    Result<void> close();

    void open_window(const ShardCommand& c);
    nvme::Status read(const ShardCommand& c);
    nvme::Status check_doubts(const ShardCommand& c);
    [[nodiscard]] bool is_in_doubt(BlockKey key);
    [[nodiscard]] std::uint64_t present_order(const ShardCommand& c);
    void prefetch_page(BlockKey key, std::uint32_t first_sector) const;
    nvme::Status read_block(BlockKey key, std::uint32_t first_sector, std::uint32_t sectors, std::byte* to);

    void set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor);
    void forget_volume(nvme::VolumeId volume);
    bool record_purge(nvme::VolumeId volume);
    bool record_purges();
    const EngineCounters& present_counters();

    CompletionSink& sink;
    ShardLog log;
    Durability durability;
    Collector collector;
    TombstonePruner pruner;
    CheckpointSchedule schedule;
    RecoveredCheckpoint recovered;
    Scrubber scrubber;
    Changes changes;
    Copies copies;
    std::uint32_t commands_since_poll = 0;
    std::uint64_t purges_tried_ns = 0;
};

}  // namespace gnstor::deengine
