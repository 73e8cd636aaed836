// journal_index.cpp: sorted places; a page is good if its data passes the sector CRCs of its record and its
// header says the same as the record.
#include "deengine/log/journal_index.hpp"

#include <algorithm>

namespace gnstor::deengine {

void JournalIndex::add(PageNumber page, const PageOob& oob) {
    places_.push_back({oob.sequence, page, oob.unit_serial, oob.group, oob.crc,
                       static_cast<JournalPage>(static_cast<std::uint16_t>(oob.epoch))});
}

void JournalIndex::sort() {
    std::ranges::sort(places_, [](const JournalPlace& a, const JournalPlace& b) {
        return a.number != b.number ? a.number < b.number : a.unit_serial > b.unit_serial;
    });
}

std::span<const JournalPlace> JournalIndex::find(std::uint64_t number) const {
    // Two searches: clang 14 does not compile libstdc++'s ranges::equal_range.
    const auto first = std::ranges::lower_bound(places_, number, {}, &JournalPlace::number);
    const auto last = std::ranges::upper_bound(places_, number, {}, &JournalPlace::number);
    return {first, last};
}

const JournalHeader* JournalIndex::read(const JournalPlace& place) {
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    PageOob oob{};
    const FlashStatus status =
        flash_.read_page(place.page, 0, nvme::kSectorsPerBlock, page_.data(), crcs, oob);
    if (!has_data(status) || std::memcmp(crcs, oob.sector_crc, sizeof(crcs)) != 0) return nullptr;
    std::memcpy(&header_, page_.data(), sizeof(header_));
    const bool good = header_.magic == kJournalMagic && header_.version == kJournalVersion &&
                      header_.number == place.number && header_.type == place.type;
    return good ? &header_ : nullptr;
}

}  // namespace gnstor::deengine
