// pinned_memory.hpp: memory that lanes, NIC and host share: pools, queues, doorbells.
//
// Mapped by us and, for GPU lanes, registered with CUDA: when a CUDA context dies, the pages stay, so that
// the NIC's threads can still use them. Zeroed, page aligned. Host thread; any thread or lane may use the
// memory itself.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/simt/launch.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor::simt {

struct PinnedOptions {
    bool huge_pages = false;  ///< try huge pages (2 MiB); falls back to small ones silently
    /// Backed by a file (file()) that can be passed to another process, and that can grow and never shrink.
    bool shareable = false;
};

class PinnedMemory {
  public:
    PinnedMemory() = default;
    /// `bytes` are rounded up to whole pages. Also while a kernel runs, which may then use the memory; but
    /// destruction blocks until running kernels end (CUDA): do not shrink under a kernel.
    static Result<PinnedMemory> map(std::size_t bytes, LanesKind lanes, PinnedOptions options = {});
    ~PinnedMemory();
    PinnedMemory(PinnedMemory&& other) noexcept;
    PinnedMemory& operator=(PinnedMemory&& other) noexcept;

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    /// Where lanes see data(): the same address on every machine with unified addressing.
    [[nodiscard]] std::byte* lane_data() const noexcept { return lane_data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// The file behind shareable memory, from offset 0 on; -1 otherwise.
    [[nodiscard]] int file() const noexcept { return file_; }
    /// Leaves the pages mapped and registered until the process ends, and forgets them: for memory that an
    /// engine does not stop using.
    void leave_mapped() noexcept { data_ = nullptr; }

  private:
    void release() noexcept;
    std::byte* data_ = nullptr;
    std::byte* lane_data_ = nullptr;
    std::size_t size_ = 0;
    int file_ = -1;
    bool registered_ = false;
};

/// Whether the NIC's threads and lanes of this kind can both use [base, base + bytes): any host memory with
/// CPU lanes, memory that CUDA has pinned (PinnedMemory, cudaHostAlloc, cudaHostRegister) with GPU lanes.
/// kInvalidArgument says what it is instead.
[[nodiscard]] Result<void> check_shared_memory(const void* base, std::size_t bytes, LanesKind lanes);

}  // namespace gnstor::simt
