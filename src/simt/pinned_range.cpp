// pinned_range.cpp: reserving addresses, backing them part by part, registration with CUDA.
#include <gnstor/base/log.hpp>
#include <gnstor/base/units.hpp>
#include <gnstor/simt/pinned_range.hpp>

#include "simt/cuda_result.hpp"
#include "simt/memory_limits.hpp"
#include "simt/shared_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace gnstor::simt {
Result<PinnedRange> PinnedRange::reserve(std::size_t bytes_max, LanesKind lanes, PinnedOptions options) {
    if (bytes_max == 0 || bytes_max > kBytesMax)
        return error(Errc::kInvalidArgument, "cannot reserve a pinned range of {}; give 1 B to {}",
                     format_bytes(bytes_max), format_bytes(kBytesMax));
    GN_TRY(check_lanes(lanes));
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    PinnedRange range;
    range.reserved_ = (bytes_max + page - 1) / page * page;
    range.lanes_ = lanes;
    range.huge_pages_ = options.huge_pages && !options.shareable;
    if (options.shareable) {
        GN_ASSIGN(range.file_, make_shared_file());
    }
    // Huge pages need a range that begins at a boundary of 2 MiB.
    const std::size_t slack = range.huge_pages_ ? kHugePage - page : 0;
    void* const at =
        mmap(nullptr, range.reserved_ + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return error(Errc::kNoSpace, "cannot reserve {} of addresses: {}; give a smaller maximum size",
                     format_bytes(range.reserved_), std::strerror(errno));
    const std::size_t before = (0 - reinterpret_cast<std::uintptr_t>(at)) & slack;
    range.data_ = static_cast<std::byte*>(at) + before;
    // Unmaps the rest; if that fails, some addresses stay reserved, but no memory.
    if (before != 0) (void)munmap(at, before);
    if (slack != before) (void)munmap(range.data_ + range.reserved_, slack - before);
    return range;
}

Result<std::byte*> PinnedRange::extend(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (bytes == 0 || bytes % page != 0 || bytes > reserved_ - size_)
        return error(Errc::kInvalidArgument,
                     "cannot add {} to a pinned range that has {} of its {}; give whole pages that fit",
                     format_bytes(bytes), format_bytes(size_), format_bytes(reserved_));
    std::byte* const part = data_ + size_;
    GN_TRY(back(part, bytes));
#if GN_WITH_CUDA
    if (lanes_ == LanesKind::kGpu) {
        Result<void> seen =
            cuda_result(cudaHostRegister(part, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
                        "register host memory (is the locked-memory limit, ulimit -l, too low?)");
        if (seen.ok()) {
            parts_.push_back(part);
            void* address = nullptr;
            seen = cuda_result(cudaHostGetDevicePointer(&address, part, 0), "map registered host memory");
            if (seen.ok() && address != part)
                seen = error(Errc::kUnsupported,
                             "pinned memory has another address on this GPU; unified addressing is needed");
        }
        if (!seen.ok()) {
            if (mprotect(part, bytes, PROT_NONE) != 0)
                log_warn("cannot protect {} bytes at {} again: they stay mapped", bytes,
                         static_cast<const void*>(part));
            return seen.error();
        }
    }
#endif
    size_ += bytes;
    return part;
}

/// Backs reserved addresses with memory: huge pages where asked for and aligned, else small ones.
Result<void> PinnedRange::back(std::byte* part, std::size_t bytes) {
    if (file_ >= 0) {
        GN_TRY(grow_shared_file(file_, size_ + bytes));
        if (mmap(part, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
                 static_cast<off_t>(size_)) == MAP_FAILED)
            return error(Errc::kNoSpace, "cannot map {} of memory: {}", format_bytes(bytes),
                         std::strerror(errno));
        return {};
    }
    const bool aligned = (reinterpret_cast<std::uintptr_t>(part) | bytes) % kHugePage == 0;
    if (huge_pages_ && aligned) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB | MAP_POPULATE;
        if (mmap(part, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED) return {};
        // A MAP_FIXED that failed may have removed the reservation.
        const int plain = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
        if (mmap(part, bytes, PROT_NONE, plain, -1, 0) == MAP_FAILED)
            return error(Errc::kNoSpace, "cannot map {} of memory: {}", format_bytes(bytes),
                         std::strerror(errno));
    }
    if (mprotect(part, bytes, PROT_READ | PROT_WRITE) != 0)
        return error(Errc::kNoSpace, "cannot map {} of memory: {}; use fewer or smaller pools",
                     format_bytes(bytes), std::strerror(errno));
    // Only advice: the kernel may merge the pages into huge ones later, or not.
    if (huge_pages_) (void)madvise(part, bytes, MADV_HUGEPAGE);
    return {};
}

void PinnedRange::unregister([[maybe_unused]] std::byte* part) noexcept {
#if GN_WITH_CUDA
    // Fails if the context is dead; then its registrations are gone too, and the pages are ours in any case.
    if (cudaHostUnregister(part) != cudaSuccess) (void)cudaGetLastError();
#endif
}

void PinnedRange::release() noexcept {
    if (file_ >= 0) ::close(file_);  // mappings keep the pages
    file_ = -1;
    if (data_ == nullptr) return;
    for (std::byte* part : parts_) unregister(part);
    if (munmap(data_, reserved_) != 0)
        log_error("cannot unmap {} at {}: {}", reserved_, static_cast<const void*>(data_),
                  std::strerror(errno));
    data_ = nullptr;
}

PinnedRange::~PinnedRange() {
    release();
}

PinnedRange::PinnedRange(PinnedRange&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      reserved_(std::exchange(other.reserved_, 0)),
      lanes_(other.lanes_),
      huge_pages_(other.huge_pages_),
      file_(std::exchange(other.file_, -1)),
      parts_(std::move(other.parts_)) {}

PinnedRange& PinnedRange::operator=(PinnedRange&& other) noexcept {
    if (this != &other) {
        release();
        data_ = std::exchange(other.data_, nullptr);
        size_ = std::exchange(other.size_, 0);
        reserved_ = std::exchange(other.reserved_, 0);
        lanes_ = other.lanes_;
        huge_pages_ = other.huge_pages_;
        file_ = std::exchange(other.file_, -1);
        parts_ = std::move(other.parts_);
    }
    return *this;
}

}  // namespace gnstor::simt
