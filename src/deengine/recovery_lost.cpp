// recovery_lost.cpp: records that are not there any more, of pages that may have been acknowledged.
//
// A record is stored twice; where both copies are damaged or gone nobody knows which block its page held.
// After a power cut a page of the last two groups looks like that, too, and nobody was told of it. But
//   * a killed process leaves a bad record of the program under way alone, and no hole before a good record;
//   * each page of the journal says how many pages the open units held then: they were there if a process was
//   killed later, and also after a power cut if the page is a stamp, behind two groups (LogType::kStamp);
//   * so does a unit that was opened before such a page and is not open in it: it was full.
// So either a durable page is lost for certain, and then nothing is mounted (lose_record()), or all that is
// known of it is that it was of no later epoch than its volume's: every version that is not is in doubt
// (doubts.hpp). A unit in which nothing is valid may be one whose erasure was cut: of that nothing is said.
#include "deengine/recovery.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace gnstor::deengine {

void ShardRecovery::note_counts(const JournalHeader& header, bool stamp) {
    counts_.push_back({header.open_user, header.user_pages, header.next_serial, stamp});
    counts_.push_back({header.open_collector, header.collector_pages, header.next_serial, stamp});
    if (header.next_serial > last_told_.next_serial) last_told_ = header;
}

void ShardRecovery::judge_lost_tails() {
    for (const PageCount& count : counts_) judge_count(count);
    for (const std::uint32_t u : young_)
        if (end_of(u) < found(u).young_from)
            suspect_tail(u, found(u).young_from - 1, "the checkpoint says that it was programmed");
    if (!only_killed_) return;
    for (const std::uint32_t u : young_) {
        const FoundUnit& unit = found(u);
        const bool full = unit.serial < last_told_.next_serial && unit.serial != last_told_.open_user &&
                          unit.serial != last_told_.open_collector;
        if (full && !unit.bad && unit.end < pages_per_unit_)
            suspect_tail(u, pages_per_unit_ - 1, "the journal says that its unit was full");
    }
    for (std::uint32_t u = range_.first_unit; u < range_.first_unit + range_.units; ++u) {
        // What a mount before found so stands in the unit table.
        const bool known = loaded_.units[u - range_.first_unit].next == end_of(u);
        if (found(u).programmed && found(u).serial == 0 && !found(u).bad && !known)
            lose_unknown(fmt::format("unit {} holds pages and no record that can be read", u));
    }
}

/// Of two pages with one record the second tells what the first is of, and its own record is gone: the same
/// version is programmed again only where it cannot be read any more.
void ShardRecovery::judge_twins(std::uint32_t u) {
    std::map<std::pair<BlockKey, WriteOrder>, std::pair<PageNumber, PageOob>> seen;
    for (std::uint32_t i = found(u).young_from; i < found(u).end; ++i) {
        const PageNumber page = u * pages_per_unit_ + i;
        PageOob oob{};
        if (is_torn(page) || read_record(page, oob) != Record::kGood || oob.kind != PageKind::kData) continue;
        const std::pair key{make_key(oob.vid, oob.vba), WriteOrder::of(oob)};
        const auto [it, first] = seen.try_emplace(key, page, oob);
        if (first || std::memcmp(&it->second.second, &oob, sizeof(oob)) != 0) continue;
        if (!is_readable(it->second.first, oob) && is_readable(page, oob)) continue;
        lose_unknown(fmt::format("pages {} and {} (unit {}) have one record", it->second.first, page, u));
    }
}

/// Whether the last pages are there that a unit held when a page of the journal was programmed.
void ShardRecovery::judge_count(const PageCount& count) {
    if (count.serial == 0 || count.pages == 0 || !(only_killed_ || count.durable)) return;
    const auto unit = std::ranges::find_if(
        found_, [&](const FoundUnit& f) { return f.serial == count.serial && !f.system; });
    if (unit == found_.end()) {
        if (only_killed_ && !was_opened(count.next_serial))
            lose_unknown(
                fmt::format("the unit of serial {} held {} pages, as the journal says, and none of "
                            "their records is there",
                            count.serial, count.pages));
        return;
    }
    const auto index = static_cast<std::uint32_t>(unit - found_.begin());
    const bool young = unit->young_from < pages_per_unit_;
    if (young && unit->end < count.pages)
        suspect_tail(range_.first_unit + index, count.pages - 1, "the journal says that it was programmed");
}

/// Whether a unit of this serial, or a later one, was opened: then what was open before may have been filled,
/// emptied and erased.
bool ShardRecovery::was_opened(std::uint32_t serial) const {
    return std::ranges::any_of(found_, [&](const FoundUnit& f) { return !f.system && f.serial >= serial; });
}

void ShardRecovery::suspect_tail(std::uint32_t unit, std::uint32_t index, const char* why) {
    const PageNumber page = unit * pages_per_unit_ + index;
    if (std::ranges::find(suspects_, page, &Suspect::page) == suspects_.end())
        suspects_.push_back({page, why, true});
}

/// One beyond the last page of a unit whose record is not erased.
std::uint32_t ShardRecovery::end_of(std::uint32_t unit) {
    std::uint32_t end = pages_per_unit_;
    PageOob oob{};
    while (end > 0 && read_record(unit * pages_per_unit_ + end - 1, oob) == Record::kErased) --end;
    return end;
}

void ShardRecovery::lose_unknown(const std::string& what) {
    if (options_.mutation == Mutation::kForgetLostRecords) return;
    find(fmt::format("{}: what it held is not known, and every block that is of no later epoch is in doubt",
                     what));
    ++report_.records_lost;
    changed_ = true;
    records_lost_ = true;
}

/// The lost version may be of any sequence of the volume's epoch: what its writer sends again may be older.
void ShardRecovery::settle_lost_records() {
    if (records_lost_)
        for (const auto& [volume, epoch] : lives_.living()) doubts_.add_lost(volume, epoch);
    for (const auto& [volume, epoch] : doubts_.lost())
        if (lives_.lives(volume, epoch, 0)) impl_->doubts.add_lost(volume, epoch);
}

}  // namespace gnstor::deengine
