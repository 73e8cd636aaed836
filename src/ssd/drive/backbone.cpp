#include "ssd/drive/backbone.hpp"

#include "deengine/log/unit_pool.hpp"
#include "deengine/shard/shard_room.hpp"
#include "ssd/flash/direct/direct_store.hpp"
#include "ssd/flash/file/file_store.hpp"
#include "ssd/flash/file/view_store.hpp"
#include "ssd/flash/memory/memory_flash.hpp"

namespace gnstor::ssd {

namespace {

/// Erase units that one service unit needs before its first block: one for the journal, one for blocks, and
/// the reserve of the journal and of garbage collection (deengine/log/unit_pool.hpp).
std::uint64_t units_of_a_beginning(const NewStore& what) {
    const deengine::FlashGeometry& g = what.geometry;
    const deengine::ShardRoom room =
        deengine::ShardRoom::of(g.units / what.service_units, g.pages_per_unit, deengine::EngineOptions{});
    return 2 + room.system_reserve(0, g.pages_per_unit) + deengine::UnitPool::kReserve - 1;
}

constexpr std::uint64_t kUnitsThatMayGoBad = 4;  ///< of each service unit, until its capacity falls short

}  // namespace

Result<deengine::FlashGeometry> geometry_for(const DriveOptions& o) {
    const std::uint64_t blocks = o.capacity_bytes / nvme::kBlockBytes;
    if (blocks == 0 || o.capacity_bytes % nvme::kBlockBytes != 0) {
        return error(Errc::kInvalidArgument, "a drive of {} bytes is not a whole number of 4096-byte blocks",
                     o.capacity_bytes);
    }
    if (o.pages_per_unit == 0 || o.pages_per_unit > (1u << 20) || o.over_provisioning_percent > 100) {
        return error(Errc::kInvalidArgument,
                     "a drive cannot have erase units of {} pages with {} % over-provisioning; give 1 to "
                     "2^20 pages and 0 to 100 %",
                     o.pages_per_unit, o.over_provisioning_percent);
    }
    if (o.service_units == 0 || o.service_units > kMaxServiceUnits) {
        return error(Errc::kInvalidArgument, "a drive cannot have {} service units; choose 1 to {}",
                     o.service_units, kMaxServiceUnits);
    }
    const auto too_large = [&] {
        return error(
            Errc::kInvalidArgument,
            "a drive of {} bytes is too large; capacity and over-provisioning together may be 16 TiB at most",
            o.capacity_bytes);
    };
    if (blocks > (1ull << 32)) return too_large();
    deengine::EngineOptions firmware;
    firmware.over_provisioning_percent = o.over_provisioning_percent;
    const std::uint64_t units =
        std::uint64_t{deengine::units_for_blocks(blocks, o.pages_per_unit, o.service_units, firmware)} +
        std::uint64_t{o.service_units} * kUnitsThatMayGoBad;
    if (units * o.pages_per_unit >= deengine::kNoPage) return too_large();
    return deengine::FlashGeometry{static_cast<std::uint32_t>(units), o.pages_per_unit, o.channels,
                                   o.dies_per_channel};
}

Result<NewStore> new_store_for(const DriveOptions& o) {
    GN_ASSIGN(const deengine::FlashGeometry geometry, geometry_for(o));
    return NewStore{.geometry = geometry,
                    .capacity_bytes = o.capacity_bytes,
                    .over_provisioning_percent = o.over_provisioning_percent,
                    .serial = o.serial,
                    .service_units = o.service_units};
}

Result<std::uint64_t> room_to_begin(const DriveOptions& o) {
    GN_ASSIGN(const NewStore what, new_store_for(o));
    const std::uint64_t unit = std::uint64_t{what.geometry.pages_per_unit} * nvme::kBlockBytes;
    return StoreLayout::of(what.geometry, what.metadata_bytes).data_offset +
           what.service_units * units_of_a_beginning(what) * unit;
}

Result<void> make_store(const DriveOptions& o) {
    GN_ASSIGN(const NewStore what, new_store_for(o));
    GN_ASSIGN(const std::unique_ptr<StoreFile> made, StoreFile::create(o.file, what));
    return {};
}

Result<std::unique_ptr<Store>> open_backbone(const DriveOptions& o, BootMode mode, bool accept_loss) {
    if (o.file.empty()) {
        GN_ASSIGN(const NewStore what, new_store_for(o));
        // A store in memory has to pass the same checks as one on a medium.
        GN_TRY(make_superblock(what, "in memory"));
        GN_ASSIGN(std::unique_ptr<MemoryStore> made,
                  MemoryStore::create(what.geometry,
                                      {.serial = o.serial,
                                       .capacity_bytes = o.capacity_bytes,
                                       .over_provisioning_percent = o.over_provisioning_percent,
                                       .service_units = o.service_units},
                                      o.memory));
        return std::unique_ptr<Store>(std::move(made));
    }
    BootRequest request;
    request.mode = mode;
    request.backbone = o.backbone;
    request.accept_loss = accept_loss;
    if (on_read_only_file_system(o.file)) return ViewStore::open(o.file, request.host_boot);
    Result<std::unique_ptr<StoreFile>> file = StoreFile::open_for_use(o.file, request);
    if (!file.ok() && file.error().code == Errc::kNotFound) {
        GN_ASSIGN(const NewStore what, new_store_for(o));
        file = StoreFile::create(o.file, what);
        if (file.ok()) GN_TRY(file.value()->plan_use(request));
    }
    GN_ASSIGN(std::unique_ptr<StoreFile> opened, std::move(file));
    if (opened->backbone(o.backbone) == BootBackbone::kDirect) {
        GN_ASSIGN(std::unique_ptr<DirectStore> store, DirectStore::over(std::move(opened)));
        return std::unique_ptr<Store>(std::move(store));
    }
    GN_ASSIGN(std::unique_ptr<FileStore> mapped, FileStore::over(std::move(opened)));
    return std::unique_ptr<Store>(std::move(mapped));
}

}  // namespace gnstor::ssd
