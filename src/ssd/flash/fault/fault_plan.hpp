// fault_plan.hpp: the flash failures to inject into a drive: by rate, or by place. Plain values.
#pragma once

#include "deengine/flash.hpp"

#include <cstdint>
#include <vector>

namespace gnstor::ssd {

struct FaultPlan {
    std::uint64_t seed = 1;
    // Rates, in failures per million operations.
    std::uint32_t program_failures_ppm = 0;  ///< of programs: the unit is bad from then on
    std::uint32_t erase_failures_ppm = 0;    ///< of erasures: likewise
    std::uint32_t corrected_ppm = 0;         ///< of reads: good data that needed correction
    std::uint32_t uncorrectable_ppm = 0;  ///< of programmed pages: all reads fail until their unit is erased
    std::uint32_t lost_records_ppm = 0;   ///< of programmed pages: their out-of-band record is unreadable too
    // Places.
    std::vector<std::uint32_t> bad_units{};             ///< from the factory
    std::vector<deengine::PageNumber> program_fails{};  ///< whenever this page is programmed
    std::vector<std::uint32_t> erase_fails{};           ///< whenever this unit is erased
    std::vector<deengine::PageNumber> corrected{};      ///< whenever this page is read
    std::vector<deengine::PageNumber> uncorrectable{};  ///< whenever this page is read
    std::vector<deengine::PageNumber> lost_records{};   ///< whenever this page's record is read, and its data
    std::uint64_t sync_fails = 0;  ///< the sync with this number (from 1), and all after it; 0: none

    [[nodiscard]] bool any() const {
        return (program_failures_ppm | erase_failures_ppm | corrected_ppm | uncorrectable_ppm |
                lost_records_ppm) != 0 ||
               !bad_units.empty() || !program_fails.empty() || !erase_fails.empty() || !corrected.empty() ||
               !uncorrectable.empty() || !lost_records.empty() || sync_fails != 0;
    }
};

/// Numbers of injected failures.
struct FaultCounters {
    std::uint64_t program_failures = 0;
    std::uint64_t erase_failures = 0;
    std::uint64_t corrected = 0;
    std::uint64_t uncorrectable = 0;
    std::uint64_t lost_records = 0;
    std::uint64_t sync_failures = 0;
};

}  // namespace gnstor::ssd
