#include "ssd/flash/fault/fault_flash.hpp"

#include <gnstor/base/hash.hpp>

namespace gnstor::ssd {

using deengine::FlashStatus;
using deengine::PageKind;
using deengine::PageNumber;
using deengine::PageOob;

namespace {

constexpr std::uint64_t kMillion = 1'000'000;
constexpr std::uint64_t kDataSalt = 0xDA7A;
constexpr std::uint64_t kRecordSalt = 0x00B;

}  // namespace

FaultFlash::FaultFlash(std::unique_ptr<deengine::Flash> below, const FaultPlan& plan)
    : below_(std::move(below)),
      plan_(plan),
      pages_per_unit_(below_->geometry().pages_per_unit),
      random_(mix64(plan.seed)),
      bad_(plan.bad_units.begin(), plan.bad_units.end()),
      erase_fails_(plan.erase_fails.begin(), plan.erase_fails.end()),
      program_fails_(plan.program_fails.begin(), plan.program_fails.end()),
      corrected_(plan.corrected.begin(), plan.corrected.end()),
      uncorrectable_(plan.uncorrectable.begin(), plan.uncorrectable.end()),
      lost_records_(plan.lost_records.begin(), plan.lost_records.end()) {}

bool FaultFlash::drawn(std::uint32_t ppm) {
    if (ppm == 0) return false;
    random_ = mix64(random_ + 1);
    return random_ % kMillion < ppm;
}

bool FaultFlash::chosen(PageNumber page, std::uint32_t ppm, std::uint64_t salt) {
    if (ppm == 0) return false;
    PageOob oob{};
    if (below_->read_oob(page, oob) != FlashStatus::kOk || oob.kind == PageKind::kErased) return false;
    const std::uint64_t place = (std::uint64_t{oob.unit_serial} << 32) | page;
    return mix64(mix64(plan_.seed ^ salt) ^ place) % kMillion < ppm;
}

bool FaultFlash::record_unreadable(PageNumber page) {
    return lost_records_.contains(page) || chosen(page, plan_.lost_records_ppm, kRecordSalt);
}

bool FaultFlash::unreadable(PageNumber page) {
    return uncorrectable_.contains(page) || chosen(page, plan_.uncorrectable_ppm, kDataSalt) ||
           record_unreadable(page);
}

bool FaultFlash::is_bad(std::uint32_t unit) const {
    return bad_.contains(unit) || below_->is_bad(unit);
}

bool FaultFlash::program_is_refused(PageNumber page) const {
    return is_bad(page / pages_per_unit_);
}

bool FaultFlash::program_fails(PageNumber page) {
    if (!program_fails_.contains(page) && !drawn(plan_.program_failures_ppm)) return false;
    // A program that NAND would refuse is refused, not failed: only the flash below knows whether the page is
    // next.
    PageOob oob{};
    if (below_->read_oob(page, oob) != FlashStatus::kOk || oob.kind != PageKind::kErased) return false;
    if (page % pages_per_unit_ != 0 &&
        (below_->read_oob(page - 1, oob) == FlashStatus::kOk && oob.kind == PageKind::kErased)) {
        return false;
    }
    bad_.insert(page / pages_per_unit_);
    ++counters_.program_failures;
    return true;
}

FlashStatus FaultFlash::program(PageNumber page, const std::byte* data, PageOob& oob) {
    if (program_is_refused(page)) return FlashStatus::kRefused;
    if (program_fails(page)) return FlashStatus::kProgramFailed;
    return below_->program(page, data, oob);
}

FlashStatus FaultFlash::copy_back(PageNumber from, PageNumber to, PageOob& oob, std::uint32_t* crcs) {
    if (program_is_refused(to)) return FlashStatus::kRefused;
    if (unreadable(from)) {
        PageOob read{};
        // The flash below refuses a page that was never programmed.
        if (below_->read_oob(from, read) != FlashStatus::kOk || read.kind != PageKind::kErased) {
            ++counters_.uncorrectable;
            return FlashStatus::kUncorrectable;
        }
    }
    if (program_fails(to)) return FlashStatus::kProgramFailed;
    return below_->copy_back(from, to, oob, crcs);
}

FlashStatus FaultFlash::read(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                             std::uint32_t* crcs) {
    const FlashStatus status = below_->read(page, first, count, to, crcs);
    if (status != FlashStatus::kOk) return status;
    if (unreadable(page)) {
        ++counters_.uncorrectable;
        return FlashStatus::kUncorrectable;
    }
    if (!corrected_.contains(page) && !drawn(plan_.corrected_ppm)) return FlashStatus::kOk;
    ++counters_.corrected;
    return FlashStatus::kCorrected;
}

FlashStatus FaultFlash::read_oob(PageNumber page, PageOob& oob) {
    const FlashStatus status = below_->read_oob(page, oob);
    if (status != FlashStatus::kOk || oob.kind == PageKind::kErased || !record_unreadable(page))
        return status;
    ++counters_.lost_records;
    oob = {};
    return FlashStatus::kUncorrectable;
}

FlashStatus FaultFlash::erase(std::uint32_t unit) {
    if (unit >= geometry().units || is_bad(unit)) return FlashStatus::kRefused;
    if (erase_fails_.contains(unit) || drawn(plan_.erase_failures_ppm)) {
        bad_.insert(unit);
        ++counters_.erase_failures;
        return FlashStatus::kProgramFailed;
    }
    return below_->erase(unit);
}

bool FaultFlash::sync_fails() {
    if (plan_.sync_fails == 0 || ++syncs_ < plan_.sync_fails) return false;
    ++counters_.sync_failures;
    return true;
}

FlashStatus FaultFlash::sync_begin(deengine::SyncLevel level) {
    return sync_fails() ? FlashStatus::kProgramFailed : below_->sync_begin(level);
}

FlashStatus FaultFlash::sync(deengine::SyncLevel level) {
    return sync_fails() ? FlashStatus::kProgramFailed : below_->sync(level);
}

FlashParts with_faults(FlashParts parts, const FaultPlan& plan) {
    if (!plan.any()) return parts;
    FaultPlan of_part = plan;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        of_part.seed = plan.seed + i;
        parts[i] = std::make_unique<FaultFlash>(std::move(parts[i]), of_part);
    }
    return parts;
}

FaultCounters fault_counters(const FlashParts& parts) {
    FaultCounters sum;
    for (const auto& part : parts) {
        const auto* faulty = dynamic_cast<const FaultFlash*>(part.get());
        if (faulty == nullptr) continue;
        const FaultCounters& c = faulty->counters();
        sum.program_failures += c.program_failures;
        sum.erase_failures += c.erase_failures;
        sum.corrected += c.corrected;
        sum.uncorrectable += c.uncorrectable;
        sum.lost_records += c.lost_records;
        sum.sync_failures += c.sync_failures;
    }
    return sum;
}

}  // namespace gnstor::ssd
