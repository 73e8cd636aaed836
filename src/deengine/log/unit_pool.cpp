// unit_pool.cpp: unit states: free -> open -> sealed -> emptied -> (durable) free; erased when opened. A unit
// that fails is retiring while something in it is valid, then retired for good.
#include "deengine/log/unit_pool.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace gnstor::deengine {
namespace {

/// Serials count up and are never reused. A drive that has used them up takes no more blocks; only the
/// journal continues, so that the drive can still be mounted and read.
constexpr std::uint32_t kLastDataSerial = 0xFF000000u;
constexpr std::uint32_t kLastSerial = 0xFFFFFFF0u;

/// Groups are numbered modulo 2^32.
bool is_after(std::uint32_t group, std::uint32_t other) {
    return static_cast<std::int32_t>(group - other) > 0;
}

}  // namespace

UnitPool::UnitPool(Flash& flash, std::uint32_t first_unit, std::uint32_t units)
    : flash_(flash),
      first_(first_unit),
      pages_per_unit_(flash.geometry().pages_per_unit),
      units_(units),
      free_(units),
      emptied_(units),
      heads_(std::size_t{pages_per_unit_} + 1, kNoUnit),
      links_(units) {
    newly_bad_.reserve(units);
    retiring_.reserve(units);
}

void UnitPool::restore(std::uint32_t unit, const UnitInfo& info) {
    at(unit) = info;
}

void UnitPool::start(std::uint32_t next_serial) {
    next_serial_ = next_serial;
    for (std::uint32_t u = first_; u < first_ + units(); ++u) {
        UnitInfo& info = at(u);
        const bool kept = info.state == UnitState::kSealed || info.state == UnitState::kOpen ||
                          info.state == UnitState::kRetiring;
        if (kept && info.system) info.valid = info.next;
        if (!kept) info.valid = 0;
        if (!info.system) valid_pages_ += info.valid;
        const bool bad = info.state == UnitState::kRetiring || info.state == UnitState::kRetired;
        if (bad || flash_.is_bad(u)) {
            info.state = info.valid != 0 ? UnitState::kRetiring : UnitState::kRetired;
            if (info.state == UnitState::kRetiring && !info.system) retiring_.push_back(u);
            continue;
        }
        ++good_count_;
        if (info.state == UnitState::kFree) {
            free_.push(u);
        } else if (info.valid == 0 && !info.held) {
            empty(u);
        } else if (info.valid != 0 && info.state == UnitState::kOpen && info.next < pages_per_unit_) {
            reopen(u);
        } else {
            info.state = UnitState::kSealed;
            if (!info.system && info.valid != 0) link(u);
        }
    }
}

/// Units that were open are programmed further: the latest system unit, and the two data units with most
/// room. The collector gets the one with more room, or the only one: it can make room for users, but not the
/// reverse.
void UnitPool::reopen(std::uint32_t unit) {
    std::uint32_t& system = open_[static_cast<std::size_t>(Stream::kSystem)];
    std::uint32_t& collector = open_[static_cast<std::size_t>(Stream::kCollector)];
    std::uint32_t& user = open_[static_cast<std::size_t>(Stream::kUser)];
    std::uint32_t other = unit;
    if (at(unit).system) {
        if (system == kNoUnit || at(system).serial < at(unit).serial) std::swap(system, other);
    } else {
        if (collector == kNoUnit || at(other).next < at(collector).next) std::swap(collector, other);
        if (other != kNoUnit && (user == kNoUnit || at(other).next < at(user).next)) std::swap(user, other);
    }
    if (other == kNoUnit) return;
    at(other).state = UnitState::kSealed;
    if (!at(other).system) link(other);
}

PageNumber UnitPool::next_page(Stream stream) {
    const std::uint32_t& open = open_[static_cast<std::size_t>(stream)];
    if (open == kNoUnit && !open_some_unit(stream)) return kNoPage;
    return open * pages_per_unit_ + at(open).next;
}

bool UnitPool::open_some_unit(Stream stream) {
    if (next_serial_ >= (stream == Stream::kSystem ? kLastSerial : kLastDataSerial)) return false;
    if (stream == Stream::kUser) short_of_room_ = false;  // asks the medium below again
    while (may_open(stream)) {
        // A unit with room, besides those that others need to make room.
        if (stream != Stream::kSystem && !promise_units(left_for_others(stream) + 1)) {
            short_of_room_ = short_of_room_ || stream == Stream::kUser;
            return false;
        }
        if (promised_ != 0) --promised_;
        const std::uint32_t unit = free_.pop();
        if (at(unit).next != 0 && !erase(unit)) continue;
        open(stream, unit);
        return true;
    }
    return false;
}

void UnitPool::open(Stream stream, std::uint32_t unit) {
    UnitInfo& info = at(unit);
    info.state = UnitState::kOpen;
    info.system = stream == Stream::kSystem;
    info.serial = next_serial_++;
    info.valid = 0;
    open_[static_cast<std::size_t>(stream)] = unit;
}

bool UnitPool::erase(std::uint32_t unit) {
    UnitInfo& info = at(unit);
    assert(info.valid == 0 && "a unit with valid pages is never erased");
    info.next = 0;
    if (flash_.erase(unit) != FlashStatus::kOk) {
        info.state = UnitState::kRetired;
        --good_count_;
        newly_bad_.push_back(unit);
        return false;
    }
    ++info.erases;
    ++units_erased_;
    return true;
}

void UnitPool::programmed(Stream stream, PageNumber page) {
    const std::uint32_t unit = unit_of(page);
    assert(unit == open_unit(stream) && page == unit * pages_per_unit_ + at(unit).next);
    UnitInfo& info = at(unit);
    ++info.valid;
    ++info.next;
    info.has_room = true;
    if (!info.system) ++valid_pages_;
    if (info.next == pages_per_unit_) seal(stream);
}

std::uint32_t UnitPool::failed(Stream stream, PageNumber page) {
    const std::uint32_t unit = unit_of(page);
    assert(unit == open_unit(stream));
    UnitInfo& info = at(unit);
    open_[static_cast<std::size_t>(stream)] = kNoUnit;
    info.state = info.valid != 0 ? UnitState::kRetiring : UnitState::kRetired;
    if (info.state == UnitState::kRetiring && !info.system) retiring_.push_back(unit);
    --good_count_;
    newly_bad_.push_back(unit);
    return unit;
}

bool UnitPool::exchange_open_unit(Stream stream) {
    if (const std::uint32_t unit = open_unit(stream); unit != kNoUnit) at(unit).has_room = false;
    seal(stream);
    // A unit that was programmed has room below, and keeps it when it is erased.
    for (std::uint32_t i = first_free(stream); i < free_.size();) {
        const UnitInfo& info = at(free_.next(i));
        if (info.next == 0 && !info.has_room) {
            ++i;
            continue;
        }
        if (i < promised_) --promised_;
        const std::uint32_t unit = free_.take(i);
        if (info.next != 0 && !erase(unit)) continue;
        open(stream, unit);
        return true;
    }
    return false;
}

bool UnitPool::has_room(std::uint32_t unit) {
    UnitInfo& info = at(unit);
    info.has_room = info.has_room || flash_.reserve(unit) == FlashStatus::kOk;
    return info.has_room;
}

std::uint32_t UnitPool::free_with_room() const {
    std::uint32_t count = 0;
    for (const UnitInfo& info : units_) count += info.state == UnitState::kFree && info.has_room ? 1 : 0;
    return count;
}

void UnitPool::promise(std::uint32_t i) {
    const std::uint32_t unit = free_.next(i);
    for (; i > promised_; --i) free_.next(i) = free_.next(i - 1);
    free_.next(promised_++) = unit;
}

bool UnitPool::reserve(std::uint64_t pages) {
    std::uint64_t open_has = 0;
    if (const std::uint32_t open = open_unit(Stream::kSystem); open != kNoUnit) {
        if (!has_room(open)) return false;
        open_has = pages_per_unit_ - at(open).next;
    }
    if (pages <= open_has) return true;
    return promise_units((pages - open_has + pages_per_unit_ - 1) / pages_per_unit_);
}

/// In the queue's order, so that wear spreads, as long as they have room. After a refusal only units follow
/// that were programmed before: these have room, except in a copy of a store, and a full disk is not asked
/// once for each unit.
bool UnitPool::promise_units(std::uint64_t units) {
    while (promised_ < units && promised_ < free_.size() && has_room(free_.next(promised_))) ++promised_;
    if (promised_ >= units || promised_ == free_.size()) return true;
    for (std::uint32_t i = promised_ + 1; i < free_.size() && promised_ < units; ++i) {
        const UnitInfo& info = at(free_.next(i));
        if (!info.has_room && info.next == 0) continue;
        if (!has_room(free_.next(i))) break;
        promise(i);
    }
    return promised_ >= units;
}

void UnitPool::release_held(std::uint32_t group) {
    for (std::uint32_t u = first_; u < first_ + units(); ++u) {
        UnitInfo& info = at(u);
        if (!std::exchange(info.held, false) || info.valid != 0 || info.state != UnitState::kSealed) continue;
        info.group = group;
        empty(u);
    }
}

void UnitPool::seal(Stream stream) {
    const std::uint32_t unit = std::exchange(open_[static_cast<std::size_t>(stream)], kNoUnit);
    if (unit == kNoUnit) return;
    UnitInfo& info = at(unit);
    if (info.next == 0) {
        info.state = UnitState::kFree;
        free_.push(unit);
        return;
    }
    ++units_sealed_;
    info.state = UnitState::kSealed;
    if (info.valid == 0 && !info.held) {
        empty(unit);
    } else if (info.valid != 0 && !info.system) {
        link(unit);
    }
}

void UnitPool::validate(PageNumber page) {
    ++at(unit_of(page)).valid;
}

void UnitPool::invalidate(PageNumber page, std::uint32_t group) {
    const std::uint32_t unit = unit_of(page);
    UnitInfo& info = at(unit);
    assert(info.valid > 0 && !info.system);
    const bool linked = info.state == UnitState::kSealed;
    if (linked) unlink(unit);
    --info.valid;
    --valid_pages_;
    info.group = group;
    if (info.valid != 0) {
        if (linked) link(unit);
    } else if (linked && !info.held) {
        empty(unit);
    } else if (info.state == UnitState::kRetiring) {
        info.state = UnitState::kRetired;
        std::erase(retiring_, unit);
    }
}

void UnitPool::release_system(std::uint32_t unit, std::uint32_t group) {
    UnitInfo& info = at(unit);
    assert(info.system && unit != open_unit(Stream::kSystem));
    info.valid = 0;
    info.group = group;
    if (info.state == UnitState::kSealed) {
        empty(unit);
    } else if (info.state == UnitState::kRetiring) {
        info.state = UnitState::kRetired;
    }
}

void UnitPool::durable(std::uint32_t group) {
    while (emptied_.size() != 0 && !is_after(at(emptied_.front()).group, group)) {
        const std::uint32_t unit = emptied_.pop();
        at(unit).state = UnitState::kFree;
        at(unit).system = false;
        free_.push(unit);
    }
}

void UnitPool::empty(std::uint32_t unit) {
    at(unit).state = UnitState::kEmptied;
    emptied_.push(unit);
}

void UnitPool::link(std::uint32_t unit) {
    std::uint32_t& head = heads_[at(unit).valid];
    links_[unit - first_] = {kNoUnit, head};
    if (head != kNoUnit) links_[head - first_].before = unit;
    head = unit;
    lowest_ = std::min(lowest_, at(unit).valid);
}

void UnitPool::unlink(std::uint32_t unit) {
    const Links links = links_[unit - first_];
    if (links.after != kNoUnit) links_[links.after - first_].before = links.before;
    if (links.before != kNoUnit) {
        links_[links.before - first_].after = links.after;
    } else {
        heads_[at(unit).valid] = links.after;
    }
}

std::uint32_t UnitPool::victim() const {
    if (!retiring_.empty()) return retiring_.front();
    // Amortized: each unlink lowers a unit by one list at most.
    while (lowest_ < pages_per_unit_ && heads_[lowest_] == kNoUnit) ++lowest_;
    return heads_[lowest_];
}

std::vector<std::uint32_t> UnitPool::take_newly_bad() {
    std::vector<std::uint32_t> taken;
    taken.swap(newly_bad_);
    return taken;
}

}  // namespace gnstor::deengine
