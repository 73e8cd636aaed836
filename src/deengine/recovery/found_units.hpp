// found_units.hpp: the units of a shard as recovery found them on flash, and which of their pages are torn.
//
// Owns what is known of each unit, the units with young pages, and the set of torn pages. Pages and units are
// *young* if they were programmed after the loaded checkpoint's BEGIN. A bad page is *torn* if its program
// was interrupted, and has *rotted* if it was good before. Invariants
//   * a unit is of the highest serial in it; pages with a lower one are from before its erasure;
//   * a torn page stays torn, and is counted once.
// Lives during one mount. One thread.
#pragma once

#include "deengine/log/checkpoint.hpp"
#include "deengine/log/lost_page.hpp"
#include "deengine/recovery/group_ages.hpp"
#include "deengine/recovery/recovery_findings.hpp"
#include "deengine/recovery/recovery_input.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::deengine {

struct FoundUnit {
    std::uint32_t serial = 0;       ///< the highest of its good records; 0: none
    std::uint32_t serial_then = 0;  ///< when the loaded checkpoint began
    bool system = false;
    bool programmed = false;  ///< something in it is not erased
    bool bad = false;
    std::uint32_t end = 0;          ///< pages programmed, as far as it was scanned
    std::uint32_t young_from = 0;   ///< first page younger than the checkpoint
    std::uint32_t last_good = 0;    ///< of young pages: one beyond the last good record
    std::uint32_t failed_from = 0;  ///< pages from here on could not be programmed
    std::uint32_t full_at = 0;      ///< pages that it held when it was closed
    /// Nothing of the unit's latest opening can be read; what can be read is of an opening before the
    /// checkpoint. A power cut lost an erasure and kept the programs after it, and the next erasure,
    /// interrupted, removed these first.
    [[nodiscard]] bool is_remains() const { return serial == 0 || serial < serial_then; }
};

class FoundUnits {
  public:
    /// Result of reading a page's record.
    enum class Record : std::uint8_t { kErased, kBad, kGood };

    FoundUnits(const RecoveryInput& input, RecoveryFindings& findings);

    /// Reads all records.
    void read();
    /// Tells young pages from those that the checkpoint knows; `then` is its unit table.
    void mark_young(std::span<const CheckpointUnit> then);
    /// Scans data units with young pages to their ends, and shows `ages` the groups in them.
    void scan_young(GroupAges& ages);

    [[nodiscard]] FoundUnit& operator[](std::uint32_t unit) { return units_[unit - input_.range.first_unit]; }
    [[nodiscard]] FoundUnit& of_page(PageNumber page) { return (*this)[input_.unit_of(page)]; }
    [[nodiscard]] std::span<const FoundUnit> all() const { return units_; }
    /// Data units with young pages, in order of serials.
    [[nodiscard]] std::span<const std::uint32_t> young() const { return young_; }

    Record read_record(PageNumber page, PageOob& oob) const;
    [[nodiscard]] bool is_readable(PageNumber page, const PageOob& oob) {
        return is_intact(input_.flash, page, oob, scratch_.data());
    }
    [[nodiscard]] WriteOrder order_of(PageNumber page, const PageOob& oob) {
        return order_of_page(input_.flash, page, oob, scratch_.data());
    }
    /// One beyond the last page of a unit whose record is not erased.
    [[nodiscard]] std::uint32_t end_of(std::uint32_t unit) const;

    [[nodiscard]] bool is_torn(PageNumber page) const { return torn_[page - input_.first_page]; }
    void mark_torn(PageNumber page);
    /// In order of their finding.
    [[nodiscard]] std::span<const PageNumber> torn_pages() const { return torn_pages_; }

  private:
    const RecoveryInput& input_;
    RecoveryFindings& findings_;
    std::vector<FoundUnit> units_;
    std::vector<std::uint32_t> young_;
    std::vector<bool> torn_;
    std::vector<PageNumber> torn_pages_;
    std::vector<std::byte> scratch_;  ///< one page
};

}  // namespace gnstor::deengine
