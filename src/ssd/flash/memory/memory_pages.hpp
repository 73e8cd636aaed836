// memory_pages.hpp: the memory of drives in memory: mapped without reservation, and populated unit by unit
// before the units are programmed, by a helper thread if that is in time.
//
// A page that the kernel allocates at the first store costs that store a page fault and the clearing of the
// page, several times the rest of a write. So a unit gets all its pages at once, large ones if the kernel has
// any, and a helper thread populates the units that are opened next.
// Invariants
//   * a fresh drive occupies only what give_first() requested; of units that were not opened, only those
//     ahead of use have pages: at most half as many as were opened in that range, at most kAheadBytes of
//     them, and none while less than an eighth of the machine's memory is free (all of them rounded up to
//     large pages);
//   * an erased unit keeps its pages, since a unit is erased when it is opened again: a drive occupies what
//     it has ever opened, at most the size of its flash.
// open_unit(): the thread that owns the range; units of a range are expected to be opened in rising order the
// first time. The rest: any thread. Populated pages hold zeroes or earlier contents; no reader relies on
// either.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash/mapping.hpp"
#include "ssd/flash/store_format.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace gnstor::ssd {

class MemoryPages {
  public:
    static constexpr std::size_t kAheadBytes = std::size_t{64} << 20;

    /// A range of units that one thread opens.
    class Range {
      public:
        explicit Range(UnitRange units) : units_(units) {}

      private:
        friend class MemoryPages;
        UnitRange units_;
        std::atomic<std::uint32_t> opened_{0};  ///< units of the range below this index were opened
        std::uint32_t given_ = 0;               ///< helper thread only: units below this index have pages
    };

    static Result<std::shared_ptr<MemoryPages>> map(deengine::FlashGeometry geometry);
    ~MemoryPages();

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::byte* records() const { return records_; }

    /// The returned object lives as long as this one.
    [[nodiscard]] Range& add_range(UnitRange units);
    /// Populates the first units of a range, `bytes` bytes of them, with several threads, before any unit is
    /// opened: for users who prefer to wait at start-up. False: the machine lacks that much memory.
    [[nodiscard]] bool give_first(UnitRange units, std::uint64_t bytes);
    /// Populates the unit unless it has its pages. False: the machine has no memory left.
    [[nodiscard]] bool open_unit(Range& range, std::uint32_t unit) {
        // Relaxed, both: only this thread stores opened_, and has_pages_ publishes no data.
        if (unit - range.units_.first >= range.opened_.load(std::memory_order_relaxed))
            note_opened(range, unit);
        return has_pages_[unit].load(std::memory_order_relaxed) != 0 || give(unit);
    }
    /// Number of units that have their pages.
    [[nodiscard]] std::uint32_t units_given() const { return units_given_.load(std::memory_order_relaxed); }

  private:
    MemoryPages(Mapping mapping, deengine::FlashGeometry geometry);
    [[nodiscard]] std::size_t record_bytes() const {
        return std::size_t{geometry_.pages_per_unit} * sizeof(deengine::PageOob);
    }
    bool give(std::uint32_t unit);
    void note_opened(Range& range, std::uint32_t unit);
    void run();
    bool give_ahead(Range& range);

    Mapping mapping_;
    deengine::FlashGeometry geometry_;
    std::size_t unit_bytes_;
    std::byte* data_;
    std::byte* records_;
    std::vector<std::atomic<std::uint8_t>> has_pages_;  ///< by unit
    std::atomic<std::uint32_t> units_given_{0};

    std::mutex mutex_;
    std::condition_variable opened_some_;
    std::vector<std::unique_ptr<Range>> ranges_;  // under mutex_; elements never move
    bool news_ = false;                           // under mutex_
    std::atomic<bool> stopping_{false};
    std::once_flag started_;
    std::thread helper_;
};

}  // namespace gnstor::ssd
