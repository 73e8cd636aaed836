// collector.cpp: garbage collection: choice of the victim unit, copies of its valid pages, and their pace.
//
// Greedy: the sealed data unit with fewest valid pages; units that failed (retiring) and units whose reads
// need correction come first. A page is valid if the map names it. Each page that a user writes causes enough
// copies to free the victim by the time its room is needed, so that no write waits for a whole unit; an idle
// shard collects a little ahead. A page that cannot be read becomes a lost page: its reads fail, its order
// counts.
// Invariants
//   * the map names the copy before the original is given up;
//   * a victim is erased only after the group of its last copy is durable (UnitPool); where a copy has
//     damaged contents, which look torn, two groups later (hold_units_back()).
#include "deengine/shard/shard_impl.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace gnstor::deengine {
namespace {

constexpr std::uint32_t kSixteenths = 16;
constexpr std::uint8_t kCorrectedBeforeRewrite = 8;  ///< reads of a unit that needed correction

}  // namespace

bool Shard::Impl::has_victim() const {
    if (victim == kNoUnit) return false;
    const UnitInfo& info = pool.info(victim);
    const bool same = info.serial == victim_serial && !info.system &&
                      (info.state == UnitState::kSealed || info.state == UnitState::kRetiring);
    return same && info.valid != 0 && victim_next < info.next;
}

bool Shard::Impl::choose_victim() {
    victim = kNoUnit;
    std::uint32_t unit = pool.victim();
    const bool retiring = unit != kNoUnit && pool.info(unit).state == UnitState::kRetiring;
    while (!retiring && !rewrite.empty()) {
        const std::uint32_t worn = rewrite.back();
        rewrite.pop_back();
        const UnitInfo& info = pool.info(worn);
        if (info.state == UnitState::kSealed && !info.system && info.valid != 0) {
            unit = worn;
            break;
        }
    }
    if (unit == kNoUnit) return false;
    const UnitInfo& info = pool.info(unit);
    if (info.state != UnitState::kRetiring && info.valid >= pages_per_unit &&
        corrected[unit - range.first_unit] == 0)
        return false;  // nothing would be gained
    victim = unit;
    victim_serial = info.serial;
    victim_next = 0;
    const std::uint32_t gain = std::max(1u, pages_per_unit - std::min(info.valid, pages_per_unit));
    copy_rate = (kSixteenths * info.valid + gain - 1) / gain;
    return true;
}

std::uint32_t Shard::Impl::collect(std::uint32_t pages) {
    std::uint32_t moved = 0;
    std::uint32_t barren = 0;  // victims in a row with no page to move: there are no others
    while (moved < pages) {
        if (!has_victim()) {
            if (barren++ == 2 || !choose_victim()) break;
        }
        const Copied copied = copy_page(victim * pages_per_unit + victim_next);
        if (copied == Copied::kNoRoom) break;
        ++victim_next;
        if (copied == Copied::kDead) continue;
        ++moved;
        barren = 0;
        if (pool.info(victim).valid != 0) continue;
        corrected[victim - range.first_unit] = 0;
        victim = kNoUnit;
    }
    return moved;
}

Shard::Impl::Copied Shard::Impl::copy_page(PageNumber from) {
    PageOob oob;
    const FlashStatus status = flash.read_oob(from, oob);
    if (has_data(status) && is_known_page(oob)) {
        const BlockKey key = make_key(oob.vid, oob.vba);
        const auto entry = map.find(key);
        if (!entry || entry->page != from) return Copied::kDead;
        return copy_as(key, from, oob, true);
    }
    // Rare: the record cannot be read; only the map knows the page's block.
    const auto key = key_of_page(from);
    if (!key) return Copied::kDead;
    ++counters.media_errors;
    return copy_as(*key, from, lost_order(*key), false);
}

/// Programs page `from` of `key` again with this record: its data, or a lost page.
Shard::Impl::Copied Shard::Impl::copy_as(BlockKey key, PageNumber from, PageOob oob, bool readable) {
    const std::byte* lost = zeroes.data();
    for (std::uint32_t attempt = 0; attempt < kProgramAttempts; ++attempt) {
        const PageNumber to = pool.next_page(Stream::kCollector);
        if (to == kNoPage) return Copied::kNoRoom;
        oob.version = kOobVersion;
        oob.unit_serial = pool.serial_of(to);
        oob.group = groups.current;
        note_programmed();
        std::uint32_t crcs[nvme::kSectorsPerBlock];
        const FlashStatus status =
            readable ? flash.copy_back(from, to, oob, crcs) : flash.program(to, lost, oob);
        if (has_data(status)) {
            pool.programmed(Stream::kCollector, to);
            ++counters.pages_programmed;
            ++counters.gc_pages_copied;
            if (oob.kind != PageKind::kData && !readable) ++counters.lost_blocks;
            if (options.mutation != Mutation::kCollectorForgetsMap) [[likely]]
                (void)map.update(key, {to, false});
            forget_page(from);
            if (readable && std::memcmp(crcs, oob.sector_crc, sizeof(crcs)) != 0) hold_units_back(oob);
            return Copied::kMoved;
        }
        if (status == FlashStatus::kUncorrectable && readable) {
            ++counters.media_errors;
            if (oob.kind == PageKind::kData) {
                oob.kind = PageKind::kLost;
                fill_lost_page(read_scratch.data(), content_crc(oob.sector_crc));
                lost = read_scratch.data();
            }
            readable = false;
        } else if (status == FlashStatus::kNoRoom) {
            if (!exchange_open_unit(Stream::kCollector)) return Copied::kNoRoom;
        } else {
            (void)pool.failed(Stream::kCollector, to);
            record_bad_units();
        }
    }
    return Copied::kNoRoom;
}

/// The record of a block whose order cannot be read: bounded by the highest order seen in its volume.
PageOob Shard::Impl::lost_order(BlockKey key) const {
    PageOob oob{};
    oob.vid = key_volume(key);
    oob.vba = key_block(key);
    oob.kind = PageKind::kLostOrder;
    const VolumeFloor* seen = floors.find(oob.vid);
    oob.epoch = seen != nullptr ? seen->epoch : ~nvme::Epoch{0};
    oob.sequence = seen != nullptr ? seen->highest : ~std::uint64_t{0};
    return oob;
}

std::optional<BlockKey> Shard::Impl::key_of_page(PageNumber page) const {
    std::optional<BlockKey> found;
    map.for_each([&](BlockKey key, MapEntry entry) {
        if (entry.page == page) found = key;
    });
    return found;
}

void Shard::Impl::pay_for_user_page() {
    const std::uint32_t spare = spare_units();
    if (spare > room.margin) {
        copy_debt = 0;
        return;
    }
    if (!has_victim() && !choose_victim()) return;
    copy_debt += spare + 1 < room.margin ? 2 * copy_rate : copy_rate;
    if (copy_debt < kSixteenths) return;
    (void)collect(copy_debt / kSixteenths);
    copy_debt %= kSixteenths;
}

void Shard::Impl::collect_idle(std::uint32_t pages) {
    if (!has_victim()) {
        const std::uint32_t best = pool.victim();
        if (best == kNoUnit) return;
        const UnitInfo& info = pool.info(best);
        const bool worth =
            spare_units() < room.margin + room.ahead && info.valid <= pages_per_unit - pages_per_unit / 8;
        if (info.state != UnitState::kRetiring && rewrite.empty() && !worth) return;
    }
    (void)collect(pages);
}

/// Terminates: each turn frees a unit's worth of dead pages, or gives up.
bool Shard::Impl::make_room(Stream stream) {
    for (std::uint32_t turn = 0; turn < 4 * range.units; ++turn) {
        if (pool.has_page(stream)) return true;
        if (broken) return false;
        if (pool.emptied_units() != 0) {
            ++counters.stalls;
            if (!sync_now()) return false;
        } else if (collect(pages_per_unit) == 0) {
            return false;
        }
    }
    return pool.has_page(stream);
}

/// A power cut leaves units half used that were open in the last groups, and does not free units that were
/// emptied into them. So each cut may cost one of the collector's few free units, and without any a drive
/// full of half used units never has room again.
void Shard::Impl::make_up_for_cut() {
    for (std::uint32_t turn = 0; turn < 4 * range.units && !broken; ++turn) {
        if (pool.free_units() > pool.left_for_others(Stream::kUser) + room.margin) break;
        if (pool.emptied_units() != 0) {
            ++counters.stalls;
            if (!sync_now()) break;
        } else if (collect(pages_per_unit) == 0) {
            break;
        }
    }
    cut_made_up = true;
}

void Shard::Impl::note_corrected(PageNumber page) {
    ++counters.corrected;
    const std::uint32_t unit = pool.unit_of(page);
    std::uint8_t& count = corrected[unit - range.first_unit];
    if (count >= kCorrectedBeforeRewrite) return;
    if (++count == kCorrectedBeforeRewrite) rewrite.push_back(unit);
}

}  // namespace gnstor::deengine
