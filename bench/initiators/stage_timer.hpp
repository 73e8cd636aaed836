// stage_timer.hpp: where a polling thread's time goes: which stage of an I/O, or nothing to do. Host; one
// thread.
//
// One round in kStageSampleOf of the thread's loop is timed by the time stamp counter: laps between calls of
// charge(), each to the stage that it names. What a round found nothing to do in goes to kIdle. Totals are
// those of the timed rounds times kStageSampleOf: within a few percent of all, for some nanoseconds a round.
#pragma once

#include <gnstor/simt/time.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gnstor::bench {

inline constexpr std::uint32_t kStageSampleOf = 16;

/// What a thread that initiates or serves I/O does with its time.
enum class Stage : std::uint8_t {
    kHandOver,  ///< mailboxes of the lanes; an engine's rings from and to its clients
    kSubmit,    ///< commands into queue pairs, bells; requests into a ring
    kPoll,      ///< completions and answers
    kCopy,      ///< between host memory and the lanes': beginning copies and learning that they are over
    kLock,      ///< blocks of an array engine
    kTable,     ///< looking up and switching addresses
    kSpace,     ///< fresh blocks, and giving old ones back
    kLog,       ///< records of changes, and blocks of them
    kIdle,      ///< looked for work, found none
};
inline constexpr std::size_t kStages = 9;
inline constexpr const char* kStageNames[kStages] = {"hand-over", "submit", "poll", "copy", "lock",
                                                     "table",     "space",  "log",  "idle"};

[[nodiscard]] constexpr std::size_t index_of(Stage stage) {
    return static_cast<std::size_t>(stage);
}
[[nodiscard]] inline std::string stage_name(Stage stage) {
    return kStageNames[index_of(stage)];
}

using StageSums = std::array<double, kStages>;  // seconds

class StageTimer {
  public:
    void begin_run() {
        *this = StageTimer{};
        begin_ns_ = simt::now_ns();
        begin_ticks_ = ticks();
    }
    void begin_round() {
        timed_ = rounds_++ % kStageSampleOf == 0;
        if (timed_) last_ = ticks();
    }
    /// The time since the last call belongs to `stage`.
    void charge(Stage stage) {
        if (!timed_) return;
        const std::uint64_t now = ticks();
        sums_[index_of(stage)] += now - last_;
        last_ = now;
    }
    void charge_if(bool worked, Stage stage) { charge(worked ? stage : Stage::kIdle); }

    /// Adds the seconds of each stage since begin_run().
    void add_to(StageSums& seconds) const {
        const std::uint64_t passed = ticks() - begin_ticks_;
        if (passed == 0 || rounds_ == 0) return;
        const double a_tick =
            static_cast<double>(simt::now_ns() - begin_ns_) / static_cast<double>(passed) / 1e9;
        for (std::size_t i = 0; i < kStages; ++i)
            seconds[i] += static_cast<double>(sums_[i]) * kStageSampleOf * a_tick;
    }

  private:
    static std::uint64_t ticks() {
#if defined(__x86_64__)
        return __rdtsc();
#else
        return simt::now_ns();
#endif
    }
    std::array<std::uint64_t, kStages> sums_{};
    std::uint64_t begin_ns_ = 0, begin_ticks_ = 0, last_ = 0, rounds_ = 0;
    bool timed_ = false;
};

}  // namespace gnstor::bench
