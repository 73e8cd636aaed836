#include "ssd/memory_flash.hpp"

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
    std::unique_ptr<MemoryFlash> flash(new MemoryFlash(Mapping(at, bytes)));
    auto* base = static_cast<std::byte*>(at);
    flash->attach(geometry, base, base + data_bytes);
    return flash;
}

void MemoryFlash::release_unit(std::uint32_t unit) {
    const std::size_t bytes = std::size_t{geometry().pages_per_unit} * nvme::kBlockBytes;
    // Advice: where it is refused the memory merely stays in use.
    (void)::madvise(data_of(unit * geometry().pages_per_unit), bytes, MADV_DONTNEED);
}

}  // namespace gnstor::ssd
