// pinned_range.hpp: memory that lanes, NIC and host share, and that grows in place: addresses are reserved
// once, memory comes in parts.
//
// As PinnedMemory, but it can grow: extend() may be called while a kernel runs, and the kernel may use the
// new part; destruction blocks until running kernels end (CUDA). One host thread at a time.
#pragma once

#include <gnstor/simt/pinned_memory.hpp>

#include <vector>

namespace gnstor::simt {

class PinnedRange {
  public:
    PinnedRange() = default;
    /// Reserves addresses for `bytes_max` bytes (rounded up to pages); none of them may be touched yet.
    static Result<PinnedRange> reserve(std::size_t bytes_max, LanesKind lanes, PinnedOptions options = {});
    ~PinnedRange();
    PinnedRange(PinnedRange&& other) noexcept;
    PinnedRange& operator=(PinnedRange&& other) noexcept;

    /// Appends zeroed memory, in whole pages. Returns its first address, the same for lanes.
    Result<std::byte*> extend(std::size_t bytes);

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    /// Bytes that extend() has made usable so far.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// The file behind a shareable range (PinnedOptions), which begins at data(); -1 otherwise.
    [[nodiscard]] int file() const noexcept { return file_; }
    /// Leaves the pages mapped and registered until the process ends, and forgets them.
    void leave_mapped() noexcept { data_ = nullptr; }

  private:
    Result<void> back(std::byte* part, std::size_t bytes);
    void unregister(std::byte* part) noexcept;
    void release() noexcept;

    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t reserved_ = 0;
    LanesKind lanes_ = LanesKind::kCpu;
    bool huge_pages_ = false;
    int file_ = -1;
    std::vector<std::byte*> parts_;  ///< that CUDA has registered
};

}  // namespace gnstor::simt
