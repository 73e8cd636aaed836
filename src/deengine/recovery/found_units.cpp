// found_units.cpp: reading records, and which units are young.
#include "deengine/recovery/found_units.hpp"

#include <algorithm>

namespace gnstor::deengine {

FoundUnits::FoundUnits(const RecoveryInput& input, RecoveryFindings& findings)
    : input_(input),
      findings_(findings),
      units_(input.range.units),
      torn_(input.pages, false),
      scratch_(nvme::kBlockBytes) {}

FoundUnits::Record FoundUnits::read_record(PageNumber page, PageOob& oob) const {
    const FlashStatus status = input_.flash.read_oob(page, oob);
    const bool believed = input_.options.mutation == Mutation::kIgnoreOobCrc;
    if (!has_data(status) && !(believed && status == FlashStatus::kUncorrectable)) return Record::kBad;
    if (status == FlashStatus::kOk && oob.kind == PageKind::kErased) return Record::kErased;
    const bool ours =
        oob.version == kOobVersion && (oob.kind == PageKind::kSystem || oob.kind == PageKind::kData ||
                                       oob.kind == PageKind::kLost || oob.kind == PageKind::kLostOrder);
    return ours ? Record::kGood : Record::kBad;
}

/// All of them, because a unit is of the highest serial in it: a power cut may lose an erase and keep a
/// program after it. Pages with a lower serial are from before that erase, and none of them was valid.
void FoundUnits::read() {
    for (std::uint32_t u = input_.range.first_unit; u < input_.end_unit; ++u) {
        FoundUnit& unit = (*this)[u];
        unit.failed_from = unit.full_at = input_.pages_per_unit;
        unit.bad = input_.flash.is_bad(u);
        for (std::uint32_t i = 0; i < input_.pages_per_unit; ++i) {
            PageOob oob{};
            const Record record = read_record(u * input_.pages_per_unit + i, oob);
            if (record == Record::kErased) continue;
            unit.programmed = true;
            unit.end = i + 1;
            if (record == Record::kBad || oob.unit_serial <= unit.serial) continue;
            unit.serial = oob.unit_serial;
            unit.system = oob.kind == PageKind::kSystem;
        }
        if (unit.programmed && unit.serial == 0) {
            ++findings_.report.units_half_erased;
            findings_.add(
                fmt::format("erase unit {} has no readable page record: it will be erased before it is used, "
                            "unless a block is mapped to it",
                            u));
        }
        if (unit.bad) ++findings_.report.units_bad;
    }
}

void FoundUnits::mark_young(std::span<const CheckpointUnit> then) {
    young_.clear();
    for (std::uint32_t u = input_.range.first_unit; u < input_.end_unit; ++u) {
        FoundUnit& unit = (*this)[u];
        const CheckpointUnit& known = then[u - input_.range.first_unit];
        unit.serial_then = known.serial;
        unit.young_from = input_.pages_per_unit;
        if (known.state == UnitState::kRetiring || known.state == UnitState::kRetired) unit.bad = true;
        if (unit.is_remains()) continue;
        const bool reopened = unit.serial != known.serial;
        if (!reopened && known.state != UnitState::kOpen) {
            if (!unit.system) unit.end = known.next;
            continue;
        }
        if (unit.system) continue;
        unit.young_from = reopened ? 0 : known.next;
        unit.end = unit.young_from;
        young_.push_back(u);
    }
    std::ranges::sort(young_, {}, [&](std::uint32_t u) { return (*this)[u].serial; });
}

void FoundUnits::scan_young(GroupAges& ages) {
    for (const std::uint32_t u : young_) {
        FoundUnit& unit = (*this)[u];
        for (std::uint32_t i = unit.young_from; i < input_.pages_per_unit; ++i) {
            PageOob oob{};
            const Record record = read_record(u * input_.pages_per_unit + i, oob);
            if (record == Record::kErased) continue;
            unit.end = i + 1;
            findings_.note_change();
            ++findings_.report.pages_scanned;
            if (record != Record::kGood || oob.unit_serial != unit.serial) continue;
            unit.last_good = i + 1;
            ages.saw(oob.group);
        }
        if (unit.end > unit.young_from) ++findings_.report.units_young;
    }
}

std::uint32_t FoundUnits::end_of(std::uint32_t unit) const {
    std::uint32_t end = input_.pages_per_unit;
    PageOob oob{};
    while (end > 0 && read_record(unit * input_.pages_per_unit + end - 1, oob) == Record::kErased) --end;
    return end;
}

void FoundUnits::mark_torn(PageNumber page) {
    if (is_torn(page)) return;
    torn_[page - input_.first_page] = true;
    torn_pages_.push_back(page);
    ++findings_.report.pages_torn;
}

}  // namespace gnstor::deengine
