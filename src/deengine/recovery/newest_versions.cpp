// newest_versions.cpp: comparisons of pages.
#include "deengine/recovery/newest_versions.hpp"

#include <utility>

namespace gnstor::deengine {
namespace {

bool is_lost_kind(const PageOob& oob) {
    return oob.kind == PageKind::kLost || oob.kind == PageKind::kLostOrder;
}

}  // namespace

Result<void> NewestVersions::apply_young(ShardState& state) {
    for (const std::uint32_t u : units_.young()) {
        const FoundUnit& unit = units_[u];
        for (std::uint32_t i = unit.young_from; i < unit.end; ++i) {
            const PageNumber page = u * input_.pages_per_unit + i;
            PageOob oob{};
            if (units_.is_torn(page) || units_.read_record(page, oob) != FoundUnits::Record::kGood) continue;
            if (oob.unit_serial != unit.serial || oob.kind == PageKind::kSystem) continue;
            GN_TRY(apply(page, oob, state));
        }
    }
    return {};
}

Result<void> NewestVersions::apply(PageNumber page, const PageOob& oob, ShardState& state) {
    const bool applies_outdated = input_.options.mutation == Mutation::kApplyOutdatedPage;
    if (!applies_outdated && !input_.lives.lives(oob.vid, oob.epoch, oob.vba)) {
        ++findings_.report.pages_outdated;
        lost_records_.note_dropped(oob.vid, oob.epoch);
        findings_.add(
            fmt::format("page {} (unit {}) is dropped: volume {} does not exist, or its block {} or its "
                        "epoch {} belongs to a deleted volume with the same VID",
                        page, input_.unit_of(page), oob.vid, oob.vba, oob.epoch));
        return {};
    }
    const BlockKey key = make_key(oob.vid, oob.vba);
    state.floors.seen(oob.vid, oob.epoch, oob.sequence);
    const auto tombstone = state.tombstones.find(key);
    if (tombstone && units_.order_of(page, oob) <= *tombstone) {
        ++findings_.report.pages_outdated;
        return {};
    }
    if (const auto entry = state.map.find(key)) {
        if (entry->page == page) return {};
        ++findings_.report.pages_outdated;
        if (beats(page, oob, entry->page, key)) state.map.update(key, {page, false});
        return {};
    }
    const auto ticket = state.map.reserve(key);
    if (!ticket)
        return error(Errc::kInternal,
                     "shard {}: the block map has no room for page {} although only {} of its {} entries are "
                     "in use; this is a defect in gnstor",
                     input_.range.index, page, state.map.size(), state.map.slots());
    state.map.commit(*ticket, {page, false});
    state.tombstones.remove(key);
    return {};
}

/// Whether a young page takes the place of the one that the map names.
bool NewestVersions::beats(PageNumber page, const PageOob& oob, PageNumber stored, BlockKey key) {
    PageOob other{};
    // A stored page that cannot be read, or holds another block now, was programmed before this one and is
    // superseded.
    if (units_.is_torn(stored) || units_.of_page(stored).is_remains() ||
        units_.read_record(stored, other) != FoundUnits::Record::kGood)
        return true;
    const std::uint32_t stored_serial = units_.of_page(stored).serial;
    if (make_key(other.vid, other.vba) != key || other.kind == PageKind::kSystem ||
        other.unit_serial != stored_serial)
        return true;
    // A bound has no contents to compare.
    const bool bound = oob.kind == PageKind::kLostOrder || other.kind == PageKind::kLostOrder;
    const WriteOrder mine = bound ? WriteOrder::of(oob) : units_.order_of(page, oob);
    const WriteOrder theirs = bound ? WriteOrder::of(other) : units_.order_of(stored, other);
    const bool same_sequence = mine.number() == theirs.number();
    const bool same_write = mine == theirs || mine.crc == 0 || theirs.crc == 0;
    // A lost page stands for one that could not be read: contents of the same write replace it.
    if (same_sequence && same_write && is_lost_kind(oob) != is_lost_kind(other))
        return is_lost_kind(oob) ? !units_.is_readable(stored, other) : units_.is_readable(page, oob);
    if (mine != theirs) return mine > theirs;
    // The collector's copy, or a program repeated after a failure, counts rather than its original, whose
    // unit may be free already. But a rotten page is copied with its bad contents, and the block may have
    // been repaired since in a unit that was opened earlier: of the two the one that can be read counts
    // (docs/array.md, rule 13).
    if (!programmed_later(page, oob, stored, other))
        return !units_.is_readable(stored, other) && units_.is_readable(page, oob);
    return units_.is_readable(page, oob) || !units_.is_readable(stored, other);
}

/// A guess within one group: units stay open for long, so the unit opened later need not be the one
/// programmed later.
bool NewestVersions::programmed_later(PageNumber page, const PageOob& oob, PageNumber stored,
                                      const PageOob& other) {
    if (stored % input_.pages_per_unit < units_.of_page(stored).young_from) return true;
    if (oob.group != other.group) return ages_.since_begin(oob.group) > ages_.since_begin(other.group);
    return oob.unit_serial != other.unit_serial ? oob.unit_serial > other.unit_serial : page > stored;
}

/// A checkpoint's slices are of different moments: an entry may name a page of a unit that was erased since.
/// Superseded entries have been replaced by now; entries that are left were acknowledged and their pages are
/// gone.
void NewestVersions::drop_stale(BlockMap& map, std::span<const CheckpointUnit> then) {
    std::uint64_t dead = 0;
    map.erase_if([&](BlockKey key, MapEntry entry) {
        const bool checked = input_.options.mutation != Mutation::kApplyOutdatedPage;
        if (checked && !input_.lives.lives(key_volume(key), ~nvme::Epoch{0}, key_block(key))) {
            dead_volumes_.insert(key_volume(key));
            PageOob oob{};
            if (units_.read_record(entry.page, oob) == FoundUnits::Record::kGood &&
                make_key(oob.vid, oob.vba) == key)
                lost_records_.note_dropped(oob.vid, oob.epoch);
            ++dead;
            return true;
        }
        if (!is_stale(entry.page, key, then[input_.unit_of(entry.page) - input_.range.first_unit]))
            return false;
        lost_.push_back(key);
        return true;
    });
    findings_.report.pages_outdated += dead;
    findings_.report.blocks_lost += lost_.size();
    for (const nvme::VolumeId volume : dead_volumes_)
        findings_.add(fmt::format("volume {} does not exist any more: its blocks are dropped", volume));
    for (const BlockKey key : lost_)
        findings_.add(fmt::format(
            "block {} of volume {} was acknowledged and its page is gone: its reads fail until it is "
            "written again",
            key_block(key), key_volume(key)));
    if (dead != 0 || !lost_.empty()) findings_.note_change();
}

bool NewestVersions::is_stale(PageNumber page, BlockKey key, const CheckpointUnit& then) {
    const std::uint32_t u = input_.unit_of(page);
    const FoundUnit& unit = units_[u];
    const std::uint32_t index = page % input_.pages_per_unit;
    if (unit.serial != 0 && unit.serial == then.serial && index < unit.young_from)
        return unit.system || index >= then.next;
    PageOob oob{};
    const FoundUnits::Record record = units_.read_record(page, oob);
    if (units_[u].is_remains() && record == FoundUnits::Record::kBad) {
        ++findings_.report.pages_unreadable;
        findings_.add(fmt::format("page {} (unit {}) holds block {} of volume {} and cannot be read", page, u,
                                  key_block(key), key_volume(key)));
        return false;
    }
    return record != FoundUnits::Record::kGood || units_.is_torn(page) || units_[u].is_remains() ||
           unit.system || oob.unit_serial != unit.serial || make_key(oob.vid, oob.vba) != key;
}

}  // namespace gnstor::deengine
