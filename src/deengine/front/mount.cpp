// mount.cpp: opening a drive: its state from the metadata store, then its shards, each recovered on its own
// (recovery.cpp).
#include "deengine/front/engine_impl.hpp"
#include "deengine/shard/shard_room.hpp"

#include <algorithm>

namespace gnstor::deengine {
namespace {

constexpr std::uint32_t kMaxShards = 256;

Result<void> check_options(const FlashGeometry& g, std::size_t shards, const EngineOptions& options) {
    if (g.units == 0 || g.pages_per_unit == 0 || g.pages() >= kNoPage)
        return error(Errc::kInvalidArgument,
                     "a drive cannot have {} erase units of {} pages; give it 1 .. 2^32 - 2 pages", g.units,
                     g.pages_per_unit);
    if (options.mdts_blocks == 0 || options.mdts_blocks > 65536)
        return error(Errc::kInvalidArgument, "the largest command cannot have {} blocks; use 1 .. 65536",
                     options.mdts_blocks);
    if (shards == 0 || shards > kMaxShards)
        return error(Errc::kInvalidArgument, "a drive cannot have {} shards; use 1 .. {}", shards,
                     kMaxShards);
    return {};
}

/// Shards in this thread, one for each view of the flash.
Result<std::unique_ptr<ShardPort>> mount_inline(std::span<Flash* const> flashes, const EngineOptions& options,
                                                const VolumeRegistry& lives, CompletionSink& sink,
                                                RecoveryReport& report) {
    std::vector<std::unique_ptr<Shard>> shards;
    const auto count = static_cast<std::uint32_t>(flashes.size());
    for (std::uint32_t i = 0; i < count; ++i) {
        const UnitSlice slice = units_of_shard(flashes[i]->geometry().units, i, count);
        GN_ASSIGN(auto shard, Shard::mount(*flashes[i], {i, count, slice.first, slice.units}, options, lives,
                                           sink, report));
        shards.push_back(std::move(shard));
    }
    return std::unique_ptr<ShardPort>(std::make_unique<InlinePort>(std::move(shards)));
}

/// Blocks on flash although the metadata says that the drive is new: part of the store is missing. Journal
/// pages alone do not show that: an unused drive has them too.
Result<void> check_new(std::span<Flash* const> flashes) {
    const FlashGeometry g = flashes[0]->geometry();
    std::uint64_t data = 0;
    for (std::uint32_t i = 0; i < flashes.size(); ++i) {
        const UnitSlice slice = units_of_shard(g.units, i, static_cast<std::uint32_t>(flashes.size()));
        for (std::uint32_t u = slice.first; u < slice.first + slice.units; ++u) {
            PageOob oob{};
            const FlashStatus status = flashes[i]->read_oob(u * g.pages_per_unit, oob);
            if (has_data(status) && oob.kind != PageKind::kErased && oob.kind != PageKind::kSystem) ++data;
        }
    }
    if (data == 0) return {};
    return error(Errc::kCorrupt,
                 "{} erase units of the flash hold blocks, but the metadata is empty; a part of the store is "
                 "missing (format the store to begin again without its contents)",
                 data);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::mount(Flash& flash, MetadataStore& metadata,
                                              const EngineOptions& options, CompletionSink& sink,
                                              RecoveryReport* report) {
    Flash* const flashes[] = {&flash};
    return mount(flashes, metadata, options, sink, report);
}

Result<std::unique_ptr<Engine>> Engine::mount(std::span<Flash* const> flashes, MetadataStore& metadata,
                                              const EngineOptions& options, CompletionSink& sink,
                                              RecoveryReport* report) {
    const auto shards = [&](const EngineOptions& o, const VolumeRegistry& lives, CompletionSink& parts,
                            RecoveryReport& into) { return mount_inline(flashes, o, lives, parts, into); };
    return mount(flashes, shards, metadata, options, sink, report);
}

Result<std::unique_ptr<Engine>> Engine::mount(std::span<Flash* const> flashes, const MountShards& shards,
                                              MetadataStore& metadata, const EngineOptions& options,
                                              CompletionSink& sink, RecoveryReport* report) {
    if (flashes.empty())
        return error(Errc::kInvalidArgument, "cannot mount a drive without flash; give at least one flash");
    const FlashGeometry geometry = flashes[0]->geometry();
    GN_TRY(check_options(geometry, flashes.size(), options));
    const std::vector<std::byte> blob = metadata.load();
    if (blob.empty()) GN_TRY(check_new(flashes));
    GN_ASSIGN(FirmwareState state, FirmwareState::parse(blob, options.max_volumes, options.mdts_blocks,
                                                        geometry.units, options.mutation));
    auto impl = std::make_unique<Impl>(metadata, options, sink, std::move(state));
    RecoveryReport local{};
    GN_ASSIGN(auto port, shards(impl->options, impl->state, impl->router, local));
    const std::uint32_t count = port->shards();
    const std::uint64_t capacity = promised_blocks(geometry, count, options);
    if (capacity == 0)
        return error(Errc::kInvalidArgument,
                     "{} erase units of {} pages leave no room for blocks beside the journal and the "
                     "reserve; give each of {} shards at least {} units",
                     geometry.units, geometry.pages_per_unit, count,
                     units_for_blocks(1, geometry.pages_per_unit, 1, options));
    impl->router.attach(std::move(port), capacity);
    impl->vendor.begin(impl->router.port(), local.volumes_in_doubt);
    // A crash may have lost the shards' record of a floor that the firmware's state has.
    for (const Volume& v : impl->state.now().permissions.volumes())
        if (v.floor != 0) impl->router.port().set_floor(v.record.geometry.volume, v.record.epoch, v.floor);
    impl->unsettled = impl->router.port().counters().unsettled != 0;
    local.volumes = impl->state.now().permissions.volumes().size();
    if (report != nullptr) *report = std::move(local);
    return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

void add_report(RecoveryReport& sum, RecoveryReport&& more) {
    sum.pages_scanned += more.pages_scanned;
    sum.pages_mapped += more.pages_mapped;
    sum.pages_torn += more.pages_torn;
    sum.pages_outdated += more.pages_outdated;
    sum.tombstones += more.tombstones;
    sum.checkpoint = std::max(sum.checkpoint, more.checkpoint);
    sum.spare_checkpoint = sum.spare_checkpoint || more.spare_checkpoint;
    sum.journal_pages += more.journal_pages;
    sum.log_records += more.log_records;
    sum.units_young += more.units_young;
    sum.units_half_erased += more.units_half_erased;
    sum.units_bad += more.units_bad;
    sum.pages_unreadable += more.pages_unreadable;
    sum.blocks_lost += more.blocks_lost;
    sum.blocks_doubtful += more.blocks_doubtful;
    sum.records_lost += more.records_lost;
    for (const auto& [volume, epoch] : more.volumes_in_doubt)
        sum.volumes_in_doubt[volume] = std::max(sum.volumes_in_doubt[volume], epoch);
    sum.memory_bytes += more.memory_bytes;
    sum.findings_left_out += more.findings_left_out;
    for (std::string& line : more.findings) {
        if (sum.findings.size() < RecoveryReport::kMaxFindings) {
            sum.findings.push_back(std::move(line));
        } else {
            ++sum.findings_left_out;
        }
    }
}

}  // namespace gnstor::deengine
