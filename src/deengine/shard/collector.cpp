// collector.cpp: the bodies of collector.hpp.
#include "deengine/shard/collector.hpp"

#include "deengine/log/lost_page.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::deengine {
namespace {

constexpr std::uint32_t kSixteenths = 16;
constexpr std::uint8_t kCorrectedBeforeRewrite = 8;  ///< reads of a unit that needed correction

}  // namespace

Collector::Collector(ShardState& state, ShardLog& log, Durability& durability)
    : state_(state),
      log_(log),
      durability_(durability),
      corrected_(state.range.units),
      lost_page_(nvme::kBlockBytes) {}

bool Collector::has_victim() const {
    if (victim_ == kNoUnit) return false;
    const UnitInfo& info = state_.pool.info(victim_);
    const bool same = info.serial == victim_serial_ && !info.system &&
                      (info.state == UnitState::kSealed || info.state == UnitState::kRetiring);
    return same && info.valid != 0 && victim_next_ < info.next;
}

bool Collector::choose_victim() {
    const UnitPool& pool = state_.pool;
    victim_ = kNoUnit;
    std::uint32_t unit = pool.victim();
    const bool retiring = unit != kNoUnit && pool.info(unit).state == UnitState::kRetiring;
    while (!retiring && !rewrite_.empty()) {
        const std::uint32_t worn = rewrite_.back();
        rewrite_.pop_back();
        const UnitInfo& info = pool.info(worn);
        if (info.state == UnitState::kSealed && !info.system && info.valid != 0) {
            unit = worn;
            break;
        }
    }
    if (unit == kNoUnit) return false;
    const UnitInfo& info = pool.info(unit);
    const std::uint32_t pages = state_.pages_per_unit;
    if (info.state != UnitState::kRetiring && info.valid >= pages && corrected(unit) == 0)
        return false;  // nothing would be gained
    victim_ = unit;
    victim_serial_ = info.serial;
    victim_next_ = 0;
    const std::uint32_t gain = std::max(1u, pages - std::min(info.valid, pages));
    copy_rate_ = (kSixteenths * info.valid + gain - 1) / gain;
    return true;
}

std::uint32_t Collector::collect(std::uint32_t pages) {
    std::uint32_t moved = 0;
    std::uint32_t barren = 0;  // victims in a row with no page to move: there are no others
    while (moved < pages) {
        if (!has_victim()) {
            if (barren++ == 2 || !choose_victim()) break;
        }
        const Copied copied = copy_page(victim_ * state_.pages_per_unit + victim_next_);
        if (copied == Copied::kNoRoom) break;
        ++victim_next_;
        if (copied == Copied::kDead) continue;
        ++moved;
        barren = 0;
        if (state_.pool.info(victim_).valid != 0) continue;
        corrected(victim_) = 0;
        victim_ = kNoUnit;
    }
    return moved;
}

Collector::Copied Collector::copy_page(PageNumber from) {
    PageOob oob;
    const FlashStatus status = state_.flash.read_oob(from, oob);
    if (has_data(status) && is_known_page(oob)) {
        const BlockKey key = make_key(oob.vid, oob.vba);
        const auto entry = state_.map.find(key);
        if (!entry || entry->page != from) return Copied::kDead;
        return copy_as(key, from, oob, true);
    }
    // Rare: the record cannot be read; only the map knows the page's block.
    const auto key = state_.map.key_of_page(from);
    if (!key) return Copied::kDead;
    ++state_.counters.media_errors;
    const PageOob bound = state_.floors.lost_order(*key);
    if (state_.floors.find(bound.vid) != nullptr)
        state_.floors.note_change(bound.vid, bound.epoch, bound.vba, 1, bound.sequence);
    return copy_as(*key, from, bound, false);
}

/// Programs page `from` of `key` again with this record: its data, or a lost page.
Collector::Copied Collector::copy_as(BlockKey key, PageNumber from, PageOob oob, bool readable) {
    const std::byte* lost = kLostOrderPage.bytes;
    for (std::uint32_t attempt = 0; attempt < kProgramAttempts; ++attempt) {
        const PageNumber to = state_.pool.next_page(Stream::kCollector);
        if (to == kNoPage) return Copied::kNoRoom;
        oob.version = kOobVersion;
        oob.unit_serial = state_.pool.serial_of(to);
        oob.group = state_.groups.current();
        state_.note_program();
        std::uint32_t crcs[nvme::kSectorsPerBlock];
        const FlashStatus status =
            readable ? state_.flash.copy_back(from, to, oob, crcs) : state_.flash.program(to, lost, oob);
        if (has_data(status)) {
            state_.pool.programmed(Stream::kCollector, to);
            ++state_.counters.pages_programmed;
            ++state_.counters.gc_pages_copied;
            if (oob.kind != PageKind::kData && !readable) ++state_.counters.lost_blocks;
            if (state_.options.mutation != Mutation::kCollectorForgetsMap) [[likely]]
                (void)state_.map.update(key, {to, false});
            state_.forget_page(from);
            if (readable && std::memcmp(crcs, oob.sector_crc, sizeof(crcs)) != 0)
                durability_.note_damaged_copy(oob);
            return Copied::kMoved;
        }
        if (status == FlashStatus::kUncorrectable && readable) {
            ++state_.counters.media_errors;
            if (oob.kind == PageKind::kData) {
                oob.kind = PageKind::kLost;
                fill_lost_page(lost_page_.data(), content_crc(oob.sector_crc));
                lost = lost_page_.data();
            }
            readable = false;
        } else if (status == FlashStatus::kNoRoom) {
            if (!log_.exchange_open_unit(Stream::kCollector)) return Copied::kNoRoom;
        } else {
            (void)state_.pool.failed(Stream::kCollector, to);
            log_.record_bad_units();
        }
    }
    return Copied::kNoRoom;
}

void Collector::pay_for_user_page() {
    const std::uint32_t spare = spare_units();
    const std::uint32_t margin = state_.room.margin;
    if (spare > margin) {
        copy_debt_ = 0;
        return;
    }
    if (!has_victim() && !choose_victim()) return;
    copy_debt_ += spare + 1 < margin ? 2 * copy_rate_ : copy_rate_;
    if (copy_debt_ < kSixteenths) return;
    (void)collect(copy_debt_ / kSixteenths);
    copy_debt_ %= kSixteenths;
}

void Collector::collect_idle(std::uint32_t pages) {
    if (!has_victim()) {
        const std::uint32_t best = state_.pool.victim();
        if (best == kNoUnit) return;
        const UnitInfo& info = state_.pool.info(best);
        const bool worth = spare_units() < state_.room.margin + state_.room.ahead &&
                           info.valid <= state_.pages_per_unit - state_.pages_per_unit / 8;
        if (info.state != UnitState::kRetiring && rewrite_.empty() && !worth) return;
    }
    (void)collect(pages);
}

bool Collector::free_some() {
    if (state_.pool.emptied_units() == 0) return collect(state_.pages_per_unit) != 0;
    ++state_.counters.stalls;
    return durability_.sync_now();
}

/// Terminates: each turn frees a unit's worth of dead pages, or gives up.
bool Collector::make_room(Stream stream) {
    for (std::uint32_t turn = 0; turn < 4 * state_.range.units; ++turn) {
        if (state_.pool.has_page(stream)) return true;
        if (durability_.broken() || !free_some()) return false;
    }
    return state_.pool.has_page(stream);
}

/// A power cut leaves units half used that were open in the last groups, and does not free units that were
/// emptied into them. So each cut may cost one of the collector's few free units, and without any a drive
/// full of half used units never has room again.
void Collector::make_up_for_cut() {
    const UnitPool& pool = state_.pool;
    for (std::uint32_t turn = 0; turn < 4 * state_.range.units && !durability_.broken(); ++turn) {
        if (pool.free_units() > pool.left_for_others(Stream::kUser) + state_.room.margin) break;
        if (!free_some()) break;
    }
    cut_made_up_ = true;
}

void Collector::note_corrected(PageNumber page) {
    ++state_.counters.corrected;
    const std::uint32_t unit = state_.pool.unit_of(page);
    std::uint8_t& count = corrected(unit);
    if (count >= kCorrectedBeforeRewrite) return;
    if (++count == kCorrectedBeforeRewrite) rewrite_.push_back(unit);
}

}  // namespace gnstor::deengine
