// durability_groups.hpp: numbers of a shard's durability groups, and what was programmed since which point.
//
// A group is all that is programmed between two syncs to stable media (SyncLevel::kPower); each page's record
// tells its group. Invariants
//   * the current group's number is above that of every page programmed before it began, and numbers only
//   rise (modulo 2^32); durability.hpp says when;
//   * programmed() is true if note_program() was called in the current group; right after a mount it may be
//     true for an empty one.
// Owned by one shard; one thread.
#pragma once

#include "deengine/flash.hpp"
#include "deengine/log/checkpoint.hpp"

#include <cstdint>

namespace gnstor::deengine {

class DurabilityGroups {
  public:
    explicit DurabilityGroups(const Flash& flash) : flash_(flash) {}

    /// While mounting: `current` is the group of the next program; groups up to `durable` survive power loss.
    void restore(std::uint32_t current, std::uint32_t durable) { clock_ = {current, durable}; }

    [[nodiscard]] const GroupClock& clock() const { return clock_; }
    [[nodiscard]] std::uint32_t current() const { return clock_.current; }
    /// A page is programmed in the current group at `now_ns`.
    void note_program(std::uint64_t now_ns) {
        if (!programmed_) began_ns_ = now_ns;
        programmed_ = true;
        unstamped_ = true;
        killable_ = killable_ || !flash_.survives_kill();
    }
    /// Begins the next group; returns the number of the one that ends.
    std::uint32_t end(std::uint64_t now_ns) {
        programmed_ = false;
        began_ns_ = now_ns;
        return clock_.current++;
    }
    /// Leaves the current group, in which nothing was programmed, empty.
    void skip() { ++clock_.current; }
    void note_durable(std::uint32_t group) { clock_.durable = group; }
    /// A sync has begun that keeps what is programmed from being lost in a kill.
    void note_kill_sync() { killable_ = false; }
    /// A sync has begun that makes a stamp durable (LogType::kStamp).
    void note_stamp() { unstamped_ = false; }

    [[nodiscard]] bool programmed() const { return programmed_; }
    /// A page was programmed since the last stamp of an idle shard.
    [[nodiscard]] bool unstamped() const { return unstamped_; }
    /// A kill before the next sync would lose a programmed page.
    [[nodiscard]] bool killable() const { return killable_; }
    /// Whether more than `age_ns` passed since the first page of the group, or its beginning if it has none.
    [[nodiscard]] bool is_older(std::uint64_t age_ns, std::uint64_t now_ns) const {
        return now_ns > began_ns_ + age_ns;
    }

  private:
    const Flash& flash_;
    GroupClock clock_;
    std::uint64_t began_ns_ = 0;
    bool programmed_ = false;
    bool unstamped_ = false;
    bool killable_ = false;
};

}  // namespace gnstor::deengine
