// ssd_shares.hpp: how many of a gateway's places may go to commands for one SSD. Pure.
//
// A gateway carries a bounded number of commands at once. Without more said, those for one slow SSD fill all
// places in the end, and commands for the others wait behind them. So a command for one chunk needs room with
// each SSD that it goes to, and commands that go to many (flushes, transfers across chunks) have a share of
// their own, apart from which they would bring every SSD to the pace of the slowest.
// One thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace gnstor::gateway {

class SsdShares {
  public:
    /// The SSDs of a command, a bit a slot; kMany: it goes to many.
    using Mask = std::uint64_t;
    static constexpr Mask kMany = ~0ull;

    /// One SSD may have an equal part of `places`, or 16 where that is more, but never more than half: fewer
    /// than all SSDs cannot fill all places until there are many of them.
    SsdShares(std::uint32_t places, std::uint32_t ssds)
        : one_(ssds < 2 ? places : std::max({1u, places / ssds, std::min(kEachAtLeast, places / 2)})),
          many_(std::max(1u, places / kManyPart)) {}

    /// Whether a command may begin. `kept`: the SSDs of an older command that waits for room: with each of
    /// them a place stays free for it, or smaller commands would pass it for ever.
    [[nodiscard]] bool has_room(Mask ssds, Mask kept) const {
        if (ssds == kMany) return many_used_ < many_;
        for (Mask left = ssds; left != 0; left &= left - 1) {
            const auto slot = static_cast<std::uint32_t>(std::countr_zero(left));
            if (used_[slot] + ((kept >> slot) & 1u) >= one_) return false;
        }
        return true;
    }
    /// What is kept when a command finds no room, `kept` being what is kept already (0: nothing): the oldest
    /// one's SSDs. Those that go to many have a share of their own, and nothing is kept for them.
    [[nodiscard]] static constexpr Mask keep_for(Mask ssds, Mask kept) {
        return kept == 0 && ssds != kMany ? ssds : kept;
    }
    void take(Mask ssds) { change(ssds, 1); }
    void give(Mask ssds) { change(ssds, ~0u); }
    [[nodiscard]] std::uint32_t of_one() const { return one_; }
    [[nodiscard]] std::uint32_t of_many() const { return many_; }
    /// Places taken now: by commands for the SSD of a slot, and by those that go to many.
    [[nodiscard]] std::uint32_t used(std::uint32_t slot) const { return used_[slot]; }
    [[nodiscard]] std::uint32_t used_by_many() const { return many_used_; }

  private:
    static constexpr std::uint32_t kEachAtLeast = 16;
    static constexpr std::uint32_t kManyPart = 8;

    void change(Mask ssds, std::uint32_t by) {
        if (ssds == kMany) {
            many_used_ += by;
            return;
        }
        for (Mask left = ssds; left != 0; left &= left - 1)
            used_[static_cast<std::uint32_t>(std::countr_zero(left))] += by;
    }

    std::uint32_t one_, many_;
    std::array<std::uint32_t, 64> used_{};
    std::uint32_t many_used_ = 0;
};

}  // namespace gnstor::gateway
