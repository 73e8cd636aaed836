// scrub.cpp: reads data at rest in the background, to find pages that rotted while replicas are intact.
//
// Round robin over the programmed pages of data units, at the rate that the options give; a mapped page that
// fails is counted and its place kept. A page whose record cannot be read may be torn: then the map does not
// name it. Scrub moves no data, but has units rewritten that need correction too often (collector.cpp).
#include "deengine/shard/shard_impl.hpp"

#include <algorithm>

namespace gnstor::deengine {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
constexpr std::uint32_t kPagesPerPoll = 32;
constexpr std::size_t kPlacesKept = 16;
constexpr std::size_t kNobodysKept = 64;

}  // namespace

void Shard::Impl::scrub(std::uint64_t now_ns) {
    if (scrub_last_ns != 0 && now_ns > scrub_last_ns) {
        const std::uint64_t most = kPagesPerPoll * kNsPerSecond;
        const std::uint64_t passed = std::min(now_ns - scrub_last_ns, kNsPerSecond);
        scrub_credit = std::min(scrub_credit + passed * options.scrub_pages_per_second, most);
    }
    scrub_last_ns = now_ns;
    const PageNumber end = (range.first_unit + range.units) * pages_per_unit;
    for (std::uint32_t skipped = 0; scrub_credit >= kNsPerSecond && skipped < range.units;) {
        if (scrub_next >= end) scrub_next = range.first_unit * pages_per_unit;
        const UnitInfo& info = pool.info(pool.unit_of(scrub_next));
        const bool holds_data = info.state == UnitState::kSealed || info.state == UnitState::kRetiring ||
                                info.state == UnitState::kOpen;
        if (!holds_data || info.system || info.valid == 0 || scrub_next % pages_per_unit >= info.next) {
            scrub_next = (pool.unit_of(scrub_next) + 1) * pages_per_unit;
            ++skipped;
            continue;
        }
        scrub_credit -= kNsPerSecond;
        scrub_page(scrub_next++);
    }
}

void Shard::Impl::scrub_page(PageNumber page) {
    ++counters.scrubbed;
    const std::pair<PageNumber, std::uint32_t> programmed{page, pool.serial_of(page)};
    if (std::ranges::find(nobodys, programmed) != nobodys.end()) return;
    PageOob oob;
    const FlashStatus record = flash.read_oob(page, oob);
    const bool known = has_data(record) && is_known_page(oob);
    if (known) {
        const auto entry = map.find(make_key(oob.vid, oob.vba));
        if (!entry || entry->page != page || oob.kind != PageKind::kData) return;
    }
    std::optional<BlockKey> key;
    if (known) {
        key = make_key(oob.vid, oob.vba);
    } else if (key = key_of_page(page); !key) {
        // Torn and unmapped. Remembered, because key_of_page() searches the whole map.
        if (nobodys.size() == kNobodysKept) nobodys.erase(nobodys.begin());
        nobodys.push_back(programmed);
        return;
    }
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    const FlashStatus status = known ? flash.read(page, 0, nvme::kSectorsPerBlock, read_scratch.data(), crcs)
                                     : FlashStatus::kUncorrectable;
    if (status == FlashStatus::kCorrected) note_corrected(page);
    if (has_data(status) && std::equal(std::begin(crcs), std::end(crcs), std::begin(oob.sector_crc))) return;
    ++counters.scrub_bad;
    if (bad_places.size() == kPlacesKept) bad_places.erase(bad_places.begin());
    bad_places.push_back({page, *key, known});
    if (options.on_scrub_error) options.on_scrub_error(bad_places.back());
}

}  // namespace gnstor::deengine
