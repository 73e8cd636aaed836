// lane_timer.hpp: where the time of a warp that initiates I/O goes. Device code, CPU and GPU lanes.
//
// One round in kLaneRoundsSampled of a warp's loop is timed, in laps between calls of charge(), each to the
// stage that it names. Every lane keeps the same sums; that of the warp's first lane is the warp's.
#pragma once

#include <gnstor/simt/time.hpp>

namespace gnstor::bench {

inline constexpr std::uint32_t kLaneRoundsSampled = 16;

enum class LaneStage : std::uint32_t {
    kSubmit,   ///< commands and bells
    kPoll,     ///< completions taken and given out
    kLock,     ///< ported locks: rounds in which no lane of the warp got the channel's lock
    kPayload,  ///< contents made and compared
    kAgree,    ///< coordinating clients: locks of chunks
    kIdle,     ///< nothing to send, nothing came back
};
inline constexpr std::uint32_t kLaneStages = 6;
inline constexpr const char* kLaneStageNames[kLaneStages] = {"submit",  "poll",  "lock",
                                                             "payload", "agree", "idle"};

class LaneTimer {
  public:
    GN_HD
    void begin_round(std::uint64_t now_ns) {
        timed_ = rounds_++ % kLaneRoundsSampled == 0;
        last_ns_ = now_ns;
    }
    GN_HD
    void charge(LaneStage stage) {
        if (!timed_) return;
        const std::uint64_t now = simt::now_ns();
        sums_ns_[static_cast<std::uint32_t>(stage)] += now - last_ns_;
        last_ns_ = now;
    }
    /// Whether this round is one of those: for what costs something to know.
    GN_HD
    bool timed() const { return timed_; }
    GN_HD
    void store(std::uint64_t* to) const {
        for (std::uint32_t s = 0; s < kLaneStages; ++s) to[s] = sums_ns_[s] * kLaneRoundsSampled;
    }

  private:
    std::uint64_t sums_ns_[kLaneStages] = {};
    std::uint64_t last_ns_ = 0;
    std::uint32_t rounds_ = 0;
    bool timed_ = false;
};

}  // namespace gnstor::bench
