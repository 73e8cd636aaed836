// pinned_range.hpp: memory that lanes, NIC and host share, and that grows in place: addresses are reserved
// once, memory comes in parts.
//
// As PinnedMemory, with the rule of growing: extend() may be called while a kernel runs, and the kernel may
// use the new part; destruction blocks until running kernels end (CUDA). One host thread at a time.
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

    /// Puts zeroed memory behind what is there: whole pages. Returns where it begins, the same address for
    /// lanes.
    Result<std::byte*> extend(std::size_t bytes);

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    /// What extend() made usable so far.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Where shareable (PinnedOptions): the file behind it, which begins at data(); -1 otherwise.
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
