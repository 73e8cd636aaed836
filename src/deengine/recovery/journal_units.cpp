// journal_units.cpp: the plan.
#include "deengine/recovery/journal_units.hpp"

#include <algorithm>

namespace gnstor::deengine {

void JournalUnits::plan(const RecoveryInput& input, const CheckpointChoice& choice, const GroupAges& ages,
                        FoundUnits& units, JournalGaps& gaps) {
    const std::uint64_t keep_from = choice.spare() != 0 ? choice.spare_begin() : choice.loaded().begin;
    for (const JournalPlace& place : choice.journal().places()) {
        const std::uint32_t u = input.unit_of(place.page);
        auto kept = std::ranges::find(kept_, u, &KeptUnit::unit);
        if (kept == kept_.end()) {
            kept_.push_back({u, place.number, place.number, false, true, false});
            kept = kept_.end() - 1;
        }
        kept->last = std::max(kept->last, place.number);
        if (!gaps.is_known(place.number, 1)) kept->given_up = false;
        kept->old = kept->old || ages.is_old(place.group);
        // Behind the last END only log pages count; parts there are of an incomplete checkpoint.
        if (place.number >= keep_from &&
            (place.type == JournalPage::kLog || place.number <= choice.last_end()))
            kept->needed = true;
    }
    std::erase_if(kept_, [&](const KeptUnit& unit) { return unit.last < keep_from || unit.given_up; });
    std::ranges::sort(kept_, [&](const KeptUnit& a, const KeptUnit& b) {
        return a.first != b.first ? a.first < b.first : units[a.unit].serial < units[b.unit].serial;
    });
    while (!kept_.empty() && !kept_.back().needed) {
        const KeptUnit& gone = kept_.back();
        gaps.add({gone.first, gone.last - gone.first + 1, 0});
        if (gone.old) held_.insert(gone.unit);
        kept_.pop_back();
    }
}

bool JournalUnits::keeps(std::uint32_t unit) const {
    return std::ranges::find(kept_, unit, &KeptUnit::unit) != kept_.end();
}

}  // namespace gnstor::deengine
