// flash_allocator.hpp: which page is programmed next, which units may be erased.
//
// Invariants
//   * pages of a unit are handed out in order, once between two erasures;
//   * valid(u) is the number of pages of unit u that the block map names;
//   * a unit is erased only when none of its pages is valid, and only after Flash::sync(): what replaced its
//   pages is durable;
//   * a unit that failed to program or to erase is retired: read, never programmed again.
// Owned by one thread; no allocation after construction.
#pragma once

#include "deengine/flash.hpp"

#include <cstdint>
#include <vector>

namespace gnstor::deengine {

class FlashAllocator {
  public:
    explicit FlashAllocator(Flash& flash);

    // While mounting, once a unit: `next` pages are behind its last programmed one. Then start().
    void set_retired(std::uint32_t unit);
    void set_programmed(std::uint32_t unit, std::uint32_t next);
    void start();

    /// The page to program now (erases a unit where needed); kNoPage when there is none.
    [[nodiscard]] PageNumber next_page();
    /// The page of next_page() now holds something valid.
    void programmed(PageNumber page);
    /// The page of next_page() could not be programmed: its unit is retired. Returns the unit.
    std::uint32_t failed(PageNumber page);
    /// There is no room for the unit of next_page(): takes a unit that can be erased in its place, for
    /// erasing gives room back. False if there is none.
    [[nodiscard]] bool exchange_open_unit();
    /// The block map names this page no longer / names it (while mounting).
    void invalidate(PageNumber page);
    void validate(PageNumber page) { ++units_[page / pages_per_unit_].valid; }

    /// Pages that next_page() can still give, if no erasure fails.
    [[nodiscard]] std::uint64_t available() const { return available_; }
    [[nodiscard]] std::uint64_t units_erased() const { return units_erased_; }
    [[nodiscard]] std::uint32_t valid(std::uint32_t unit) const { return units_[unit].valid; }
    /// Units retired because they would not erase, since the last call.
    [[nodiscard]] std::vector<std::uint32_t> take_newly_retired();

  private:
    enum class UnitState : std::uint8_t { kFree, kOpen, kPartial, kFull, kReclaimable, kRetired };
    struct Unit {
        std::uint32_t next = 0;  ///< pages programmed or lost
        std::uint32_t valid = 0;
        UnitState state = UnitState::kFree;
    };
    /// First in, first out, so that wear spreads; holds a unit at most once.
    class UnitQueue {
      public:
        explicit UnitQueue(std::uint32_t units) : ring_(units + 1) {}
        [[nodiscard]] bool empty() const { return head_ == tail_; }
        void push(std::uint32_t unit) {
            ring_[tail_] = unit;
            tail_ = (tail_ + 1) % ring_.size();
        }
        std::uint32_t pop() {
            const std::uint32_t unit = ring_[head_];
            head_ = (head_ + 1) % ring_.size();
            return unit;
        }

      private:
        std::vector<std::uint32_t> ring_;
        std::size_t head_ = 0;
        std::size_t tail_ = 0;
    };
    static constexpr std::uint32_t kNoUnit = 0xFFFFFFFFu;

    bool open_unit();
    bool open_reclaimable();
    bool erase(std::uint32_t unit);

    Flash& flash_;
    std::uint32_t pages_per_unit_;
    std::vector<Unit> units_;
    UnitQueue partial_;
    UnitQueue free_;
    UnitQueue reclaimable_;
    std::uint32_t open_ = kNoUnit;
    std::uint64_t available_ = 0;
    std::uint64_t units_erased_ = 0;
    std::vector<std::uint32_t> newly_retired_;
};

}  // namespace gnstor::deengine
