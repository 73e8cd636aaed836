// flash_allocator.cpp: unit states: free -> open -> full -> reclaimable -> (erased) free; partial after a
// mount; retired for good.
#include "deengine/flash_allocator.hpp"

#include <cassert>
#include <utility>

namespace gnstor::deengine {

FlashAllocator::FlashAllocator(Flash& flash)
    : flash_(flash),
      pages_per_unit_(flash.geometry().pages_per_unit),
      units_(flash.geometry().units),
      partial_(flash.geometry().units),
      free_(flash.geometry().units),
      reclaimable_(flash.geometry().units) {}

void FlashAllocator::set_retired(std::uint32_t unit) {
    units_[unit].state = UnitState::kRetired;
}

void FlashAllocator::set_programmed(std::uint32_t unit, std::uint32_t next) {
    units_[unit].next = next;
}

void FlashAllocator::start() {
    for (std::uint32_t u = 0; u < units_.size(); ++u) {
        Unit& unit = units_[u];
        if (unit.state == UnitState::kRetired) continue;
        if (unit.next == 0) {
            unit.state = UnitState::kFree;
            free_.push(u);
            available_ += pages_per_unit_;
        } else if (unit.valid == 0) {
            unit.state = UnitState::kReclaimable;
            reclaimable_.push(u);
            available_ += pages_per_unit_;
        } else if (unit.next < pages_per_unit_) {
            unit.state = UnitState::kPartial;
            partial_.push(u);
            available_ += pages_per_unit_ - unit.next;
        } else {
            unit.state = UnitState::kFull;
        }
    }
}

PageNumber FlashAllocator::next_page() {
    if (open_ == kNoUnit && !open_unit()) return kNoPage;
    return open_ * pages_per_unit_ + units_[open_].next;
}

bool FlashAllocator::open_unit() {
    if (partial_.empty() && free_.empty()) return open_reclaimable();
    open_ = partial_.empty() ? free_.pop() : partial_.pop();
    units_[open_].state = UnitState::kOpen;
    return true;
}

bool FlashAllocator::open_reclaimable() {
    // What replaced the pages of a unit must be durable before they go.
    if (reclaimable_.empty() || flash_.sync() != FlashStatus::kOk) return false;
    while (open_ == kNoUnit && !reclaimable_.empty()) {
        const std::uint32_t unit = reclaimable_.pop();
        if (erase(unit)) open_ = unit;
    }
    if (open_ == kNoUnit) return false;
    units_[open_].state = UnitState::kOpen;
    return true;
}

bool FlashAllocator::exchange_open_unit() {
    Unit& unit = units_[open_];
    unit.state = unit.next == 0 ? UnitState::kFree : UnitState::kPartial;
    (unit.next == 0 ? free_ : partial_).push(std::exchange(open_, kNoUnit));
    return open_reclaimable();
}

bool FlashAllocator::erase(std::uint32_t unit) {
    assert(units_[unit].valid == 0 && "a unit with valid pages is never erased");
    if (flash_.erase(unit) != FlashStatus::kOk) {
        units_[unit].state = UnitState::kRetired;
        available_ -= pages_per_unit_;
        newly_retired_.push_back(unit);
        return false;
    }
    units_[unit].next = 0;
    ++units_erased_;
    return true;
}

void FlashAllocator::programmed(PageNumber page) {
    Unit& unit = units_[open_];
    assert(page == open_ * pages_per_unit_ + unit.next);
    (void)page;
    ++unit.valid;
    --available_;
    if (++unit.next == pages_per_unit_) {
        unit.state = UnitState::kFull;
        open_ = kNoUnit;
    }
}

std::uint32_t FlashAllocator::failed(PageNumber page) {
    const std::uint32_t u = page / pages_per_unit_;
    assert(u == open_);
    available_ -= pages_per_unit_ - units_[u].next;
    units_[u].state = UnitState::kRetired;
    open_ = kNoUnit;
    return u;
}

void FlashAllocator::invalidate(PageNumber page) {
    const std::uint32_t u = page / pages_per_unit_;
    Unit& unit = units_[u];
    assert(unit.valid > 0);
    if (--unit.valid == 0 && unit.state == UnitState::kFull) {
        unit.state = UnitState::kReclaimable;
        reclaimable_.push(u);
        available_ += pages_per_unit_;
    }
}

std::vector<std::uint32_t> FlashAllocator::take_newly_retired() {
    return std::exchange(newly_retired_, {});
}

}  // namespace gnstor::deengine
