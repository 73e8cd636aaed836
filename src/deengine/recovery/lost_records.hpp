// lost_records.hpp: lost records of pages that may have been acknowledged.
//
// A record is stored twice; if both copies are damaged or gone, it is not known which block its page held.
// After a power cut a page of the last two groups may look like that, too, and was never acknowledged. But
//   * a killed process leaves a bad record only of the program in progress, and no hole before a good record;
//   * pages must exist that the journal says the open units held, and a unit that is not open any more was
//   full (open_units.hpp).
// So either a durable page is certainly lost, and then nothing is mounted (lose_record()), or only this is
// known of it, that its epoch was at most its volume's: every version of no later epoch is in doubt
// (doubts.hpp). A unit without valid pages may be half erased: nothing is concluded from it.
//
// Owns the pages that are suspected, whether records are certainly lost, and the volumes of dropped pages
// that nothing explains. Invariant: a suspicion is judged when the map is complete, not before. Lives during
// one mount.
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/log/checkpoint.hpp"
#include "deengine/recovery/found_doubts.hpp"
#include "deengine/recovery/found_units.hpp"
#include "deengine/recovery/group_ages.hpp"
#include "deengine/recovery/open_units.hpp"
#include "deengine/recovery/recovery_findings.hpp"
#include "deengine/recovery/recovery_input.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace gnstor::deengine {

class LostRecords {
  public:
    LostRecords(const RecoveryInput& input, RecoveryFindings& findings, const GroupAges& ages,
                FoundUnits& units, const OpenUnits& open_units)
        : input_(input), findings_(findings), ages_(ages), units_(units), open_units_(open_units) {}

    /// This page was programmed and has no good record. `doubt`: versions as old are in doubt; false: the
    /// mount is refused. Neither if its unit is half erased.
    void suspect(PageNumber page, const char* why, bool doubt = false) {
        suspects_.push_back({page, why, doubt});
    }
    /// A record is lost, of a page that may have been acknowledged.
    void lose_unknown(const std::string& what);
    /// A page or a floor of a volume that does not exist is dropped.
    void note_dropped(nvme::VolumeId volume, nvme::Epoch epoch);
    /// Looks for units that end before the pages which they must hold. `then`: the checkpoint's unit table.
    void judge_tails(std::span<const CheckpointUnit> then);
    /// Judges the suspicions against the complete map; takes copies out of half erased units.
    Result<void> judge_suspects(BlockMap& map);
    /// Adds the volumes whose blocks are in doubt.
    void settle(FoundDoubts& doubts);
    /// A record is lost and its block is not known.
    [[nodiscard]] bool any() const { return lost_; }

  private:
    struct Suspect {
        PageNumber page;
        const char* why;
        bool doubt;
    };
    void judge_count(std::uint32_t unit);
    void judge_open_unit(std::uint32_t serial, std::uint32_t pages, std::uint32_t other_serial,
                         std::uint32_t other_pages, std::span<const CheckpointUnit> then);
    void suspect_tail(std::uint32_t unit, std::uint32_t index, const char* why);
    [[nodiscard]] std::vector<bool> units_with_valid(const BlockMap& map) const;
    bool take_copies_of(std::uint32_t unit, BlockMap& map);
    Result<void> lose_record(PageNumber page, const char* why);

    const RecoveryInput& input_;
    RecoveryFindings& findings_;
    const GroupAges& ages_;
    FoundUnits& units_;
    const OpenUnits& open_units_;
    std::vector<Suspect> suspects_;
    bool lost_ = false;
    std::map<nvme::VolumeId, nvme::Epoch> unexplained_;  ///< newest epochs of dropped pages
};

}  // namespace gnstor::deengine
