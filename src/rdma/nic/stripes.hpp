// stripes.hpp: counting that costs the threads on the data path neither a shared line nor a locked
// instruction.
//
// A counter is an array of stripes. A thread leases one for its life, and is then the only one that writes
// it: it adds by a plain load and store. Threads that find none left share the last stripe and pay for it.
//
// Counting before looking (a pin, then the key) needs the count to be seen before the look: a full fence, at
// every command. Here the side that rarely runs pays: it changes what is looked at, calls heavy_fence(),
// which makes every thread of the process pass a full fence (membarrier(2), private expedited), and then
// reads the counts. Where the kernel has no such call, and under ThreadSanitizer, which does not know of it,
// both sides use ordinary sequentially consistent operations.
#pragma once

#include <atomic>
#include <cstdint>

namespace gnstor::rdma {

inline constexpr std::uint32_t kStripes = 32;
inline constexpr std::uint32_t kSharedStripe = kStripes - 1;

namespace detail {
inline constexpr std::uint32_t kNoStripe = ~0u;
constinit inline thread_local std::uint32_t stripe = kNoStripe;
/// The thread has a stripe of its own, and heavy_fence() does what it leaves out.
constinit inline thread_local bool light = false;
/// Leases a stripe to the calling thread until it ends.
std::uint32_t lease_stripe() noexcept;
}  // namespace detail

/// The calling thread's stripe. kSharedStripe may be other threads' too.
inline std::uint32_t my_stripe() noexcept {
    if (detail::stripe == detail::kNoStripe) [[unlikely]]
        return detail::lease_stripe();
    return detail::stripe;
}

/// Adds to the calling thread's stripe of a counter; ordered after what came before (release) for whoever
/// acquires the sum.
template <class T>
void add_to_mine(std::atomic<T>& mine, T by) noexcept {
    if (my_stripe() == kSharedStripe) [[unlikely]] {
        mine.fetch_add(by, std::memory_order_release);
        return;
    }
    mine.store(static_cast<T>(mine.load(std::memory_order_relaxed) + by), std::memory_order_release);
}

/// The same, and before any load that follows, as seen by a thread that has called heavy_fence() since it
/// changed what is loaded.
template <class T>
void add_to_mine_first(std::atomic<T>& mine, T by) noexcept {
    if (!detail::light) [[unlikely]] {
        mine.fetch_add(by, std::memory_order_seq_cst);
        return;
    }
    mine.store(static_cast<T>(mine.load(std::memory_order_relaxed) + by), std::memory_order_release);
    // The compiler must not move the look before the count; the processor may, until heavy_fence().
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

/// See above. Microseconds; not for the data path.
void heavy_fence() noexcept;

}  // namespace gnstor::rdma
