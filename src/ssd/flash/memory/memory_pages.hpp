// memory_pages.hpp: the memory below drives in memory: mapped without reservation, and given its pages unit
// by unit before they are programmed, by a thread of its own where it is in time.
//
// A page that the kernel gives at the first store costs that store a fault and a cleared page, several times
// what the rest of a write costs. So units get all their pages at once, large ones where the kernel has any,
// and a helper gives them to units that are opened next. Invariants
//   * a fresh drive costs nothing but what give_first() was asked for; no other unit has pages that was not
//   opened, but for those ahead: at most half as
//     many as were opened in that range, at most kAheadBytes of them, and none while less than an eighth of
//     the machine's memory is free (all of them rounded up to large pages);
//   * pages are kept when a unit is erased, since a unit is erased when it is opened again: what a drive has
//     ever opened is what it occupies, at most the size of its flash.
// open_unit(): the thread that owns the range; units of a range are expected to be opened in rising order,
// the first time. The rest: any thread. Given pages hold zeroes or what was stored; nobody reads for either.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash/file/mapping.hpp"
#include "ssd/flash/file/store_format.hpp"

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
        std::atomic<std::uint32_t> opened_{0};  ///< units below this, counted in the range, were opened
        std::uint32_t given_ = 0;               ///< the helper's: those below this have their pages
    };

    static Result<std::shared_ptr<MemoryPages>> map(deengine::FlashGeometry geometry);
    ~MemoryPages();

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::byte* records() const { return records_; }

    /// Lives as long as this object.
    [[nodiscard]] Range& add_range(UnitRange units);
    /// Gives the first units of a range their pages, so many bytes of them, by several threads, before
    /// anybody opens one: for who would rather wait at the beginning. False: the machine has no memory left,
    /// or not so much.
    [[nodiscard]] bool give_first(UnitRange units, std::uint64_t bytes);
    /// Gives the unit its pages unless it has them. False: the machine has no memory left.
    [[nodiscard]] bool open_unit(Range& range, std::uint32_t unit) {
        // Relaxed, both: only this thread stores the first, and of pages there is nothing to be seen.
        if (unit - range.units_.first >= range.opened_.load(std::memory_order_relaxed))
            note_opened(range, unit);
        return has_pages_[unit].load(std::memory_order_relaxed) != 0 || give(unit);
    }
    /// Units that have their pages.
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
    std::vector<std::unique_ptr<Range>> ranges_;  // under mutex_; each stays where it is
    bool news_ = false;                           // under mutex_
    std::atomic<bool> stopping_{false};
    std::once_flag started_;
    std::thread helper_;
};

}  // namespace gnstor::ssd
