// journal_gaps.hpp: numbers of the journal whose pages are missing or damaged, and whether a loss explains
// them.
//
// A gap is explained by a cut, if it is of the last two groups; by an earlier recovery, which recorded it
// (LogType::kGap); or by parts of checkpoints other than the loaded one, which nobody needs. A missing part
// accounts for one page between the checkpoint's present parts, and its END for one page behind them. What is
// left over is log pages that were durable.
// Owns the gaps, and what is known of other checkpoints. Invariants
//   * journal pages are noted in order of their numbers;
//   * a part that is missing explains one page, once.
// Lives during one mount.
#pragma once

#include "deengine/log/journal_index.hpp"
#include "deengine/recovery/group_ages.hpp"
#include "deengine/recovery/recovery_findings.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::deengine {

class JournalGaps {
  public:
    struct Gap {
        std::uint64_t first;
        std::uint64_t count;
        std::uint32_t next_group;  ///< of the next page that is present
        bool log = false;          ///< its record is present, and is of a log page
    };
    /// Log pages that were durable and cannot be read.
    struct Loss {
        std::uint64_t pages = 0;
        std::uint64_t first = 0;
    };

    explicit JournalGaps(bool only_killed) : only_killed_(only_killed) {}

    void add(const Gap& gap) { gaps_.push_back(gap); }
    /// An earlier recovery gave these up.
    void add_known(std::uint64_t first, std::uint64_t count) { known_.push_back({first, count, 0}); }
    [[nodiscard]] bool is_known(std::uint64_t first, std::uint64_t count) const;
    /// A part of a checkpoint other than the loaded one, which begins at `loaded_begin`.
    void note_part(const JournalHeader& header, std::uint64_t loaded_begin);
    /// A page that tells the newest complete checkpoint.
    void note_completed(std::uint64_t checkpoint);
    void note_damaged_end();
    void note_damaged_part() { ++damaged_last_parts_; }

    /// After the last page: judges each gap. `last_end`: number of the newest END that can be read; 0: none.
    Loss judge(const JournalIndex& journal, std::uint64_t last_end, const GroupAges& ages,
               RecoveryFindings& findings);
    [[nodiscard]] std::span<const Gap> all() const { return gaps_; }

  private:
    /// A checkpoint other than the loaded one: which of its parts are present.
    struct OtherCheckpoint {
        std::uint64_t id = 0;
        std::uint32_t parts = 0;  ///< one beyond the highest seen
        std::uint32_t there = 0;  ///< parts with bad contents included
        bool end_there = false;
        bool completed = false;
        std::uint64_t low = 0;   ///< its parts have numbers from here ..
        std::uint64_t high = 0;  ///< .. to the last one seen; only its END may lie behind
        std::uint64_t missing = 0;
    };
    std::uint64_t take_missing_parts(const Gap& gap);
    [[nodiscard]] bool is_in_cut_checkpoint(const Gap& gap, const JournalIndex& journal,
                                            std::uint64_t last_end) const;

    const bool only_killed_;
    std::vector<Gap> gaps_;
    std::vector<Gap> known_;
    std::vector<OtherCheckpoint> others_;
    // Damaged parts of checkpoints: END pages, and those behind the last part that can be read.
    std::uint64_t damaged_ends_ = 0;
    std::uint64_t damaged_last_parts_ = 0;
};

}  // namespace gnstor::deengine
