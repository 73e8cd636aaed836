// journal_gaps.cpp: the judgement of gaps.
#include "deengine/recovery/journal_gaps.hpp"

#include <algorithm>

namespace gnstor::deengine {

bool JournalGaps::is_known(std::uint64_t first, std::uint64_t count) const {
    return std::ranges::any_of(known_, [&](const Gap& known) {
        return known.first <= first && first + count <= known.first + known.count;
    });
}

void JournalGaps::note_part(const JournalHeader& header, std::uint64_t loaded_begin) {
    const auto known = std::ranges::find(others_, header.checkpoint, &OtherCheckpoint::id);
    const std::uint64_t low = others_.empty() ? loaded_begin + 1 : others_.back().high + 1;
    OtherCheckpoint& other =
        known != others_.end() ? *known : (others_.push_back({header.checkpoint}), others_.back());
    if (known == others_.end())
        other.low = header.type == JournalPage::kCheckpointBegin ? header.number : low;
    other.parts = std::max(other.parts, header.part + 1);
    other.high = header.number;
    ++other.there;
    // Damaged parts before this one are of the same checkpoint, and this part's number shows that they were
    // written. Of those behind the last part that can be read nothing is known, so they do not count as
    // missing.
    if (header.type != JournalPage::kCheckpointBegin)
        other.there += static_cast<std::uint32_t>(damaged_last_parts_);
    damaged_last_parts_ = 0;
    if (header.type == JournalPage::kCheckpointEnd) other.end_there = true;
}

void JournalGaps::note_completed(std::uint64_t checkpoint) {
    for (OtherCheckpoint& other : others_) other.completed = other.completed || checkpoint == other.id;
}

void JournalGaps::note_damaged_end() {
    ++damaged_ends_;
    if (!others_.empty()) others_.back().end_there = true;
}

/// How many pages of the gap may be missing parts of other checkpoints.
std::uint64_t JournalGaps::take_missing_parts(const Gap& gap) {
    std::uint64_t taken = 0;
    const std::uint64_t end = gap.first + gap.count;
    for (OtherCheckpoint& other : others_) {
        const std::uint64_t from = std::max(gap.first, other.low);
        const std::uint64_t to = std::min(end, other.high);
        const std::uint64_t parts = std::min({from < to ? to - from : 0, other.missing, gap.count - taken});
        other.missing -= parts;
        taken += parts;
        if (!other.completed || other.end_there || end <= other.high || taken == gap.count) continue;
        other.end_there = true;
        ++taken;
    }
    return taken;
}

/// Whether the gap is behind everything that is needed: parts of an incomplete checkpoint, which an
/// interrupted recovery may have half erased. A damaged part may have any number, so it accounts for all
/// parts before it.
bool JournalGaps::is_in_cut_checkpoint(const Gap& gap, const JournalIndex& journal,
                                       std::uint64_t last_end) const {
    if (damaged_last_parts_ == 0 && damaged_ends_ == 0) return false;
    return std::ranges::none_of(journal.places(), [&](const JournalPlace& place) {
        return place.number > gap.first && (place.type == JournalPage::kLog || place.number <= last_end);
    });
}

/// A gap that a cut made needs no other explanation; parts of checkpoints that are missing there do not
/// account for other gaps. A log page is never a part.
JournalGaps::Loss JournalGaps::judge(const JournalIndex& journal, std::uint64_t last_end,
                                     const GroupAges& ages, RecoveryFindings& findings) {
    for (OtherCheckpoint& other : others_) other.missing = other.parts - std::min(other.there, other.parts);
    std::vector<Gap> doubtful;
    for (const Gap& gap : gaps_) {
        // Records follow contents: a kill loses no contents of a log page that has its record.
        const bool rotted = only_killed_ && gap.log && gap.first < journal.last_number();
        if (!ages.is_whole(gap.next_group) && !rotted) {
            findings.add(fmt::format(
                "journal pages {} .. {} of the last two groups are missing and are treated as never written",
                gap.first, gap.first + gap.count - 1));
        } else if (!is_known(gap.first, gap.count) &&
                   (gap.log || !is_in_cut_checkpoint(gap, journal, last_end))) {
            doubtful.push_back(gap);
            continue;
        }
        if (!gap.log) (void)take_missing_parts(gap);
    }
    Loss loss;
    for (const Gap& gap : doubtful) {
        const std::uint64_t here = gap.log ? gap.count : gap.count - take_missing_parts(gap);
        if (loss.pages == 0) loss.first = gap.first;
        loss.pages += here;
    }
    return loss;
}

}  // namespace gnstor::deengine
