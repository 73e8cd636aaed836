// read_ahead.hpp: buffers for announced pages, which are read while other pages are served; and which page is
// in which buffer.
//
// Bounded: without a usable buffer an announcement is dropped, since it is a hint. A page is taken once; a
// buffer whose page was never taken is reused only if no buffer is free. One owner thread.
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

    /// A buffer that the caller reads this page into; kNone: the page is already present or being read, or no
    /// buffer is usable.
    [[nodiscard]] std::uint32_t announce(deengine::PageNumber page);
    /// The read into a buffer has ended; `whole`: it read all bytes.
    void ended(std::uint32_t buffer, bool whole);
    /// The buffer that holds the page or that it is being read into; kNone: none.
    [[nodiscard]] std::uint32_t find(deengine::PageNumber page) const;
    [[nodiscard]] bool on_its_way(std::uint32_t buffer) const { return slots_[buffer].flying; }
    /// Whether its page was read completely. Valid once on_its_way() is false.
    [[nodiscard]] bool whole(std::uint32_t buffer) const { return slots_[buffer].whole; }
    void release(std::uint32_t buffer);
    /// These pages get new contents: invalidates their buffers, also those that are being filled.
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
    std::uint32_t next_ = 0;  // the search for a buffer starts here: the oldest announcement
};

}  // namespace gnstor::ssd
