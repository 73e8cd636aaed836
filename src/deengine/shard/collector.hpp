// collector.hpp: garbage collection: choice of the victim unit, copies of its valid pages, and their pace.
//
// Greedy: the sealed data unit with fewest valid pages; units that failed (retiring) and units whose reads
// need correction come first. A page is valid if the map names it. Each page that a user writes causes enough
// copies to free the victim by the time its room is needed, so that no write waits for a whole unit; an idle
// shard collects a little ahead. A page that cannot be read becomes a lost page: its reads fail, its order
// counts.
// Owns the victim and how far it is copied, the copies that users' pages still owe, and how often reads of
// each unit needed correction. Invariants
//   * the map names the copy before the original is given up;
//   * a victim is erased only after the group of its last copy is durable (UnitPool); where a copy has
//   damaged contents, which look torn, two groups later (Durability::note_damaged_copy());
//   * pages of the victim below the next one to look at are not valid.
// One owner thread.
#pragma once

#include "deengine/shard/durability.hpp"
#include "deengine/shard/shard_log.hpp"
#include "deengine/shard/shard_state.hpp"

#include <cstdint>
#include <vector>

namespace gnstor::deengine {

class Collector {
  public:
    Collector(ShardState& state, ShardLog& log, Durability& durability);

    /// Before each page that a user programs: frees units after a mount, and makes the copies due for it.
    void prepare_user_page() {
        if (!cut_made_up_ && state_.pool.open_unit(Stream::kUser) == kNoUnit) [[unlikely]]
            make_up_for_cut();
        pay_for_user_page();
    }
    /// Copies up to `pages` pages, if units are scarce or should be rewritten.
    void collect_idle(std::uint32_t pages);
    /// Frees units until `stream` may open one; false: nothing is left to collect, or a sync failed.
    bool make_room(Stream stream);
    /// A read of this page needed correction.
    void note_corrected(PageNumber page);

  private:
    enum class Copied : std::uint8_t { kDead, kMoved, kNoRoom };

    /// Copies up to `pages` valid pages of victims; returns how many it moved.
    std::uint32_t collect(std::uint32_t pages);
    [[nodiscard]] bool has_victim() const;
    bool choose_victim();
    Copied copy_page(PageNumber from);
    Copied copy_as(BlockKey key, PageNumber from, PageOob oob, bool readable);
    void pay_for_user_page();
    /// Once after a mount: frees a few units for the collector before users may open one.
    void make_up_for_cut();
    /// Frees units, or moves towards that; false: it cannot.
    bool free_some();
    /// Units that may be opened for users, now or as soon as the groups that emptied them are durable.
    [[nodiscard]] std::uint32_t spare_units() const {
        const std::uint32_t units = state_.pool.free_units() + state_.pool.emptied_units();
        const std::uint32_t reserve = state_.pool.left_for_others(Stream::kUser);
        return units > reserve ? units - reserve : 0;
    }
    [[nodiscard]] std::uint8_t& corrected(std::uint32_t unit) {
        return corrected_[unit - state_.range.first_unit];
    }

    ShardState& state_;
    ShardLog& log_;
    Durability& durability_;

    std::uint32_t victim_ = kNoUnit;
    std::uint32_t victim_serial_ = 0;
    std::uint32_t victim_next_ = 0;        ///< its next page to look at
    std::uint32_t copy_rate_ = 0;          ///< pages to copy for each user page, in sixteenths
    std::uint32_t copy_debt_ = 0;          ///< copies still to be made, in sixteenths
    bool cut_made_up_ = false;             ///< make_up_for_cut() was done since the mount
    std::vector<std::uint8_t> corrected_;  ///< by unit of the range: reads that needed correction
    std::vector<std::uint32_t> rewrite_;   ///< units to be moved because of corrected_
    std::vector<std::byte> lost_page_;     ///< one page: contents of a page of PageKind::kLost
};

}  // namespace gnstor::deengine
