// shard_room.cpp: the arithmetic of shard_room.hpp.
#include "deengine/shard/shard_room.hpp"

#include "deengine/log/checkpoint.hpp"

#include <algorithm>

namespace gnstor::deengine {
namespace {

constexpr std::uint64_t kMinTombstones = 256;
constexpr std::uint32_t kBytesPerRecord = 32;  ///< at most, of a unit, tombstone or floor in a checkpoint
constexpr std::uint32_t kUnitsBegun = 2;       ///< open units of users and collector

std::uint64_t parts(std::uint64_t items, std::uint32_t bytes_each) {
    return items / (kJournalPayload / bytes_each) + 1;
}

std::uint64_t with_over_provisioning(std::uint64_t blocks, const EngineOptions& options) {
    return (blocks * (100 + options.over_provisioning_percent) + 99) / 100;
}

}  // namespace

std::uint32_t map_buckets(std::uint64_t pages, const EngineOptions& options) {
    return BlockMap::buckets_for(pages * options.map_keys_percent / 100);
}

ShardRoom ShardRoom::of(std::uint32_t units, std::uint32_t pages_per_unit, const EngineOptions& options) {
    ShardRoom r{};
    const std::uint64_t pages = std::uint64_t{units} * pages_per_unit;
    // Tombstones are written in every checkpoint: a small drive has no room for many.
    r.tombstones = std::min<std::uint64_t>(options.max_tombstones, std::max(kMinTombstones, pages / 4));
    r.fixed_pages = 4 + parts(units, kBytesPerRecord) +
                    map_buckets(pages, options) / std::min(kBucketsPerPart, options.buckets_per_part) + 1 +
                    parts(options.max_volumes, kBytesPerRecord);
    r.checkpoint_pages = r.fixed_pages + parts(r.tombstones, kBytesPerRecord);
    r.log_pages_between_checkpoints = log_pages_due(units, pages_per_unit);
    r.units_between_checkpoints = std::max(4u, units / 8);
    // Two complete checkpoints, one being written, that of a recovery, and the log.
    const std::uint64_t journal = 4 * r.checkpoint_pages + 2 * r.log_pages_between_checkpoints;
    const std::uint32_t for_bad_ones = 1 + units / 64;
    r.units_kept = static_cast<std::uint32_t>(UnitPool::kReserve + kUnitsBegun + for_bad_ones +
                                              journal / pages_per_unit + 1);
    r.margin = 2 + units / 256;
    r.ahead = 1 + units / 256;
    return r;
}

std::uint32_t ShardRoom::system_reserve(std::size_t tombstones_now, std::uint32_t pages_per_unit) const {
    const std::uint64_t pages = 2 * (fixed_pages + parts(tombstones_now, kBytesPerRecord));
    return static_cast<std::uint32_t>((pages + pages_per_unit - 1) / pages_per_unit);
}

namespace {

std::uint64_t data_pages(const FlashGeometry& geometry, std::uint32_t shards, const EngineOptions& options) {
    std::uint64_t data = 0;
    for (std::uint32_t i = 0; i < shards; ++i) {
        const std::uint32_t units = units_of_shard(geometry.units, i, shards).units;
        data +=
            ShardRoom::of(units, geometry.pages_per_unit, options).data_pages(units, geometry.pages_per_unit);
    }
    return data;
}

}  // namespace

std::uint64_t promised_blocks(const FlashGeometry& geometry, std::uint32_t shards,
                              const EngineOptions& options) {
    const std::uint64_t data = data_pages(geometry, shards, options);
    const std::uint64_t by_percent = geometry.pages() * 100 / (100 + options.over_provisioning_percent);
    const std::uint64_t promise = std::min(data, by_percent);
    return options.block_limit != 0 ? std::min(promise, options.block_limit) : promise;
}

std::uint32_t units_for_blocks(std::uint64_t blocks, std::uint32_t pages_per_unit, std::uint32_t shards,
                               const EngineOptions& options) {
    const std::uint64_t pages = with_over_provisioning(blocks, options);
    auto units = static_cast<std::uint32_t>((pages + pages_per_unit - 1) / pages_per_unit);
    // Over-provisioning is the collector's room; journal and reserve come on top of it.
    while (data_pages({units, pages_per_unit}, shards, options) < pages) units += shards;
    return units;
}

}  // namespace gnstor::deengine
