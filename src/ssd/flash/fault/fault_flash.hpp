// fault_flash.hpp: injects the failures of a plan into any flash below.
//
// Invariants
//   * operations that the plan does not name pass through unchanged;
//   * a unit that failed to program or to erase is bad: it can be read, and is never programmed or erased
//     again (these marks live as long as this object; the firmware keeps its own);
//   * whether a page is unreadable depends only on the seed, the page and the opening of its unit: it stays
//     so across restarts, until the unit is erased.
// One owner thread.
#pragma once

#include "ssd/flash/fault/fault_plan.hpp"
#include "ssd/flash/store.hpp"

#include <memory>
#include <unordered_set>
#include <vector>

namespace gnstor::ssd {

class FaultFlash final : public deengine::Flash {
  public:
    FaultFlash(std::unique_ptr<deengine::Flash> below, const FaultPlan& plan);

    [[nodiscard]] deengine::FlashGeometry geometry() const override { return below_->geometry(); }
    deengine::FlashStatus program(deengine::PageNumber page, const std::byte* data,
                                  deengine::PageOob& oob) override;
    deengine::FlashStatus read(deengine::PageNumber page, std::uint32_t first, std::uint32_t count,
                               std::byte* to, std::uint32_t* crcs) override;
    deengine::FlashStatus read_oob(deengine::PageNumber page, deengine::PageOob& oob) override;
    deengine::FlashStatus copy_back(deengine::PageNumber from, deengine::PageNumber to,
                                    deengine::PageOob& oob, std::uint32_t* crcs) override;
    deengine::FlashStatus erase(std::uint32_t unit) override;
    deengine::FlashStatus reserve(std::uint32_t unit) override { return below_->reserve(unit); }
    [[nodiscard]] bool is_bad(std::uint32_t unit) const override;
    void prefetch(deengine::PageNumber page) const override { below_->prefetch(page); }
    void prefetch_data(deengine::PageNumber page, std::uint32_t first_sector) const override {
        below_->prefetch_data(page, first_sector);
    }
    [[nodiscard]] bool survives_kill() const override { return below_->survives_kill(); }
    deengine::FlashStatus sync_begin(deengine::SyncLevel level) override;
    deengine::SyncState sync_poll() override { return below_->sync_poll(); }
    using deengine::Flash::sync;
    deengine::FlashStatus sync(deengine::SyncLevel level) override;

    [[nodiscard]] const FaultCounters& counters() const { return counters_; }
    /// Adds failures at run time, for tests that learn the place only then.
    void fail_reads_of(deengine::PageNumber page) { uncorrectable_.insert(page); }
    void fail_record_of(deengine::PageNumber page) { lost_records_.insert(page); }
    void fail_programs_of(deengine::PageNumber page) { program_fails_.insert(page); }

  private:
    using Pages = std::unordered_set<deengine::PageNumber>;
    [[nodiscard]] bool drawn(std::uint32_t ppm);
    [[nodiscard]] bool chosen(deengine::PageNumber page, std::uint32_t ppm, std::uint64_t salt);
    [[nodiscard]] bool unreadable(deengine::PageNumber page);
    [[nodiscard]] bool record_unreadable(deengine::PageNumber page);
    [[nodiscard]] bool program_is_refused(deengine::PageNumber page) const;
    [[nodiscard]] bool program_fails(deengine::PageNumber page);
    [[nodiscard]] bool sync_fails();

    std::unique_ptr<deengine::Flash> below_;
    FaultPlan plan_;
    std::uint32_t pages_per_unit_;
    std::uint64_t random_;
    std::uint64_t syncs_ = 0;
    std::unordered_set<std::uint32_t> bad_;
    std::unordered_set<std::uint32_t> erase_fails_;
    Pages program_fails_;
    Pages corrected_;
    Pages uncorrectable_;
    Pages lost_records_;
    FaultCounters counters_;
};

/// Wraps each part in a FaultFlash (seeds differ by part); an empty plan leaves the parts unchanged.
FlashParts with_faults(FlashParts parts, const FaultPlan& plan);
/// Sum over all parts that with_faults() made.
FaultCounters fault_counters(const FlashParts& parts);

}  // namespace gnstor::ssd
