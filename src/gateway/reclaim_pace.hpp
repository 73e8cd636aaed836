// reclaim_pace.hpp: when a gateway tries again to make broken connections anew. Pure.
//
// An attempt lets no command begin until the channel is quiet and the SSDs have been called. Attempts take a
// tenth of the time at most from commands that other SSDs could answer. An attempt whose channel did not
// become quiet while no such command waited has cost nothing: the next one follows soon. One thread.
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
    /// An attempt is over. `costly`: it called the SSDs, or commands that no broken connection holds back
    /// were not begun meanwhile.
    void ended(Clock::time_point began, Clock::time_point now, bool costly) {
        next_ = now + (costly ? std::max(kPause, (now - began) * kShare) : kPause);
    }

  private:
    Clock::time_point next_{};
};

}  // namespace gnstor::gateway
