#include "ssd/flash/direct/read_ahead.hpp"

namespace gnstor::ssd {

using deengine::kNoPage;
using deengine::PageNumber;

ReadAhead::ReadAhead(std::uint32_t buffers)
    : memory_(std::size_t{buffers} * nvme::kBlockBytes), slots_(buffers) {}

std::uint32_t ReadAhead::find(PageNumber page) const {
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].page == page) return i;
    }
    return kNone;
}

std::uint32_t ReadAhead::announce(PageNumber page) {
    if (find(page) != kNone) return kNone;
    const auto count = static_cast<std::uint32_t>(slots_.size());
    std::uint32_t oldest = kNone;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t buffer = (next_ + i) % count;
        if (slots_[buffer].flying) continue;
        if (oldest == kNone || slots_[buffer].page == kNoPage) oldest = buffer;
        if (slots_[buffer].page == kNoPage) break;  // a free one: no page is dropped
    }
    if (oldest == kNone) return kNone;
    next_ = (oldest + 1) % count;
    slots_[oldest] = {page, true, false};
    return oldest;
}

void ReadAhead::ended(std::uint32_t buffer, bool whole) {
    slots_[buffer].flying = false;
    slots_[buffer].whole = whole;
}

void ReadAhead::release(std::uint32_t buffer) {
    slots_[buffer].page = kNoPage;
}

void ReadAhead::forget(PageNumber first, std::uint32_t count) {
    for (Slot& slot : slots_) {
        if (slot.page - first < count) slot.page = kNoPage;
    }
}

}  // namespace gnstor::ssd
