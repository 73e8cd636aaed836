#include "ssd/memory_flash.hpp"

#include <gnstor/base/uuid.hpp>

#include "base/large_pages.hpp"
#include "ssd/store_head.hpp"

#include <cerrno>
#include <cstring>

namespace gnstor::ssd {

Result<std::unique_ptr<MemoryFlash>> MemoryFlash::create(deengine::FlashGeometry geometry) {
    if (geometry.pages() == 0 || geometry.pages() >= deengine::kNoPage) {
        return error(Errc::kInvalidArgument,
                     "a drive cannot have {} flash pages; choose 1 to 2^32 - 2 (up to 16 TiB)",
                     geometry.pages());
    }
    const std::size_t data_bytes = geometry.pages() * nvme::kBlockBytes;
    const std::size_t bytes = data_bytes + geometry.pages() * sizeof(deengine::PageOob);
    void* at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return error(Errc::kNoSpace,
                     "cannot map {} bytes of memory for a drive: {}; choose a smaller capacity or a file",
                     bytes, std::strerror(errno));
    }
    std::unique_ptr<MemoryFlash> flash(new MemoryFlash(std::make_shared<Mapping>(at, bytes)));
    auto* base = static_cast<std::byte*>(at);
    // A read at random misses the translation of a record's page, unless that is large. (Of the data, reads
    // take 64 lines a page, and a large page's first touch may take very long on a virtual machine.)
    advise_large_pages(base + data_bytes, bytes - data_bytes);
    flash->attach(geometry, base, base + data_bytes);
    return flash;
}

std::unique_ptr<MemoryFlash> MemoryFlash::part(UnitRange range) const {
    std::unique_ptr<MemoryFlash> made(new MemoryFlash(mapping_));
    made->attach(geometry(), data_of(0), records(), range);
    made->scan_write_pointers();
    return made;
}

void MemoryFlash::release_unit(std::uint32_t unit) {
    const std::size_t bytes = std::size_t{geometry().pages_per_unit} * nvme::kBlockBytes;
    // Advice: where it is refused the memory merely stays in use.
    (void)::madvise(data_of(unit * geometry().pages_per_unit), bytes, MADV_DONTNEED);
}

MemoryStore::MemoryStore(std::unique_ptr<MemoryFlash> flash, StoreIdentity identity)
    : flash_(std::move(flash)), identity_(std::move(identity)) {}

Result<std::unique_ptr<MemoryStore>> MemoryStore::create(deengine::FlashGeometry geometry,
                                                         StoreIdentity identity) {
    GN_ASSIGN(std::unique_ptr<MemoryFlash> flash, MemoryFlash::create(geometry));
    identity.incarnation = Uuid::random().bytes;
    if (Uuid{identity.drive_uuid}.is_nil()) identity.drive_uuid = Uuid::random().bytes;
    if (identity.serial.empty()) identity.serial = serial_from(Uuid{identity.drive_uuid});
    return std::unique_ptr<MemoryStore>(new MemoryStore(std::move(flash), std::move(identity)));
}

Result<FlashParts> MemoryStore::parts(std::uint32_t count) {
    FlashParts made;
    for (std::uint32_t i = 0; i < count; ++i)
        made.push_back(flash_->part(UnitRange::of(flash_->geometry().units, i, count)));
    return made;
}

}  // namespace gnstor::ssd
