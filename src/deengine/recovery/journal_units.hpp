// journal_units.hpp: which system units a recovery keeps, because it, or one that begins at the spare
// checkpoint, reads their pages; the rest go back to the pool.
//
// Invariants
//   * units are given up only from the end of the journal: a hole before pages of old groups would look like
//   a loss;
//   * a unit given up that holds pages of old groups is not erased before the recovery's checkpoint is
//   durable (is_held()): if it were half erased, its remaining pages would look like a loss, too.
// Lives during one mount.
#pragma once

#include "deengine/recovery/checkpoint_choice.hpp"
#include "deengine/recovery/found_units.hpp"
#include "deengine/recovery/group_ages.hpp"
#include "deengine/recovery/journal_gaps.hpp"
#include "deengine/recovery/recovery_input.hpp"

#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace gnstor::deengine {

class JournalUnits {
  public:
    struct KeptUnit {
        std::uint32_t unit;
        std::uint64_t first;  ///< numbers of its pages
        std::uint64_t last;
        bool needed;    ///< holds something other than parts of an incomplete checkpoint
        bool given_up;  ///< all its pages are in known gaps: an earlier recovery gave them up
        bool old;       ///< one of them is not of the last two groups
    };

    /// Finds them; adds what it gives up to `gaps`.
    void plan(const RecoveryInput& input, const CheckpointChoice& choice, const GroupAges& ages,
              FoundUnits& units, JournalGaps& gaps);
    /// In order of their first numbers.
    [[nodiscard]] std::span<const KeptUnit> kept() const { return kept_; }
    [[nodiscard]] bool keeps(std::uint32_t unit) const;
    [[nodiscard]] bool is_last(std::uint32_t unit) const { return unit == kept_.back().unit; }
    [[nodiscard]] bool is_held(std::uint32_t unit) const { return held_.contains(unit); }

  private:
    std::vector<KeptUnit> kept_;
    std::set<std::uint32_t> held_;
};

}  // namespace gnstor::deengine
