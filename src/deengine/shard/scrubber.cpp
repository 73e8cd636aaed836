// scrubber.cpp: pace of the scrub, and the check of one page.
#include "deengine/shard/scrubber.hpp"

#include <algorithm>
#include <optional>

namespace gnstor::deengine {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
constexpr std::uint32_t kPagesPerPoll = 32;
constexpr std::size_t kPlacesKept = 16;
constexpr std::size_t kNobodysKept = 64;

}  // namespace

Scrubber::Scrubber(ShardState& state, Collector& collector)
    : state_(state),
      collector_(collector),
      next_(state.range.first_unit * state.pages_per_unit),
      scratch_(nvme::kBlockBytes) {}

void Scrubber::poll(std::uint64_t now_ns) {
    if (last_ns_ != 0 && now_ns > last_ns_) {
        const std::uint64_t most = kPagesPerPoll * kNsPerSecond;
        const std::uint64_t passed = std::min(now_ns - last_ns_, kNsPerSecond);
        credit_ = std::min(credit_ + passed * state_.options.scrub_pages_per_second, most);
    }
    last_ns_ = now_ns;
    const ShardRange& range = state_.range;
    const UnitPool& pool = state_.pool;
    const std::uint32_t pages_per_unit = state_.pages_per_unit;
    const PageNumber end = (range.first_unit + range.units) * pages_per_unit;
    for (std::uint32_t skipped = 0; credit_ >= kNsPerSecond && skipped < range.units;) {
        if (next_ >= end) next_ = range.first_unit * pages_per_unit;
        const UnitInfo& info = pool.info(pool.unit_of(next_));
        const bool holds_data = info.state == UnitState::kSealed || info.state == UnitState::kRetiring ||
                                info.state == UnitState::kOpen;
        if (!holds_data || info.system || info.valid == 0 || next_ % pages_per_unit >= info.next) {
            next_ = (pool.unit_of(next_) + 1) * pages_per_unit;
            ++skipped;
            continue;
        }
        credit_ -= kNsPerSecond;
        check(next_++);
    }
}

void Scrubber::check(PageNumber page) {
    ++state_.counters.scrubbed;
    const std::pair<PageNumber, std::uint32_t> programmed{page, state_.pool.serial_of(page)};
    if (std::ranges::find(nobodys_, programmed) != nobodys_.end()) return;
    PageOob oob;
    const FlashStatus record = state_.flash.read_oob(page, oob);
    const bool known = has_data(record) && is_known_page(oob);
    if (known) {
        const auto entry = state_.map.find(make_key(oob.vid, oob.vba));
        if (!entry || entry->page != page || oob.kind != PageKind::kData) return;
    }
    std::optional<BlockKey> key;
    if (known) {
        key = make_key(oob.vid, oob.vba);
    } else if (key = state_.map.key_of_page(page); !key) {
        // Torn and unmapped. Remembered, because key_of_page() searches the whole map.
        if (nobodys_.size() == kNobodysKept) nobodys_.erase(nobodys_.begin());
        nobodys_.push_back(programmed);
        return;
    }
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    const FlashStatus status = known
                                   ? state_.flash.read(page, 0, nvme::kSectorsPerBlock, scratch_.data(), crcs)
                                   : FlashStatus::kUncorrectable;
    if (status == FlashStatus::kCorrected) collector_.note_corrected(page);
    if (has_data(status) && std::equal(std::begin(crcs), std::end(crcs), std::begin(oob.sector_crc))) return;
    ++state_.counters.scrub_bad;
    if (bad_places_.size() == kPlacesKept) bad_places_.erase(bad_places_.begin());
    bad_places_.push_back({page, *key, known});
    if (state_.options.on_scrub_error) state_.options.on_scrub_error(bad_places_.back());
}

}  // namespace gnstor::deengine
