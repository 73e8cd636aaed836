// journal_marks.hpp: how far the journal of each service unit had come when the whole store was stable, and
// whether a reopened store still has all of it. docs/store-format.md, "Boot record".
//
// The newest log page or checkpoint end is never erased before a newer one exists. If no record names it, the
// store has lost records, and would be mounted as the older or empty drive that the other records describe.
// Other pages of a checkpoint do not count: behind the last end they belong to an abandoned checkpoint, and a
// mount may erase their unit before it programs anything.
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/log/journal.hpp"
#include "ssd/flash/record_copies.hpp"
#include "ssd/flash/store_format.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <optional>

namespace gnstor::ssd {

/// Per service unit, the number of a page of its journal; 0: none.
using JournalPages = std::array<std::uint64_t, kMaxServiceUnits>;

/// The journal pages that the records read so far name.
struct FoundJournal {
    std::uint64_t lasting = 0;  ///< the newest log page or checkpoint end; 0: none
    std::uint64_t newest = 0;   ///< the newest page of any type; 0: none

    void add(const FoundJournal& other) {
        lasting = std::max(lasting, other.lasting);
        newest = std::max(newest, other.newest);
    }
    /// Whether the journal reaches the page in a boot record. An older program recorded the newest page even
    /// if that was a part of a checkpoint.
    [[nodiscard]] bool reaches(std::uint64_t told) const { return told <= lasting || told == newest; }
};
using FoundJournals = std::array<FoundJournal, kMaxServiceUnits>;

/// The newest lasting pages (log page or checkpoint end) found at opening or programmed since. A service
/// unit's thread notes its own, any thread reads them all.
class JournalMarks {
  public:
    void note(const Superblock& superblock, deengine::PageNumber page, std::uint64_t journal_page) {
        std::atomic<std::uint64_t>& newest = newest_[superblock.service_unit_of(page)];
        // Release: pairs with now(): a sync that follows now() covers the page that now() returned.
        if (newest.load(std::memory_order_relaxed) < journal_page)
            newest.store(journal_page, std::memory_order_release);
    }
    [[nodiscard]] JournalPages now() const;

  private:
    std::array<std::atomic<std::uint64_t>, kMaxServiceUnits> newest_{};
};

/// The number of the journal page that this record belongs to; 0: not a lasting page (a log page, or the end
/// of a checkpoint).
[[nodiscard]] inline std::uint64_t journal_page_of(const deengine::PageOob& oob) {
    using deengine::JournalPage;
    const auto type = static_cast<JournalPage>(oob.epoch);
    const bool lasts = type == JournalPage::kLog || type == JournalPage::kCheckpointEnd;
    return oob.kind == deengine::PageKind::kSystem && lasts ? oob.sequence : 0;
}
/// The journal page numbers that a stored record gives; empty if the record is damaged.
[[nodiscard]] FoundJournal find_journal_page(const std::byte* record, deengine::PageNumber page,
                                             DriveSeed drive);

struct JournalLoss {
    std::uint32_t service_unit;
    std::uint64_t told;   ///< the page in the boot record, which was stable once
    std::uint64_t found;  ///< the newest lasting page found; 0: none
};
/// The first service unit whose journal does not reach the page in the boot record.
[[nodiscard]] std::optional<JournalLoss> find_loss(const BootRecord& boot, const FoundJournals& found);
[[nodiscard]] std::string describe(const JournalLoss& loss);
[[nodiscard]] Error refuse_loss(const std::filesystem::path& path, const JournalLoss& loss);

}  // namespace gnstor::ssd
