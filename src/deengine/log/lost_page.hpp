// lost_page.hpp: contents of a lost page (PageKind::kLost), which stands for contents that cannot be read.
//
// The record of a lost page tells block, epoch and sequence; the third part of its order is the CRC of
// contents that are gone, so the page stores it: four bytes, little-endian, zeroes behind them. With it the
// same contents sent again repair the block, and others of that sequence do so only if they are newer
// (docs/array.md, rules 7 and 13). 0: not known, because a lost page was itself lost; any contents repair the
// block. A page of kLostOrder is all zeroes: its order is only a bound.
#pragma once

#include "deengine/map/order.hpp"

#include <cstring>

namespace gnstor::deengine {

inline void fill_lost_page(std::byte* page, std::uint32_t content) {
    std::memset(page, 0, nvme::kBlockBytes);
    std::memcpy(page, &content, sizeof(content));
}

/// Contents of a page of kLostOrder.
struct alignas(64) ZeroPage {
    std::byte bytes[nvme::kBlockBytes] = {};
};
inline constexpr ZeroPage kLostOrderPage{};

/// Whether a page's contents can be read and are those that its record tells. `scratch` has room for one
/// page.
inline bool is_intact(Flash& flash, PageNumber page, const PageOob& oob, std::byte* scratch) {
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    return has_data(flash.read(page, 0, nvme::kSectorsPerBlock, scratch, crcs)) &&
           std::memcmp(crcs, oob.sector_crc, sizeof(crcs)) == 0;
}

/// The order of the version that a page holds or stands for. Reads the page only if it is a lost one.
inline WriteOrder order_of_page(Flash& flash, PageNumber page, const PageOob& oob, std::byte* scratch) {
    WriteOrder order = WriteOrder::of(oob);
    if (oob.kind != PageKind::kLost) return order;
    if (is_intact(flash, page, oob, scratch)) std::memcpy(&order.crc, scratch, sizeof(order.crc));
    return order;
}

}  // namespace gnstor::deengine
