// recovery_lost.cpp: lost records of pages that may have been acknowledged.
//
// A record is stored twice; if both copies are damaged or gone, it is not known which block its page held.
// After a power cut a page of the last two groups may look like that, too, and was never acknowledged. But
//   * a killed process leaves a bad record only of the program in progress, and no hole before a good record;
//   * each page of the journal says how many pages the open units held then: these must exist if a process
//     was killed later, and also after a power cut if the journal page is a stamp, two groups later
//     (LogType::kStamp);
//   * a unit that was opened before such a page and is not open in it was full.
// So either a durable page is certainly lost, and then nothing is mounted (lose_record()), or only this is
// known of it, that its epoch was at most its volume's: every version of no later epoch is in doubt
// (doubts.hpp). A unit without valid pages may be half erased: nothing is concluded from it.
#include "deengine/recovery/recovery.hpp"

#include <algorithm>

namespace gnstor::deengine {

void ShardRecovery::note_counts(const JournalHeader& header, PageNumber page, bool stamp) {
    const auto note = [&](std::uint32_t serial, std::uint32_t pages) {
        PagesTold& told = told_[serial];
        told.held = std::max(told.held, pages);
        if (stamp) told.durable = std::max(told.durable, pages);
    };
    note(header.open_user, header.user_pages);
    note(header.open_collector, header.collector_pages);
    last_told_ = header;
    last_told_page_ = page;
}

void ShardRecovery::judge_lost_tails() {
    for (const std::uint32_t u : young_) judge_count(u);
    for (const std::uint32_t u : young_)
        if (end_of(u) < found(u).young_from)
            suspect_tail(u, found(u).young_from - 1, "the checkpoint lists the page as programmed");
    if (!only_killed_) return;
    judge_open_unit(last_told_.open_user, last_told_.user_pages, last_told_.open_collector,
                    last_told_.collector_pages);
    judge_open_unit(last_told_.open_collector, last_told_.collector_pages, last_told_.open_user,
                    last_told_.user_pages);
    for (const std::uint32_t u : young_) {
        const FoundUnit& unit = found(u);
        if (!may_be_open(unit.serial) && !unit.bad && unit.end < unit.full_at)
            suspect_tail(u, unit.full_at - 1, "the journal shows that its erase unit was full");
    }
    for (std::uint32_t u = range_.first_unit; u < range_.first_unit + range_.units; ++u) {
        if (!found(u).programmed || found(u).serial != 0 || found(u).bad) continue;
        // An earlier mount that found the unit in this state has recorded it in the unit table.
        if (loaded_.units[u - range_.first_unit].next == found(u).end) continue;
        lose_unknown(fmt::format("erase unit {} holds pages but no readable page record", u));
    }
}

/// Open in the newest page of the journal, or opened since.
bool ShardRecovery::may_be_open(std::uint32_t serial) const {
    return serial >= last_told_.next_serial || serial == last_told_.open_user ||
           serial == last_told_.open_collector;
}

/// Whether the last pages exist that a unit held when a page of the journal was programmed.
void ShardRecovery::judge_count(std::uint32_t u) {
    const auto told = told_.find(found(u).serial);
    if (told == told_.end()) return;
    const std::uint32_t pages = only_killed_ ? told->second.held : told->second.durable;
    if (found(u).end < pages) suspect_tail(u, pages - 1, "the journal lists the page as programmed");
}

/// Whether a unit exists that was open, with pages in it, in the newest page of the journal. It may have been
/// erased since, if the kill came before anything was programmed there. But
///   * an earlier mount that was killed began its checkpoint behind that page, before any erasure;
///   * in operation a unit is erased after it was filled and each page that filled it was superseded or
///     moved: to units opened since, or to the other one that was open, if that has grown by as much.
/// Pages that the checkpoint knows are in its map. A unit that was closed before it was full may be erased as
/// soon as its few pages are superseded or moved: nothing is concluded from it.
void ShardRecovery::judge_open_unit(std::uint32_t serial, std::uint32_t pages, std::uint32_t other_serial,
                                    std::uint32_t other_pages) {
    if (serial == 0 || pages == 0 || last_told_page_ == kNoPage || closed_.contains(serial)) return;
    const FoundUnit& journal = found(unit_of(last_told_page_));
    const bool has_room =
        last_told_page_ % pages_per_unit_ + 1 == journal.end && !journal.bad && journal.end < pages_per_unit_;
    if (std::ranges::any_of(loaded_.units, [&](const CheckpointUnit& then) {
            return then.serial == serial && then.next >= pages;
        }))
        return;
    const FoundUnit* other = nullptr;
    for (const FoundUnit& unit : found_) {
        if (unit.serial == serial || unit.serial >= last_told_.next_serial) return;
        if (unit.serial == other_serial && other_serial != 0) other = &unit;
    }
    const std::uint32_t grown = other != nullptr && other->end > other_pages ? other->end - other_pages : 0;
    if (!has_room || grown + pages >= pages_per_unit_) return;
    lose_unknown(fmt::format(
        "the journal says that the erase unit with serial {} held {} pages, but none of their records exists",
        serial, pages));
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
    find(fmt::format(
        "{}: the lost contents are not known, and every block of the same or an earlier epoch is in doubt",
        what));
    ++report_.records_lost;
    changed_ = true;
    records_lost_ = true;
}

void ShardRecovery::note_dropped(nvme::VolumeId volume, nvme::Epoch epoch) {
    if (lives_.explains(volume, epoch)) return;
    nvme::Epoch& newest = unexplained_[volume];
    newest = std::max(newest, epoch);
}

/// The lost version may be of any sequence of the volume's epoch: a version that its writer sends again may
/// be older.
void ShardRecovery::settle_lost_records() {
    if (records_lost_)
        for (const auto& [volume, epoch] : lives_.living()) doubts_.add_lost(volume, epoch);
    // The volume may be added to the drive again, without its blocks.
    for (const auto& [volume, epoch] : unexplained_) {
        find(
            fmt::format("blocks of volume {} of epoch {} are dropped, because the drive's metadata, an older "
                        "copy, does not contain this volume; if the volume is added again, each of its "
                        "blocks of this or an earlier epoch is in doubt",
                        volume, epoch));
        doubts_.add_lost(volume, epoch);
        changed_ = true;
    }
    for (const auto& [volume, epoch] : doubts_.lost())
        if (lives_.lives(volume, epoch, 0) || !lives_.explains(volume, epoch))
            impl_->doubts.add_lost(volume, epoch);
}

}  // namespace gnstor::deengine
