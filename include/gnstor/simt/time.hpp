// time.hpp: what time it is, and how a lane waits. CPU and GPU lanes.
#pragma once

#include <gnstor/base/target.hpp>

#include <cstdint>

#if !GN_DEVICE_PASS
#include <sched.h>
#include <ctime>
#endif

namespace gnstor::simt {

/// Nanoseconds of a clock that never goes back; comparable among lanes of one processor, not between CPU and
/// GPU. GPU: %globaltimer (ticks every 32 ns on an H200); CPU: CLOCK_MONOTONIC.
GN_HD
inline std::uint64_t now_ns() {
#if GN_DEVICE_PASS
    std::uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
#else
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
#endif
}

/// Waits a little, longer each time with the same `backoff` (start it at 0). A CPU lane yields its core; a
/// GPU lane sleeps, about a microsecond at most.
GN_HD
inline void pause(std::uint32_t& backoff) {
#if GN_DEVICE_PASS
    __nanosleep(32u << (backoff < 5 ? backoff : 5));
    ++backoff;
#else
    ++backoff;
    if (backoff > 4) sched_yield();
#endif
}

/// As pause, for who waits for what other lanes of its warp may hold. A GPU's lanes that have gone different
/// ways take turns, and nothing says how the hardware shares them out; the one that holds what the others
/// wait for gets its turn when all of them sleep at once. So a lane that has come back in vain 16,384 times
/// in a row (tens of milliseconds) sleeps longer and longer, up to half a millisecond, also where a turn
/// takes many times longer than a microsecond. A CPU lane that has yielded 2,000 times in a row (about a
/// millisecond, if no other thread wants its core) sleeps for 100 to 200 us each time: the system calls of
/// yielding would take much of the processor from the drives that it waits for.
GN_HD
inline void pause_for_others(std::uint32_t& backoff) {
#if GN_DEVICE_PASS
    constexpr std::uint32_t kOften = 1u << 14, kOftenEach = 1u << 8, kDoublings = 9;
    if (backoff >= kOften) {
        const std::uint32_t doublings = (backoff - kOften) / kOftenEach;
        __nanosleep(1024u << doublings);
        if (doublings < kDoublings) ++backoff;
        return;
    }
#else
    constexpr std::uint32_t kYields = 2'000;
    constexpr timespec kAway{0, 50'000};  // and the kernel's timer slack
    if (backoff > kYields) {
        nanosleep(&kAway, nullptr);
        return;
    }
#endif
    pause(backoff);
}

/// As pause, for who waits for one lane that is about to do a certain thing. The threads of CPU lanes may
/// have lost their core just then, and yielding brings them back only when it suits the scheduler: after a
/// few times this one sleeps (100 us).
GN_HD
inline void give_way(std::uint32_t& backoff) {
    pause(backoff);
#if !GN_DEVICE_PASS
    constexpr std::uint32_t kYields = 32;
    const timespec away{0, 100'000};
    if (backoff > kYields) nanosleep(&away, nullptr);
#endif
}

/// A point in time after which a wait ends with Status::kTimedOut. Trivially copyable.
struct Deadline {
    std::uint64_t at_ns;
    /// `ns` from now; what lies beyond the clock's end (all ones: wait for ever) ends with the clock.
    GN_HD
    static Deadline in_ns(std::uint64_t ns) {
        const std::uint64_t now = now_ns();
        return Deadline{ns < ~now ? now + ns : ~std::uint64_t{0}};
    }
    GN_HD
    bool passed() const { return now_ns() >= at_ns; }
};

}  // namespace gnstor::simt
