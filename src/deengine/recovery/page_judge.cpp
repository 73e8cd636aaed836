// page_judge.cpp: the judgement of one unit, and of one page.
#include "deengine/recovery/page_judge.hpp"

#include <vector>

namespace gnstor::deengine {

void PageJudge::judge() {
    for (std::uint32_t u = input_.range.first_unit; u < input_.end_unit; ++u) {
        if (units_[u].serial == 0 || !units_[u].is_remains()) continue;
        ++findings_.report.units_half_erased;
        findings_.add(
            fmt::format("erase unit {} was half erased: its remaining pages are treated as erased", u));
    }
    for (const std::uint32_t u : units_.young()) judge_unit(u);
}

/// Pages of a unit are programmed in order, so a page with a bad record, or a hole, is not younger than the
/// next good one.
void PageJudge::judge_unit(std::uint32_t u) {
    const FoundUnit& unit = units_[u];
    std::vector<PageNumber> bad_records;
    for (std::uint32_t i = unit.young_from; i < unit.end; ++i) {
        const PageNumber page = u * input_.pages_per_unit + i;
        PageOob oob{};
        const FoundUnits::Record record = units_.read_record(page, oob);
        if (i >= unit.failed_from) {
            tear(page, record == FoundUnits::Record::kGood ? &oob : nullptr,
                 "the log says that programming it failed");
            continue;
        }
        if (record != FoundUnits::Record::kGood || oob.unit_serial != unit.serial) {
            bad_records.push_back(page);
            continue;
        }
        judge_bad_records(bad_records, oob);
        bad_records.clear();
        // A failed program may leave a good record; in a unit known to be bad, that is its last page.
        const bool may_have_failed = unit.bad && i + 1 == unit.last_good;
        if (input_.options.mutation == Mutation::kIgnoreOobCrc) continue;
        if (!ages_.is_old(oob.group) || may_have_failed) judge_contents(page, oob, may_have_failed);
    }
    for (const PageNumber bad : bad_records) judge_bad_tail(u, bad);
}

/// Judges a page without a good record behind the last one with a good record.
void PageJudge::judge_bad_tail(std::uint32_t u, PageNumber page) {
    const FoundUnit& unit = units_[u];
    PageOob oob{};
    const bool hole = units_.read_record(page, oob) == FoundUnits::Record::kErased;
    const bool counts = !hole && !units_.is_torn(page) && !unit.bad;
    if (counts && open_units_.was_full_before(unit.serial)) {
        lost_records_.suspect(page,
                              "the log shows that its erase unit was complete before the last two groups");
    } else if (counts && input_.only_killed && page % input_.pages_per_unit + 1 != unit.end) {
        lost_records_.suspect(page, "a killed process can tear only the last page of an erase unit");
    } else if (counts && input_.only_killed && !open_units_.may_be_open(unit.serial)) {
        // An erasure clears records from the last to the first; the kill may have interrupted one.
        lost_records_.suspect(page, "the journal shows that its erase unit was full", true);
    } else if (counts && input_.only_killed) {
        lost_records_.lose_unknown(
            fmt::format("page {} (unit {}) was being programmed by a process that was killed, or its record "
                        "was damaged later",
                        page, u));
    }
    tear(page, nullptr, "a power cut left no valid record of the page");
}

/// Judges pages without a good record that lie before one with the record `next`.
void PageJudge::judge_bad_records(std::span<const PageNumber> pages, const PageOob& next) {
    const bool old = ages_.is_whole(next.group);
    for (const PageNumber bad : pages) {
        if ((old || input_.only_killed) && !units_.is_torn(bad))
            lost_records_.suspect(bad, "later pages of its erase unit show that it was durable", !old);
        tear(bad, nullptr,
             old ? "it is of an older group, which a finding below explains"
                 : "a power cut left no valid record of the page");
    }
}

/// Judges a page with a good record that may be torn. A killed process leaves no such page, because the
/// record follows the contents, except where a program failed: is_bad() tells that of the unit
/// (Flash::survives_kill).
void PageJudge::judge_contents(PageNumber page, const PageOob& oob, bool failed) {
    if (units_.is_torn(page) || units_.is_readable(page, oob)) return;
    const bool known_failed = failed && ages_.is_old(oob.group);
    const bool block = oob.kind == PageKind::kData && input_.lives.lives(oob.vid, oob.epoch, oob.vba);
    if (input_.only_killed && !failed) {
        ++findings_.report.pages_unreadable;
        findings_.add(fmt::format("page {} (unit {}) holds block {} of volume {} and cannot be read", page,
                                  input_.unit_of(page), oob.vba, oob.vid));
        return;
    }
    tear(page, &oob,
         known_failed ? "programming it failed" : "its contents do not match the checksums in its record");
    if (block && !known_failed && input_.options.mutation != Mutation::kForgetDoubt)
        doubts_.add(make_key(oob.vid, oob.vba), WriteOrder::of(oob));
}

/// Takes the page as never written; reports it once.
void PageJudge::tear(PageNumber page, const PageOob* oob, const char* why) {
    if (units_.is_torn(page)) return;
    units_.mark_torn(page);
    const std::string what = oob == nullptr ? std::string()
                                            : fmt::format(", sequence {} of block {} of volume {}",
                                                          oob->sequence, oob->vba, oob->vid);
    findings_.add(fmt::format("page {} (unit {}){} is torn and is treated as never written: {}", page,
                              input_.unit_of(page), what, why));
}

}  // namespace gnstor::deengine
