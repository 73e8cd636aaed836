// journal_marks.hpp: how far the journal of each service unit had come when all of a store was stable, and
// whether a store that is opened again still has it all. docs/store-format.md, "Boot record".
//
// The newest log page or end of a checkpoint is never erased before a newer one is there, and its record is
// the last that may be missing: a store in which no record names it has lost records, and would be mounted as
// the older or the empty drive that the rest describes. Other parts of a checkpoint do not count: behind the
// last end they are of a checkpoint that was given up, and a mount may erase their unit before it programs
// anything.
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/log/journal.hpp"
#include "ssd/flash/file/store_format.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <optional>

namespace gnstor::ssd {

/// Of each service unit the number of a page of its journal; 0: none.
using JournalPages = std::array<std::uint64_t, kMaxServiceUnits>;

/// What the records of a journal name that were looked at.
struct FoundJournal {
    std::uint64_t lasting = 0;  ///< the newest log page or end of a checkpoint; 0: none
    std::uint64_t newest = 0;   ///< the newest page of any type; 0: none

    void add(const FoundJournal& other) {
        lasting = std::max(lasting, other.lasting);
        newest = std::max(newest, other.newest);
    }
    /// Whether the journal comes as far as a boot record tells. An older program told the number of the
    /// newest page also where that was a part of a checkpoint.
    [[nodiscard]] bool reaches(std::uint64_t told) const { return told <= lasting || told == newest; }
};
using FoundJournals = std::array<FoundJournal, kMaxServiceUnits>;

/// The newest lasting pages that were found at the opening or are programmed since. A service unit's thread
/// notes its own, any thread reads them all.
class JournalMarks {
  public:
    void note(const Superblock& superblock, deengine::PageNumber page, std::uint64_t journal_page) {
        std::atomic<std::uint64_t>& newest = newest_[superblock.service_unit_of(page)];
        // Release, pairs with now(): what is synchronized after that look has the page that it tells.
        if (newest.load(std::memory_order_relaxed) < journal_page)
            newest.store(journal_page, std::memory_order_release);
    }
    [[nodiscard]] JournalPages now() const;

  private:
    std::array<std::atomic<std::uint64_t>, kMaxServiceUnits> newest_{};
};

/// The number of the journal page whose record this is; 0: it is of none that lasts (a log page, or the end
/// of a checkpoint).
[[nodiscard]] inline std::uint64_t journal_page_of(const deengine::PageOob& oob) {
    using deengine::JournalPage;
    const auto type = static_cast<JournalPage>(oob.epoch);
    const bool lasts = type == JournalPage::kLog || type == JournalPage::kCheckpointEnd;
    return oob.kind == deengine::PageKind::kSystem && lasts ? oob.sequence : 0;
}
/// Of a record as it is stored; nothing where it is damaged.
[[nodiscard]] FoundJournal find_journal_page(const std::byte* record, deengine::PageNumber page);

struct JournalLoss {
    std::uint32_t service_unit;
    std::uint64_t told;   ///< by the boot record: this page was stable once
    std::uint64_t found;  ///< the newest lasting one that is there; 0: none
};
/// The first service unit whose journal has not all that the boot record tells of.
[[nodiscard]] std::optional<JournalLoss> find_loss(const BootRecord& boot, const FoundJournals& found);
[[nodiscard]] std::string describe(const JournalLoss& loss);
[[nodiscard]] Error refuse_loss(const std::filesystem::path& path, const JournalLoss& loss);

}  // namespace gnstor::ssd
