// unit_pool.hpp: the erase units of one shard: which page is programmed next, what may be erased, what to
// collect.
//
// Invariants
//   * pages of a unit are handed out in order, once between two erasures;
//   * each stream has at most one open unit; kinds of pages never mix in a unit;
//   * valid(u) is the number of pages of unit u that the block map names (data units) or that recovery would
//     still read (system units: all until released);
//   * a unit is erased only when nothing in it is valid and the group that emptied it is durable;
//   * each opening gives a unit the next serial: of two units, the one with the higher serial was opened
//     later;
//   * while emptied units wait for their group, one free unit is left to the collector;
//   * a unit that failed to program or to erase is never programmed again.
// Owned by one thread; no allocation after construction.
#pragma once

#include "deengine/flash.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace gnstor::deengine {

enum class Stream : std::uint8_t { kUser, kCollector, kSystem };
inline constexpr std::uint32_t kStreams = 3;
inline constexpr std::uint32_t kNoUnit = 0xFFFFFFFFu;
inline constexpr std::uint32_t kProgramAttempts = 8;  ///< units tried for one page before it is given up

enum class UnitState : std::uint8_t {
    kFree,      ///< may be opened (perhaps after an erasure)
    kOpen,      ///< some stream programs it
    kSealed,    ///< takes no more pages; has or had valid ones
    kEmptied,   ///< nothing valid; becomes free when its group is durable
    kRetiring,  ///< failed to program: read-only, data to be moved
    kRetired,   ///< bad for good
};

struct UnitInfo {
    std::uint32_t serial = 0;  ///< of its latest opening; 0: never opened
    std::uint32_t next = 0;    ///< pages programmed or lost since its erasure
    std::uint32_t valid = 0;
    std::uint32_t erases = 0;
    std::uint32_t group = 0;  ///< kEmptied: the group that must be durable before it is erased
    UnitState state = UnitState::kFree;
    bool system = false;    ///< holds journal pages
    bool held = false;      ///< holds findings of a recovery that no checkpoint has yet: not emptied before
    bool has_room = false;  ///< the medium below the flash keeps room for it
};

class UnitPool {
  public:
    /// Units first_unit .. first_unit + units - 1 of the flash; page and unit numbers are the drive's.
    UnitPool(Flash& flash, std::uint32_t first_unit, std::uint32_t units);

    // While mounting: restore() with everything known about a unit, validate() for each mapped page, then
    // start(). kSealed and kOpen units with `system` are kept until released; kOpen units are programmed
    // further (the latest system unit, and the two data units with most room; the others are sealed); data
    // units without valid pages are emptied in their group; a kFree unit with next != 0 is erased before it
    // is used.
    void restore(std::uint32_t unit, const UnitInfo& info);
    void start(std::uint32_t next_serial);

    /// The page that `stream` programs now; opens a unit (and erases it) where needed. kNoPage: there is none
    /// now. The user stream never takes the last kReserve units, nor the journal's reserve.
    [[nodiscard]] PageNumber next_page(Stream stream);
    /// The page of next_page() is programmed (data: valid).
    void programmed(Stream stream, PageNumber page);
    /// The page could not be programmed: its unit is retiring and the stream has none open. Returns the unit.
    std::uint32_t failed(Stream stream, PageNumber page);
    /// The medium below has no room for the open unit now: puts it back, and opens one that has room, as
    /// units do that were programmed before; false if there is none.
    [[nodiscard]] bool exchange_open_unit(Stream stream);
    /// Makes the medium below keep room for the next `pages` pages of the journal, or for all that its open
    /// unit and the free units have, if that is less. False: there is not so much room; room kept so far
    /// stays kept.
    [[nodiscard]] bool reserve(std::uint64_t pages);
    /// A checkpoint now contains the findings in held units: empties those without valid pages.
    void release_held(std::uint32_t group);
    /// Closes the stream's open unit early (it is sealed as it is).
    void seal(Stream stream);

    void validate(PageNumber page);
    /// The map names this page no longer since group `group`.
    void invalidate(PageNumber page, std::uint32_t group);
    /// The journal needs no page of this system unit any more.
    void release_system(std::uint32_t unit, std::uint32_t group);
    /// Every group up to this one (modulo 2^32) is durable: emptied units become free.
    void durable(std::uint32_t group);

    /// The retiring unit with data, else the sealed data unit with fewest valid pages; kNoUnit: none.
    [[nodiscard]] std::uint32_t victim() const;

    [[nodiscard]] const UnitInfo& info(std::uint32_t unit) const { return units_[unit - first_]; }
    [[nodiscard]] std::uint32_t unit_of(PageNumber page) const { return page / pages_per_unit_; }
    [[nodiscard]] std::uint32_t serial_of(PageNumber page) const { return info(unit_of(page)).serial; }
    [[nodiscard]] std::uint32_t first() const { return first_; }
    [[nodiscard]] std::uint32_t units() const { return static_cast<std::uint32_t>(units_.size()); }
    [[nodiscard]] std::uint32_t pages_per_unit() const { return pages_per_unit_; }
    [[nodiscard]] std::uint32_t free_units() const { return free_.size(); }
    /// Nothing valid in them; they become free when their groups are durable.
    [[nodiscard]] std::uint32_t emptied_units() const { return emptied_.size(); }
    [[nodiscard]] std::uint32_t good_units() const { return good_count_; }
    /// Whether next_page(stream) would find a page (if no erasure fails).
    [[nodiscard]] bool has_page(Stream stream) const {
        return open_unit(stream) != kNoUnit || may_open(stream);
    }
    [[nodiscard]] std::uint64_t valid_pages() const { return valid_pages_; }  ///< of data units
    [[nodiscard]] std::uint32_t open_unit(Stream stream) const {
        return open_[static_cast<std::size_t>(stream)];
    }
    [[nodiscard]] std::uint32_t next_serial() const { return next_serial_; }
    [[nodiscard]] std::uint64_t units_erased() const { return units_erased_; }
    [[nodiscard]] std::uint64_t units_sealed() const { return units_sealed_; }  ///< since construction
    [[nodiscard]] bool has_newly_bad() const { return !newly_bad_.empty(); }
    /// Free units that only the system stream may take from now on (at least 1): what the journal may need
    /// before it frees any.
    void set_system_reserve(std::uint32_t units) { system_reserve_ = std::max(1u, units); }
    /// Free units that this stream must leave, so that a full drive can always make room.
    [[nodiscard]] std::uint32_t left_for_others(Stream stream) const {
        if (stream == Stream::kSystem) return 0;
        return system_reserve_ + (stream == Stream::kUser ? kReserve - 1 : 0);
    }
    /// Units that became bad since the last call: to be recorded.
    [[nodiscard]] std::vector<std::uint32_t> take_newly_bad();
    /// Free units that the user stream leaves, the least system reserve included.
    static constexpr std::uint32_t kReserve = 3;

  private:
    /// First in, first out, so that wear spreads; holds a unit at most once.
    class UnitQueue {
      public:
        explicit UnitQueue(std::uint32_t units) : ring_(units + 1) {}
        [[nodiscard]] std::uint32_t size() const { return count_; }
        [[nodiscard]] std::uint32_t front() const { return ring_[head_]; }
        /// The unit that the `i`th next pop() gives.
        [[nodiscard]] std::uint32_t& next(std::uint32_t i) { return ring_[(head_ + i) % ring_.size()]; }
        void push(std::uint32_t unit) { ring_[(head_ + count_++) % ring_.size()] = unit; }
        std::uint32_t pop() {
            const std::uint32_t unit = ring_[head_];
            head_ = (head_ + 1) % ring_.size();
            --count_;
            return unit;
        }
        /// As pop(), of the unit next(i); the others stay in order.
        std::uint32_t take(std::uint32_t i) {
            const std::uint32_t unit = next(i);
            for (; i > 0; --i) next(i) = next(i - 1);
            (void)pop();
            return unit;
        }

      private:
        std::vector<std::uint32_t> ring_;
        std::size_t head_ = 0;
        std::uint32_t count_ = 0;
    };
    struct Links {
        std::uint32_t before = kNoUnit;
        std::uint32_t after = kNoUnit;
    };

    UnitInfo& at(std::uint32_t unit) { return units_[unit - first_]; }
    void reopen(std::uint32_t unit);
    /// While emptied units wait, the collector leaves one free unit: a power cut undoes its copies of the
    /// last groups, and would leave it no unit to begin with.
    [[nodiscard]] bool may_open(Stream stream) const {
        if (stream == Stream::kUser && short_of_room_ && free_with_room() <= left_for_others(stream))
            return false;
        const bool waits = stream == Stream::kCollector && emptied_.size() != 0;
        return free_.size() > left_for_others(stream) + (waits ? 1 : 0);
    }
    [[nodiscard]] std::uint32_t free_with_room() const;
    bool open_some_unit(Stream stream);
    [[nodiscard]] bool has_room(std::uint32_t unit);
    [[nodiscard]] bool promise_units(std::uint64_t units);
    void promise(std::uint32_t i);
    /// The index in free_ of the first unit that this stream may open in exchange for one without room.
    [[nodiscard]] std::uint32_t first_free(Stream stream) const {
        return std::min(promised_, left_for_others(stream));
    }
    void open(Stream stream, std::uint32_t unit);
    bool erase(std::uint32_t unit);
    void link(std::uint32_t unit);
    void unlink(std::uint32_t unit);
    void empty(std::uint32_t unit);

    Flash& flash_;
    std::uint32_t first_;
    std::uint32_t pages_per_unit_;
    std::vector<UnitInfo> units_;
    std::array<std::uint32_t, kStreams> open_{kNoUnit, kNoUnit, kNoUnit};
    std::uint32_t next_serial_ = 1;
    std::uint32_t system_reserve_ = 1;
    std::uint32_t good_count_ = 0;
    std::uint64_t valid_pages_ = 0;
    std::uint64_t units_erased_ = 0;
    std::uint64_t units_sealed_ = 0;
    std::vector<std::uint32_t> newly_bad_;
    UnitQueue free_;
    bool short_of_room_ = false;  ///< the medium below refused the room that collector and journal need
    std::uint32_t promised_ = 0;  ///< units at the front of free_ whose room below is reserved
    UnitQueue emptied_;           ///< nearly in order of groups
    // Sealed data units with something valid, by number of valid pages: one list per number.
    std::vector<std::uint32_t> heads_;
    std::vector<Links> links_;
    mutable std::uint32_t lowest_ = 0;     ///< no list below this one has a member
    std::vector<std::uint32_t> retiring_;  ///< data units
};

}  // namespace gnstor::deengine
