// lost_records.cpp: what suspicions come to.
#include "deengine/recovery/lost_records.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace gnstor::deengine {

void LostRecords::judge_tails(std::span<const CheckpointUnit> then) {
    for (const std::uint32_t u : units_.young()) judge_count(u);
    for (const std::uint32_t u : units_.young())
        if (units_.end_of(u) < units_[u].young_from)
            suspect_tail(u, units_[u].young_from - 1, "the checkpoint lists the page as programmed");
    const JournalHeader& last = open_units_.last();
    judge_open_unit(last.open_user, last.user_pages, last.open_collector, last.collector_pages, then);
    judge_open_unit(last.open_collector, last.collector_pages, last.open_user, last.user_pages, then);
    if (!input_.only_killed) return;
    for (const std::uint32_t u : units_.young()) {
        const FoundUnit& unit = units_[u];
        if (!open_units_.may_be_open(unit.serial) && !unit.bad && unit.end < unit.full_at)
            suspect_tail(u, unit.full_at - 1, "the journal shows that its erase unit was full");
    }
    for (std::uint32_t u = input_.range.first_unit; u < input_.end_unit; ++u) {
        if (!units_[u].programmed || units_[u].serial != 0 || units_[u].bad) continue;
        // An earlier mount that found the unit in this state has recorded it in the unit table.
        if (then[u - input_.range.first_unit].next == units_[u].end) continue;
        lose_unknown(fmt::format("erase unit {} holds pages but no readable page record", u));
    }
}

/// Whether the last pages exist that a unit held when a page of the journal was programmed.
void LostRecords::judge_count(std::uint32_t u) {
    const std::uint32_t pages = open_units_.pages_told(units_[u].serial, !input_.only_killed);
    if (units_[u].end < pages) suspect_tail(u, pages - 1, "the journal lists the page as programmed");
}

/// Whether a unit exists that was open, with pages in it, in the newest page of the journal; after a power
/// cut only if a stamp says that pages of it were durable. It may have been erased since, if the kill came
/// before anything was programmed there. But
///   * an earlier mount that was killed began its checkpoint behind that page, before any erasure;
///   * in operation a unit is erased after it was filled and each page that filled it was superseded or
///   moved, durably: to units opened since, or to the other one that was open, if that has grown by as much.
/// Pages that the checkpoint knows are in its map. A unit that was closed before it was full may be erased as
/// soon as its few pages are superseded or moved: nothing is concluded from it.
void LostRecords::judge_open_unit(std::uint32_t serial, std::uint32_t pages, std::uint32_t other_serial,
                                  std::uint32_t other_pages, std::span<const CheckpointUnit> then) {
    const PageNumber last_page = open_units_.last_page();
    const std::uint32_t held = open_units_.pages_told(serial, !input_.only_killed);
    if (serial == 0 || held == 0 || last_page == kNoPage || open_units_.was_closed(serial)) return;
    const FoundUnit& journal = units_.of_page(last_page);
    const bool has_room = last_page % input_.pages_per_unit + 1 == journal.end && !journal.bad &&
                          journal.end < input_.pages_per_unit;
    if (std::ranges::any_of(
            then, [&](const CheckpointUnit& known) { return known.serial == serial && known.next >= held; }))
        return;
    const FoundUnit* other = nullptr;
    for (const FoundUnit& unit : units_.all()) {
        if (unit.serial == serial || unit.serial >= open_units_.last().next_serial) return;
        if (unit.serial == other_serial && other_serial != 0) other = &unit;
    }
    const std::uint32_t grown = other != nullptr && other->end > other_pages ? other->end - other_pages : 0;
    if (!has_room || grown + pages >= input_.pages_per_unit) return;
    lose_unknown(fmt::format(
        "the journal says that the erase unit with serial {} held {} pages, but none of their records exists",
        serial, held));
}

void LostRecords::suspect_tail(std::uint32_t unit, std::uint32_t index, const char* why) {
    const PageNumber page = unit * input_.pages_per_unit + index;
    if (std::ranges::find(suspects_, page, &Suspect::page) == suspects_.end())
        suspects_.push_back({page, why, true});
}

void LostRecords::lose_unknown(const std::string& what) {
    if (input_.options.mutation == Mutation::kForgetLostRecords) return;
    findings_.add(fmt::format(
        "{}: the lost contents are not known, and every block of the same or an earlier epoch is in doubt",
        what));
    ++findings_.report.records_lost;
    findings_.note_change();
    lost_ = true;
}

void LostRecords::note_dropped(nvme::VolumeId volume, nvme::Epoch epoch) {
    if (input_.lives.explains(volume, epoch)) return;
    nvme::Epoch& newest = unexplained_[volume];
    newest = std::max(newest, epoch);
}

std::vector<bool> LostRecords::units_with_valid(const BlockMap& map) const {
    std::vector<bool> valid(input_.range.units, false);
    map.for_each_page([&](PageNumber page) { valid[input_.unit_of(page) - input_.range.first_unit] = true; });
    return valid;
}

/// A unit whose erasure was interrupted looks the same, but nothing in it is valid: all its blocks were
/// durably superseded before. (A unit in which only the bad page was valid looks the same, too, and is taken
/// for one.)
Result<void> LostRecords::judge_suspects(BlockMap& map) {
    if (suspects_.empty()) return {};
    std::vector<bool> valid = units_with_valid(map);
    std::set<std::uint32_t> looked_at;
    std::set<std::uint32_t> emptied;
    for (const Suspect& suspect : suspects_) {
        const std::uint32_t u = input_.unit_of(suspect.page);
        if (!valid[u - input_.range.first_unit] || !looked_at.insert(u).second) continue;
        if (take_copies_of(u, map)) emptied.insert(u);
    }
    valid = units_with_valid(map);
    for (const std::uint32_t u : emptied) valid[u - input_.range.first_unit] = false;
    std::uint32_t half_erased = kNoUnit;
    for (const Suspect& suspect : suspects_) {
        const std::uint32_t u = input_.unit_of(suspect.page);
        if (valid[u - input_.range.first_unit] && suspect.doubt) {
            lose_unknown(
                fmt::format("page {} (unit {}) has no record, although {}", suspect.page, u, suspect.why));
        } else if (valid[u - input_.range.first_unit]) {
            GN_TRY(lose_record(suspect.page, suspect.why));
        } else if (half_erased != u) {
            half_erased = u;
            ++findings_.report.units_half_erased;
            findings_.add(fmt::format("erase unit {} was half erased, and no page in it is valid", u));
        }
    }
    return {};
}

/// A page and its copy of the same group cannot be ordered. If every valid page of this unit has such a twin
/// in another one, the twins are the copies and this unit was empty: the twins count. Likewise if a twin is
/// of a later group and its contents have rotted, but then the page in this unit counts. In that case the cut
/// may instead have torn the twin before it was acknowledged, and the record missing here has rotted: this is
/// reported as a lost record.
bool LostRecords::take_copies_of(std::uint32_t u, BlockMap& map) {
    const std::uint32_t serial = units_[u].serial;
    const bool collects = open_units_.was_collectors(serial);
    std::uint32_t valid = 0;
    map.for_each_page([&](PageNumber page) { valid += input_.unit_of(page) == u ? 1 : 0; });
    struct Copy {
        PageNumber counts;
        bool damaged;
    };
    std::map<BlockKey, Copy> copies;
    for (const std::uint32_t other : units_.young()) {
        for (std::uint32_t i = units_[other].young_from; i < units_[other].end && other != u; ++i) {
            const PageNumber page = other * input_.pages_per_unit + i;
            PageOob oob{};
            PageOob original{};
            if (units_.read_record(page, oob) != FoundUnits::Record::kGood) continue;
            if (oob.unit_serial != units_[other].serial || oob.kind == PageKind::kSystem) continue;
            const BlockKey key = make_key(oob.vid, oob.vba);
            const auto entry = map.find(key);
            if (!entry || input_.unit_of(entry->page) != u) continue;
            if (units_.read_record(entry->page, original) != FoundUnits::Record::kGood) continue;
            const bool torn = units_.is_torn(page) || !units_.is_readable(page, oob);
            const std::int64_t later = ages_.since_begin(oob.group) - ages_.since_begin(original.group);
            if (torn ? later <= 0 : (later != 0 || collects)) continue;
            if (units_.order_of(entry->page, original) != units_.order_of(page, oob)) continue;
            if (torn) {
                copies.try_emplace(key, Copy{entry->page, true});
            } else {
                copies.insert_or_assign(key, Copy{page, false});
            }
        }
    }
    if (copies.size() != valid) return false;
    const auto damaged = std::ranges::count_if(copies, [](const auto& copy) { return copy.second.damaged; });
    if (damaged != 0)
        lose_unknown(
            fmt::format("erase unit {} was half erased, or a record in it was damaged later: {} of the {} "
                        "pages that were copied from it have damaged contents",
                        u, damaged, valid));
    for (const auto& [key, copy] : copies) map.update(key, {copy.counts, false});
    return true;
}

Result<void> LostRecords::lose_record(PageNumber page, const char* why) {
    findings_.add(
        fmt::format("page {} (unit {}) was durable, but its record cannot be read: {}; it is not known which "
                    "block it held",
                    page, input_.unit_of(page), why));
    ++findings_.report.pages_unreadable;
    if (input_.options.accept_loss) return {};
    return error(Errc::kCorrupt,
                 "shard {}: the record of page {} (unit {}) cannot be read although {}: it is not known "
                 "which block it held; read its blocks from replicas on other drives, where there are any, "
                 "or give up that block with `gnstor ssd recover STORE --accept-loss --write`",
                 input_.range.index, page, input_.unit_of(page), why);
}

/// The lost version may be of any sequence of the volume's epoch: a version that its writer sends again may
/// be older.
void LostRecords::settle(FoundDoubts& doubts) {
    if (lost_)
        for (const auto& [volume, epoch] : input_.lives.living()) doubts.add_lost(volume, epoch);
    // The volume may be added to the drive again, without its blocks.
    for (const auto& [volume, epoch] : unexplained_) {
        findings_.add(
            fmt::format("blocks of volume {} of epoch {} are dropped, because the drive's metadata, an older "
                        "copy, does not contain this volume; if the volume is added again, each of its "
                        "blocks of this or an earlier epoch is in doubt",
                        volume, epoch));
        doubts.add_lost(volume, epoch);
        findings_.note_change();
    }
}

}  // namespace gnstor::deengine
