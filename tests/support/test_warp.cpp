// test_warp.cpp: the meetings, the seeded scheduler and the run of test warps.
//
// A TestWarp's lane table is guarded by its mutex; each lane waits on its own condition variable, and the
// lane that completes a meeting writes every member's result and releases it. A TestRun holds what warps
// share: the first failure.
#include "support/test_warp.hpp"

#include <gnstor/base/hash.hpp>
#include <gnstor/simt/yield.hpp>

#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer's runtime: between Begin and End this thread's accesses neither order memory nor are
// checked.
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace gnstor::simt {
namespace {

/// Ends a lane's kernel; caught in the lane's thread.
struct WarpAborted {};

/// While it lives, ThreadSanitizer ignores the order that this thread's locks make (if `active`).
class HiddenFromTsan {
  public:
    explicit HiddenFromTsan([[maybe_unused]] bool active) {
#if defined(__SANITIZE_THREAD__)
        active_ = active;
        if (!active_) return;
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
    }
    ~HiddenFromTsan() {
#if defined(__SANITIZE_THREAD__)
        if (!active_) return;
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
#endif
    }
    HiddenFromTsan(const HiddenFromTsan&) = delete;
    HiddenFromTsan& operator=(const HiddenFromTsan&) = delete;

#if defined(__SANITIZE_THREAD__)
  private:
    bool active_ = false;
#endif
};

const char* name_of(Collective what) {
    constexpr const char* kNames[] = {"sync", "warp", "ballot", "shfl", "match", "sum", "unite"};
    return kNames[static_cast<std::size_t>(what)];
}

bool same_place(Site a, Site b) {
    return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

/// What the warps of a run share: whether and why it failed. Any lane.
class TestRun {
  public:
    // Relaxed: a lane that misses it sees it at its next check; the message is guarded by the mutex.
    [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_relaxed); }
    void fail(const std::string& why) {
        const std::lock_guard lock(mutex_);
        if (why_.empty()) why_ = why;
        aborted_.store(true, std::memory_order_relaxed);
    }
    std::string why() {
        const std::lock_guard lock(mutex_);
        return why_;
    }

  private:
    std::atomic<bool> aborted_{false};
    std::mutex mutex_;
    std::string why_;
};

class TestWarp final : public WarpRendezvous {
  public:
    TestWarp(TestRun& run, std::uint32_t index, const TestWarpOptions& options)
        : run_(run),
          index_(index),
          timeout_(options.meeting_timeout_ns),
          random_(mix64(options.seed) + index),
          live_(options.lanes == 32 ? 0xFFFFFFFFu : (1u << options.lanes) - 1u) {}

    std::uint32_t meet(std::uint32_t lane, std::uint32_t mask, Collective what, std::uint64_t value,
                       std::uint64_t* values, Site site) override {
        const HiddenFromTsan hidden(what != Collective::kSync);
        std::unique_lock lock(mutex_);
        LaneState& me = lanes_[lane];
        if (((mask >> lane) & 1u) == 0)
            abort(fmt::format("{} is not a member of the group that it uses", place(lane, site)));
        me.mask = mask;
        me.what = what;
        me.value = value;
        me.values = values;
        me.site = site;
        me.state = State::kMeeting;
        check_agreement(lane);
        if (!complete(mask)) check_not_stuck();
        wait_for_release(lock, lane);
        return me.present;
    }

    std::uint32_t gather_active(std::uint32_t lane, Site site) override {
        const HiddenFromTsan hidden(true);
        std::unique_lock lock(mutex_);
        LaneState& me = lanes_[lane];
        me.site = site;
        me.opener = opener_at(site, lane);
        me.state = State::kGathering;
        if (me.opener == lane)
            open_gathering(lock, lane);
        else
            wait_for_release(lock, lane);
        return me.present;
    }

    [[noreturn]] void misuse(std::uint32_t lane, const char* rule, Site site) override {
        abort(fmt::format("{}: {}", place(lane, site), rule));
    }

    /// The lane's kernel is over: meetings that waited for it may be complete now.
    void leave(std::uint32_t lane) {
        const HiddenFromTsan hidden(true);  // leaving orders nothing on a GPU either
        const std::lock_guard lock(mutex_);
        live_ &= ~(1u << lane);
        lanes_[lane].state = State::kGone;
        if (run_.aborted()) return;
        try {
            bool completed = false;
            for (std::uint32_t i = 0; i < kWarpLanes; ++i)
                if (is_live(i) && lanes_[i].state == State::kMeeting)
                    completed = complete(lanes_[i].mask) || completed;
            if (!completed) check_not_stuck();
        } catch (const WarpAborted&) {
            // Recorded in run_; this lane is done anyway.
        }
    }

    TestWarpCounters counters() const { return counters_; }

  private:
    enum class State : std::uint8_t { kRunning, kMeeting, kGathering, kGone };
    struct LaneState {
        State state = State::kRunning;
        Collective what = Collective::kSync;
        std::uint32_t mask = 0;
        std::uint32_t present = 0;  // the result
        std::uint32_t opener = 0;   // of the gathering it is in
        std::uint64_t value = 0;
        std::uint64_t* values = nullptr;
        Site site{"", 0};
        std::condition_variable released;
    };

    [[noreturn]] void abort(const std::string& why) {
        run_.fail(why);
        throw WarpAborted{};
    }
    [[nodiscard]] bool is_live(std::uint32_t lane) const { return ((live_ >> lane) & 1u) != 0; }
    [[nodiscard]] std::string place(std::uint32_t lane, Site site) const {
        return fmt::format("warp {} lane {} at {}:{}", index_, lane, site.file, site.line);
    }

    // Members of one group at different places in the code: a GPU would hang, or pair them by mistake.
    void check_agreement(std::uint32_t lane) {
        const LaneState& me = lanes_[lane];
        for (std::uint32_t i = 0; i < kWarpLanes; ++i) {
            const LaneState& other = lanes_[i];
            if (i == lane || !is_live(i) || other.state != State::kMeeting || other.mask != me.mask) continue;
            if (other.what == me.what && same_place(other.site, me.site)) continue;
            abort(fmt::format("collectives do not match: {} calls {}, {} calls {}, in one group (mask {:#x})",
                              place(lane, me.site), name_of(me.what), place(i, other.site),
                              name_of(other.what), me.mask));
        }
    }

    // If all live lanes of `mask` have arrived: writes their results and releases them.
    bool complete(std::uint32_t mask) {
        const std::uint32_t members = mask & live_;
        for (std::uint32_t i = 0; i < kWarpLanes; ++i)
            if (((members >> i) & 1u) != 0 && (lanes_[i].state != State::kMeeting || lanes_[i].mask != mask))
                return false;
        std::array<std::uint64_t, kWarpLanes> values{};
        for (std::uint32_t i = 0; i < kWarpLanes; ++i)
            if (((members >> i) & 1u) != 0) values[i] = lanes_[i].value;
        for (std::uint32_t i = 0; i < kWarpLanes; ++i) {
            if (((members >> i) & 1u) == 0) continue;
            std::memcpy(lanes_[i].values, values.data(), sizeof values);
            release(i, members);
        }
        ++counters_.meetings;
        return members != 0;
    }

    void release(std::uint32_t lane, std::uint32_t present) {
        lanes_[lane].present = present;
        lanes_[lane].state = State::kRunning;
        lanes_[lane].released.notify_one();
    }

    // Fails if every live lane waits in a meeting and none is complete: a deadlock.
    void check_not_stuck() {
        std::string who;
        for (std::uint32_t i = 0; i < kWarpLanes; ++i) {
            if (!is_live(i)) continue;
            if (lanes_[i].state != State::kMeeting) return;
            who += fmt::format("\n  {} in {} for mask {:#x}", place(i, lanes_[i].site),
                               name_of(lanes_[i].what), lanes_[i].mask);
        }
        if (!who.empty())
            abort(fmt::format("collectives do not match: the lanes wait for each other:{}", who));
    }

    void wait_for_release(std::unique_lock<std::mutex>& lock, std::uint32_t lane) {
        LaneState& me = lanes_[lane];
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_);
        // In slices, because another warp's failure ends this one too, but does not notify its lanes.
        constexpr auto kSlice = std::chrono::milliseconds(20);
        while (me.state != State::kRunning) {
            if (run_.aborted()) throw WarpAborted{};
            me.released.wait_for(lock, kSlice);
            if (me.state != State::kRunning && std::chrono::steady_clock::now() > give_up)
                abort(fmt::format("{} waited {} s in {} for mask {:#x}", place(lane, me.site),
                                  timeout_ / 1'000'000'000, name_of(me.what), me.mask));
        }
    }

    [[nodiscard]] std::uint32_t opener_at(Site site, std::uint32_t lane) const {
        for (std::uint32_t i = 0; i < kWarpLanes; ++i)
            if (is_live(i) && lanes_[i].state == State::kGathering && lanes_[i].opener == i &&
                same_place(lanes_[i].site, site))
                return i;
        return lane;
    }

    // The first lane to arrive waits a seeded time for others, then divides all of them into groups.
    void open_gathering(std::unique_lock<std::mutex>& lock, std::uint32_t lane) {
        const std::uint64_t patience = random_.below(2) == 0 ? random_.below(4) : random_.below(64);
        for (std::uint64_t i = 0; i < patience && somebody_runs(); ++i) {
            if (run_.aborted()) throw WarpAborted{};
            lock.unlock();
            sched_yield();
            lock.lock();
        }
        constexpr std::uint32_t kGroupsMax = 3;
        std::uint32_t groups[kGroupsMax] = {};
        const std::uint64_t ways = random_.below(2) == 0 ? 1 : 1 + random_.below(kGroupsMax);
        std::uint32_t members = 0;
        for (std::uint32_t i = 0; i < kWarpLanes; ++i) {
            if (!is_live(i) || lanes_[i].state != State::kGathering || lanes_[i].opener != lane) continue;
            members |= 1u << i;
            groups[random_.below(ways)] |= 1u << i;
        }
        ++counters_.gatherings;
        for (const std::uint32_t group : groups) {
            if (group != 0 && group != members && (group & (1u << lane)) != 0) ++counters_.splits;
            for (std::uint32_t i = 0; i < kWarpLanes; ++i)
                if (((group >> i) & 1u) != 0) release(i, group);
        }
    }
    [[nodiscard]] bool somebody_runs() const {
        for (std::uint32_t i = 0; i < kWarpLanes; ++i)
            if (is_live(i) && lanes_[i].state == State::kRunning) return true;
        return false;
    }

    TestRun& run_;
    const std::uint32_t index_;
    const std::uint64_t timeout_;
    std::mutex mutex_;
    SplitMix64 random_;  // guarded by mutex_, as all below
    std::uint32_t live_;
    std::array<LaneState, kWarpLanes> lanes_;
    TestWarpCounters counters_;
};

/// Yields the processor at atomics; how often depends on the lane's current priority, which is redrawn now
/// and then.
class LaneScheduler final : public YieldHook {
  public:
    LaneScheduler(TestRun& run, std::uint64_t seed) : run_(run), random_(seed) {}
    void on_atomic() override {
        if (run_.aborted() && std::uncaught_exceptions() == 0) throw WarpAborted{};
        ++atomics;
        if (left_ == 0) {
            constexpr std::uint32_t kOneIn[] = {2, 4, 16, 64};
            left_ = 1 + random_.below(64);
            one_in_ = kOneIn[random_.below(4)];
        }
        --left_;
        if (random_.below(one_in_) != 0) return;
        ++yields;
        sched_yield();
    }
    std::uint64_t atomics = 0;
    std::uint64_t yields = 0;

  private:
    TestRun& run_;
    SplitMix64 random_;
    std::uint64_t left_ = 0;
    std::uint32_t one_in_ = 1;
};

void run_lane(TestRun& run, TestWarp& warp, LaneScheduler& scheduler, Lane lane,
              const std::function<void(Lane)>& kernel) {
#if defined(GN_TEST_WARPS)
    this_thread_yield_hook() = &scheduler;
#else
    (void)scheduler;
#endif
    try {
        kernel(lane);
    } catch (const WarpAborted&) {
        // The reason is in `run` already.
    } catch (const std::exception& e) {
        run.fail(fmt::format("lane {} of block {} threw: {}", lane.thread, lane.block, e.what()));
    }
#if defined(GN_TEST_WARPS)
    this_thread_yield_hook() = nullptr;
#endif
    warp.leave(lane.index_in_warp);
}

}  // namespace

Result<TestWarpCounters> run_test_warps(const TestWarpOptions& options,
                                        const std::function<void(Lane)>& kernel) {
    constexpr std::uint64_t kThreadsMax = 4096;
    const std::uint64_t threads_wanted = std::uint64_t{options.warps} * options.lanes;
    if (options.lanes == 0 || options.lanes > kWarpLanes || options.warps == 0 ||
        options.warps_per_block == 0 || threads_wanted > kThreadsMax)
        return error(Errc::kInvalidArgument,
                     "{} test warps of {} lanes: use 1 to 32 lanes, at most {} in all", options.warps,
                     options.lanes, kThreadsMax);
    TestRun run;
    std::vector<std::unique_ptr<TestWarp>> warps;
    std::vector<std::unique_ptr<LaneScheduler>> schedulers;
    for (std::uint32_t w = 0; w < options.warps; ++w)
        warps.push_back(std::make_unique<TestWarp>(run, w, options));
    std::latch start(static_cast<std::ptrdiff_t>(threads_wanted));
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < threads_wanted; ++i) {
        const std::uint32_t w = i / options.lanes;
        Lane lane;
        lane.index_in_warp = i % options.lanes;
        lane.block = w / options.warps_per_block;
        lane.thread = (w % options.warps_per_block) * options.lanes + lane.index_in_warp;
        lane.block_threads = options.warps_per_block * options.lanes;
        lane.grid_blocks = (options.warps + options.warps_per_block - 1) / options.warps_per_block;
        lane.rendezvous = warps[w].get();
        lane.warp_lanes = options.lanes;
        schedulers.push_back(
            std::make_unique<LaneScheduler>(run, mix64(options.seed ^ (std::uint64_t{i} << 32))));
        threads.emplace_back([&, lane, w, scheduler = schedulers.back().get()] {
            start.arrive_and_wait();
            run_lane(run, *warps[w], *scheduler, lane, kernel);
        });
    }
    for (auto& thread : threads) thread.join();
    if (run.aborted())
        return error(Errc::kInternal, "{} (test warps: {} of {} lanes, seed {})", run.why(), options.warps,
                     options.lanes, options.seed);
    TestWarpCounters total;
    for (const auto& warp : warps) {
        total.meetings += warp->counters().meetings;
        total.gatherings += warp->counters().gatherings;
        total.splits += warp->counters().splits;
    }
    for (const auto& scheduler : schedulers) {
        total.atomics += scheduler->atomics;
        total.yields += scheduler->yields;
    }
    return total;
}

}  // namespace gnstor::simt
