// recorder.hpp: what a lane is to do, and what it notes while doing it. Device code, CPU and GPU lanes.
//
// Each lane has a LaneResult and a row of latency samples of its own in lane memory: no lane waits for
// another to record. Beyond its row a lane keeps a uniform sample of all its operations (reservoir sampling).
#pragma once

#include <gnstor/base/hash.hpp>
#include <gnstor/nvme/status.hpp>
#include <gnstor/simt/time.hpp>

#include <cstdint>

#if !GN_DEVICE_PASS
#include <ctime>
#endif

namespace gnstor::bench {

/// How much of what is read is checked, word by word.
enum class Verify : std::uint32_t { kNone, kSample, kAll };
inline constexpr std::uint32_t kSampleOf = 16;  ///< kSample: all words of one read in 16

/// What one lane did. Times are the lanes' own clock.
struct LaneResult {
    std::uint64_t begin_ns, end_ns;
    std::uint64_t operations;  ///< that succeeded
    std::uint64_t checked;     ///< reads that were compared, every word
    std::uint64_t wrong;       ///< of these: with a wrong word
    std::uint64_t waiting_ns;  ///< nothing to send, nothing came back
    std::uint64_t cpu_ns;      ///< of the thread; CPU lanes only
    std::uint32_t samples;     ///< of latency, in this lane's row
    std::uint32_t quota_used;  ///< 1: ended because it may not issue more, before its time was up
    std::uint32_t failures;
    std::uint32_t first_status;  ///< nvme::Status of the first failure
    std::uint64_t first_offset;  ///< byte offset of the first failure or wrong word
};

/// One repeat of one case, the same for all lanes; taken by value.
struct Plan {
    std::uint32_t bytes;  ///< an operation's
    bool write;
    Verify verify;
    std::uint32_t depth;         ///< operations in flight a lane
    std::uint32_t lanes_a_warp;  ///< that ask for operations; the others help
    std::uint64_t units;         ///< the working set in pieces of `bytes`; at most 2^32
    std::uint64_t contents_seed;
    std::uint64_t order_seed;
    std::uint64_t duration_ns;
    std::uint64_t quota;        ///< operations a lane may issue
    std::uint64_t interval_ps;  ///< open loop: a lane means to send every so often; 0: whenever it can
    std::uint32_t samples_a_lane;
    LaneResult* results;
    std::uint32_t* samples;
};

/// A lane's notes. `plan` outlives it.
class Recorder {
  public:
    GN_HD
    Recorder(const Plan& plan, std::uint64_t rank)
        : plan_(plan),
          result_(&plan.results[rank]),
          row_(plan.samples + rank * plan.samples_a_lane),
          random_(mix64(mix64(plan.order_seed) + rank)) {}

    GN_HD
    void begin() {
        own_ = LaneResult{};
        own_.cpu_ns = thread_cpu_ns();
        own_.begin_ns = simt::now_ns();
        end_at_ = own_.begin_ns + plan_.duration_ns;
        intended_ps_ = plan_.interval_ps == 0 ? 0 : random_.next() % plan_.interval_ps;  // lanes out of step
    }
    GN_HD
    void end() {
        own_.end_ns = simt::now_ns();
        own_.cpu_ns = thread_cpu_ns() - own_.cpu_ns;
        *result_ = own_;
    }

    /// Whether this lane should issue another operation; counts nothing. Its first one (on `path`, one for
    /// each place in flight) it issues though its time is up: a lane that got no processor for so long would
    /// else have measured nothing. In an open loop only if that was to be sent before the end: there is
    /// nothing to wait for then.
    GN_HD
    bool wants_more(std::uint64_t now_ns) {
        if (own_.failures != 0) return false;
        if (now_ns >= end_at_ && (issued_ != 0 || intended_ns() >= end_at_)) return false;
        if (issued_ < plan_.quota) return true;
        own_.quota_used = 1;
        return false;
    }
    GN_HD
    void issued() { ++issued_; }
    /// Whether the next operation is meant to have been sent by now. Always, in a closed loop.
    GN_HD
    bool due(std::uint64_t now_ns) const { return plan_.interval_ps == 0 || now_ns >= intended_ns(); }
    /// When the next operation is meant to be sent, and on to the one after it. Latency counts from there: an
    /// operation that has to wait for its turn at the lane waits in its latency too.
    GN_HD
    std::uint64_t take_intended(std::uint64_t now_ns) {
        if (plan_.interval_ps == 0) return now_ns;
        const std::uint64_t at = intended_ns();
        intended_ps_ += plan_.interval_ps;
        return at;
    }
    GN_HD
    std::uint64_t draw_offset() { return random_.below(plan_.units) * plan_.bytes; }
    GN_HD
    bool chooses_to_check() {
        if (plan_.verify == Verify::kSample) return random_.below(kSampleOf) == 0;
        return plan_.verify == Verify::kAll;
    }

    GN_HD
    void success(std::uint64_t latency_ns) {
        const std::uint64_t n = own_.operations++;
        const std::uint64_t at = n < plan_.samples_a_lane ? n : random_.below(n + 1);
        if (at >= plan_.samples_a_lane) return;
        row_[at] = latency_ns < 0xFFFFFFFFu ? static_cast<std::uint32_t>(latency_ns) : 0xFFFFFFFFu;
        if (n < plan_.samples_a_lane) ++own_.samples;
    }
    GN_HD
    void failure(nvme::Status status, std::uint64_t offset) {
        if (own_.failures++ != 0) return;
        own_.first_status = static_cast<std::uint32_t>(status);
        own_.first_offset = offset;
    }
    GN_HD
    void compared(bool right, std::uint64_t offset) {
        ++own_.checked;
        if (right) return;
        if (own_.wrong++ == 0 && own_.failures == 0) own_.first_offset = offset;
    }
    GN_HD
    void waited(std::uint64_t ns) { own_.waiting_ns += ns; }

  private:
    GN_HD
    std::uint64_t intended_ns() const { return own_.begin_ns + intended_ps_ / 1000; }
    GN_HD
    static std::uint64_t thread_cpu_ns() {
#if GN_DEVICE_PASS
        return 0;
#else
        timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
#endif
    }

    const Plan& plan_;
    LaneResult* result_;
    std::uint32_t* row_;
    SplitMix64 random_;
    LaneResult own_{};
    std::uint64_t end_at_ = 0;
    std::uint64_t issued_ = 0;
    std::uint64_t intended_ps_ = 0;  ///< since begin_ns
};

}  // namespace gnstor::bench
