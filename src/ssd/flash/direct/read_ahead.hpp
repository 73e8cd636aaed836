// read_ahead.hpp: pages that were announced and are read while others are served: buffers, and which page is
// in which.
//
// Bounded: an announcement without a free buffer is forgotten, for it is a hint. A page is taken once; a
// buffer that nobody came for is given to an announcement only when none is free. One owner thread.
#pragma once

#include "deengine/flash.hpp"
#include "ssd/flash/direct/aligned_buffer.hpp"

#include <cstdint>
#include <vector>

namespace gnstor::ssd {

class ReadAhead {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
    explicit ReadAhead(std::uint32_t buffers);

    /// A buffer for this page, to be read into by the caller; kNone: it is there or on its way already, or no
    /// buffer is free.
    [[nodiscard]] std::uint32_t announce(deengine::PageNumber page);
    /// The read of a buffer has ended.
    void ended(std::uint32_t buffer, bool whole);
    /// Which buffer a page is in, or on its way to; kNone: none.
    [[nodiscard]] std::uint32_t find(deengine::PageNumber page) const;
    [[nodiscard]] bool on_its_way(std::uint32_t buffer) const { return slots_[buffer].flying; }
    /// Its page was read whole. After on_its_way() has ended.
    [[nodiscard]] bool whole(std::uint32_t buffer) const { return slots_[buffer].whole; }
    void release(std::uint32_t buffer);
    /// These pages will be something else: what is there, or on its way, is not theirs any more.
    void forget(deengine::PageNumber first, std::uint32_t count);
    [[nodiscard]] std::byte* data(std::uint32_t buffer) const {
        return memory_.data() + std::size_t{buffer} * nvme::kBlockBytes;
    }

  private:
    struct Slot {
        deengine::PageNumber page = deengine::kNoPage;
        bool flying = false;
        bool whole = false;
    };
    AlignedBuffer memory_;
    std::vector<Slot> slots_;
    std::uint32_t next_ = 0;  // where the search for a buffer begins: the oldest announcement
};

}  // namespace gnstor::ssd
