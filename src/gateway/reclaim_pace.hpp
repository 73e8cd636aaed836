// reclaim_pace.hpp: when a gateway next tries to re-establish broken connections. Pure.
//
// During an attempt no command begins until the channel is quiet and the SSDs have been contacted. Attempts
// may take at most a tenth of the time from commands that other SSDs could answer. If the channel did not
// become quiet, and no such command waited, the attempt cost nothing, and the next one follows soon. One
// thread.
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
    /// An attempt is over. `costly`: it contacted the SSDs, or delayed commands that need no broken
    /// connection.
    void ended(Clock::time_point began, Clock::time_point now, bool costly) {
        next_ = now + (costly ? std::max(kPause, (now - began) * kShare) : kPause);
    }

  private:
    Clock::time_point next_{};
};

}  // namespace gnstor::gateway
