// pinned_memory.cpp: mapping, registration with CUDA, and their undoing in reverse order.
#include <gnstor/base/log.hpp>
#include <gnstor/base/units.hpp>
#include <gnstor/simt/pinned_memory.hpp>

#include "simt/cuda_result.hpp"
#include "simt/memory_limits.hpp"
#include "simt/shared_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace gnstor::simt {
namespace {

std::size_t rounded(std::size_t bytes, std::size_t page) {
    return (bytes + page - 1) / page * page;
}

}  // namespace

Result<PinnedMemory> PinnedMemory::map(std::size_t bytes, LanesKind lanes, PinnedOptions options) {
    if (bytes == 0 || bytes > kBytesMax)
        return error(Errc::kInvalidArgument, "cannot allocate pinned memory of {}; give 1 B to {}",
                     format_bytes(bytes), format_bytes(kBytesMax));
    GN_TRY(check_lanes(lanes));
    PinnedMemory memory;
    void* at = MAP_FAILED;
    if (options.shareable) {
        memory.size_ = rounded(bytes, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
        GN_ASSIGN(memory.file_, make_shared_file());
        GN_TRY(grow_shared_file(memory.file_, memory.size_));
        at = mmap(nullptr, memory.size_, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file_, 0);
    } else if (options.huge_pages && bytes >= kHugePage) {
        memory.size_ = rounded(bytes, kHugePage);
        at = mmap(nullptr, memory.size_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
    }
    if (at == MAP_FAILED && !options.shareable) {
        memory.size_ = rounded(bytes, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
        at = mmap(nullptr, memory.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        // Only advice: the kernel may merge the pages into huge ones later, or not.
        if (at != MAP_FAILED && options.huge_pages) (void)madvise(at, memory.size_, MADV_HUGEPAGE);
    }
    if (at == MAP_FAILED)
        return error(Errc::kNoSpace, "cannot map {} of memory: {}; use fewer or shallower channels",
                     format_bytes(memory.size_), std::strerror(errno));
    memory.data_ = static_cast<std::byte*>(at);
    memory.lane_data_ = memory.data_;
#if GN_WITH_CUDA
    if (lanes == LanesKind::kGpu) {
        GN_TRY(
            cuda_result(cudaHostRegister(at, memory.size_, cudaHostRegisterPortable | cudaHostRegisterMapped),
                        "register host memory (is the locked-memory limit, ulimit -l, too low?)"));
        memory.registered_ = true;
        void* seen = nullptr;
        GN_TRY(cuda_result(cudaHostGetDevicePointer(&seen, at, 0), "map registered host memory"));
        memory.lane_data_ = static_cast<std::byte*>(seen);
    }
#endif
    return memory;
}

void PinnedMemory::release() noexcept {
    if (file_ >= 0) ::close(file_);  // mappings keep the pages
    file_ = -1;
    if (data_ == nullptr) return;
#if GN_WITH_CUDA
    // Fails if the context is dead; then its registrations are gone too, and the pages are ours in any case.
    if (registered_ && cudaHostUnregister(data_) != cudaSuccess) (void)cudaGetLastError();
#endif
    if (munmap(data_, size_) != 0)
        log_error("cannot unmap {} at {}: {}", size_, static_cast<const void*>(data_), std::strerror(errno));
    data_ = nullptr;
}

PinnedMemory::~PinnedMemory() {
    release();
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      lane_data_(std::exchange(other.lane_data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      file_(std::exchange(other.file_, -1)),
      registered_(std::exchange(other.registered_, false)) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
    if (this != &other) {
        release();
        data_ = std::exchange(other.data_, nullptr);
        lane_data_ = std::exchange(other.lane_data_, nullptr);
        size_ = std::exchange(other.size_, 0);
        file_ = std::exchange(other.file_, -1);
        registered_ = std::exchange(other.registered_, false);
    }
    return *this;
}

Result<void> check_shared_memory(const void* base, std::size_t bytes, LanesKind lanes) {
    if (lanes == LanesKind::kCpu) return {};
#if GN_WITH_CUDA
    for (const std::size_t offset : {std::size_t{0}, bytes - 1}) {
        cudaPointerAttributes attributes{};
        GN_TRY(
            cuda_result(cudaPointerGetAttributes(&attributes, static_cast<const std::byte*>(base) + offset),
                        "tell which kind of memory this is"));
        if (attributes.type == cudaMemoryTypeHost) continue;
        return error(Errc::kInvalidArgument,
                     "{} bytes at {} are not pinned host memory, the only memory that a software NIC and GPU "
                     "lanes can share; allocate them with PinnedMemory or cudaHostAlloc",
                     bytes, base);
    }
    return {};
#else
    (void)base;
    (void)bytes;
    return check_lanes(lanes);
#endif
}

}  // namespace gnstor::simt
