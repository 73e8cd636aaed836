// page_judge.hpp: judges the pages programmed since the checkpoint began: which of them count.
//
// All pages are judged before any is applied, so that no comparison of orders meets a torn page. What is
// found goes to its owners: torn pages to FoundUnits, doubts to FoundDoubts, suspicions to LostRecords.
//   * a bad page of a group that is whole was durable: its block reads as an error, and if not even its block
//   is known, its record is suspected;
//   * a page of the last two groups with a good record and bad contents is torn, or has rotted: its block is
//   in doubt, and the map keeps the older version;
//   * after a kill in the same boot only the operation in progress can be torn, and of that only the record,
//   the last one of a unit. All other bad pages have rotted.
// Lives during one mount.
#pragma once

#include "deengine/recovery/found_doubts.hpp"
#include "deengine/recovery/found_units.hpp"
#include "deengine/recovery/group_ages.hpp"
#include "deengine/recovery/lost_records.hpp"
#include "deengine/recovery/open_units.hpp"
#include "deengine/recovery/recovery_findings.hpp"
#include "deengine/recovery/recovery_input.hpp"

#include <cstdint>
#include <span>

namespace gnstor::deengine {

class PageJudge {
  public:
    PageJudge(const RecoveryInput& input, RecoveryFindings& findings, const GroupAges& ages,
              FoundUnits& units, const OpenUnits& open_units, LostRecords& lost_records, FoundDoubts& doubts)
        : input_(input),
          findings_(findings),
          ages_(ages),
          units_(units),
          open_units_(open_units),
          lost_records_(lost_records),
          doubts_(doubts) {}

    /// All young pages.
    void judge();

  private:
    void judge_unit(std::uint32_t unit);
    void judge_bad_records(std::span<const PageNumber> pages, const PageOob& next);
    void judge_bad_tail(std::uint32_t unit, PageNumber page);
    void judge_contents(PageNumber page, const PageOob& oob, bool failed);
    void tear(PageNumber page, const PageOob* oob, const char* why);

    const RecoveryInput& input_;
    RecoveryFindings& findings_;
    const GroupAges& ages_;
    FoundUnits& units_;
    const OpenUnits& open_units_;
    LostRecords& lost_records_;
    FoundDoubts& doubts_;
};

}  // namespace gnstor::deengine
