// ssd_quota.hpp: how many of a gateway's places commands for one SSD may use. Pure.
//
// A gateway carries out a bounded number of commands at once. Without shares, commands for one slow SSD would
// finally fill all places, and commands for the others would wait behind them. So a command for one chunk
// needs room with each SSD that it goes to. Commands that go to many SSDs (flushes, transfers across chunks)
// have a share of their own; otherwise they would slow every SSD down to the slowest.
// One thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace gnstor::gateway {

class SsdQuota {
  public:
    /// The SSDs of a command, a bit per slot; kMany: it goes to many.
    using Mask = std::uint64_t;
    static constexpr Mask kMany = ~0ull;

    /// Each SSD may use an equal part of `places`, or 16 if that is more, but at most half of them. So a
    /// subset of the SSDs cannot fill all places, unless the array has many SSDs.
    SsdQuota(std::uint32_t places, std::uint32_t ssds)
        : one_(ssds < 2 ? places : std::max({1u, places / ssds, std::min(kEachAtLeast, places / 2)})),
          many_(std::max(1u, places / kManyPart)) {}

    /// Whether a command may begin. `kept`: the SSDs of an older command that waits for room; one place with
    /// each stays reserved for it, as smaller commands could otherwise pass it for ever.
    [[nodiscard]] bool has_room(Mask ssds, Mask kept) const {
        if (ssds == kMany) return many_used_ < many_;
        for (Mask left = ssds; left != 0; left &= left - 1) {
            const auto slot = static_cast<std::uint32_t>(std::countr_zero(left));
            if (used_[slot] + ((kept >> slot) & 1u) >= one_) return false;
        }
        return true;
    }
    /// The SSDs for which to reserve a place when a command finds no room; `kept`: those reserved already (0:
    /// none), which belong to an older command. Nothing is reserved for commands that go to many: they have
    /// their own share.
    [[nodiscard]] static constexpr Mask keep_for(Mask ssds, Mask kept) {
        return kept == 0 && ssds != kMany ? ssds : kept;
    }
    void take(Mask ssds) { change(ssds, 1); }
    void give(Mask ssds) { change(ssds, ~0u); }
    [[nodiscard]] std::uint32_t of_one() const { return one_; }
    [[nodiscard]] std::uint32_t of_many() const { return many_; }
    /// Places in use by commands for a slot's SSD, and by commands that go to many.
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
