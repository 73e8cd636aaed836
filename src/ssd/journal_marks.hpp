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

#include "deengine/journal.hpp"
#include "ssd/store_format.hpp"

#include <array>
#include <atomic>
#include <filesystem>
#include <optional>

namespace gnstor::ssd {

/// Of each service unit the number of a page of its journal; 0: none.
using JournalPages = std::array<std::uint64_t, kMaxServiceUnits>;

/// The newest pages that were found at the opening or are programmed since. A service unit's thread notes its
/// own, any thread reads them all.
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
/// The same of a record as it is stored; 0 also where it is damaged.
[[nodiscard]] std::uint64_t journal_page_of(const std::byte* record, deengine::PageNumber page);

struct JournalLoss {
    std::uint32_t service_unit;
    std::uint64_t told;   ///< by the boot record: this page was stable once
    std::uint64_t found;  ///< the newest that is there; 0: none
};
/// The first service unit whose journal has not all that the boot record tells of.
[[nodiscard]] std::optional<JournalLoss> find_loss(const BootRecord& boot, const JournalPages& found);
[[nodiscard]] std::string describe(const JournalLoss& loss);
[[nodiscard]] Error refuse_loss(const std::filesystem::path& path, const JournalLoss& loss);

}  // namespace gnstor::ssd
