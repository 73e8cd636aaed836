// reclaim_pace.hpp: when a gateway tries again to make broken connections anew. Pure.
//
// An attempt begins no command until the channel is quiet and the SSDs have been called, whether it succeeds
// or not. Commands that the other SSDs could answer meanwhile wait for it a tenth of the time at most. Where
// none waited, those that the broken connections hold back are all there is, and the next attempt follows
// soon. One thread.
#pragma once

#include <algorithm>
#include <chrono>

namespace gnstor::gateway {

class ReclaimPace {
  public:
    using Clock = std::chrono::steady_clock;
    static constexpr Clock::duration kPause = std::chrono::seconds(1);
    static constexpr int kShare = 10;

    [[nodiscard]] bool due(Clock::time_point now) const { return now >= next_; }
    /// An attempt is over. `others_waited`: commands that no broken connection holds back were not begun.
    void ended(Clock::time_point began, Clock::time_point now, bool others_waited) {
        next_ = now + (others_waited ? std::max(kPause, (now - began) * kShare) : kPause);
    }

  private:
    Clock::time_point next_{};
};

}  // namespace gnstor::gateway
