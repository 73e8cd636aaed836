#include "ssd/flash/memory/memory_flash.hpp"

#include <gnstor/base/uuid.hpp>

#include "ssd/flash/file/store_head.hpp"

namespace gnstor::ssd {

Result<std::unique_ptr<MemoryFlash>> MemoryFlash::create(deengine::FlashGeometry geometry,
                                                         CopiesPastCaches past_caches) {
    if (geometry.pages() == 0 || geometry.pages() >= deengine::kNoPage) {
        return error(Errc::kInvalidArgument,
                     "a drive cannot have {} flash pages; choose 1 to 2^32 - 2 (up to 16 TiB)",
                     geometry.pages());
    }
    GN_ASSIGN(std::shared_ptr<MemoryPages> pages, MemoryPages::map(geometry));
    std::unique_ptr<MemoryFlash> flash(
        new MemoryFlash(std::move(pages), geometry, UnitRange{0, geometry.units}));
    flash->copy_past_caches(past_caches);
    return flash;
}

MemoryFlash::MemoryFlash(std::shared_ptr<MemoryPages> pages, deengine::FlashGeometry geometry,
                         UnitRange range)
    : pages_(std::move(pages)), range_(pages_->add_range(range)) {
    attach(geometry, pages_->data(), pages_->records(), nullptr, range, DriveSeed{});
}

std::unique_ptr<MemoryFlash> MemoryFlash::part(UnitRange range) const {
    std::unique_ptr<MemoryFlash> made(new MemoryFlash(pages_, geometry(), range));
    made->copy_past_caches(past_caches());
    (void)made->scan_records();
    return made;
}

MemoryStore::MemoryStore(std::unique_ptr<MemoryFlash> flash, StoreIdentity identity, std::uint64_t bytes)
    : flash_(std::move(flash)), at_opening_(bytes), identity_(std::move(identity)) {}

Result<std::unique_ptr<MemoryStore>> MemoryStore::create(deengine::FlashGeometry geometry,
                                                         StoreIdentity identity, MemoryUse use) {
    GN_ASSIGN(std::unique_ptr<MemoryFlash> flash, MemoryFlash::create(geometry, use.past_caches));
    identity.incarnation = Uuid::random().bytes;
    if (Uuid{identity.drive_uuid}.is_nil()) identity.drive_uuid = Uuid::random().bytes;
    if (identity.serial.empty()) identity.serial = serial_from(Uuid{identity.drive_uuid});
    return std::unique_ptr<MemoryStore>(
        new MemoryStore(std::move(flash), std::move(identity), use.bytes_at_opening));
}

Result<FlashParts> MemoryStore::parts(std::uint32_t count) {
    FlashParts made;
    for (std::uint32_t i = 0; i < count; ++i) {
        std::unique_ptr<MemoryFlash> part = flash_->part(UnitRange::of(flash_->geometry().units, i, count));
        if (at_opening_ != 0 && !part->give_memory(at_opening_ / count))
            return error(Errc::kNoSpace,
                         "cannot allocate {} bytes of memory when opening a drive: the machine has not "
                         "enough memory; allocate less at the opening",
                         at_opening_);
        made.push_back(std::move(part));
    }
    return made;
}

}  // namespace gnstor::ssd
