// stripes.hpp: counters that cost the threads of the data path neither a shared cache line nor a locked
// instruction.
//
// A counter is an array of stripes. A thread leases one stripe for its lifetime and alone writes it, with
// a plain load and store. Threads that find no free stripe share the last one and use atomic additions.
//
// A pin counts first and then checks the key, so the count must be visible before the check: that would
// need a full fence per command. Here the rare side pays instead: it changes the checked word, calls
// heavy_fence(), which makes every thread of the process execute a full fence (membarrier(2), private
// expedited), and then reads the counts. Where the kernel lacks that call, and under ThreadSanitizer,
// which does not model it, both sides use sequentially consistent operations.
#pragma once

#include <atomic>
#include <cstdint>

namespace gnstor::rdma {

inline constexpr std::uint32_t kStripes = 32;
inline constexpr std::uint32_t kSharedStripe = kStripes - 1;

namespace detail {
inline constexpr std::uint32_t kNoStripe = ~0u;
constinit inline thread_local std::uint32_t stripe = kNoStripe;
/// The thread has a stripe of its own, and heavy_fence() replaces its full fences.
constinit inline thread_local bool light = false;
/// Leases a stripe to the calling thread until it ends.
std::uint32_t lease_stripe() noexcept;
}  // namespace detail

/// The calling thread's stripe. Several threads may share kSharedStripe.
inline std::uint32_t my_stripe() noexcept {
    if (detail::stripe == detail::kNoStripe) [[unlikely]]
        return detail::lease_stripe();
    return detail::stripe;
}

/// Adds to the calling thread's stripe. Release: a thread that acquires the sum sees what came before the
/// addition.
template <class T>
void add_to_mine(std::atomic<T>& mine, T by) noexcept {
    if (my_stripe() == kSharedStripe) [[unlikely]] {
        mine.fetch_add(by, std::memory_order_release);
        return;
    }
    mine.store(static_cast<T>(mine.load(std::memory_order_relaxed) + by), std::memory_order_release);
}

/// As add_to_mine; moreover the addition precedes every later load, as seen by a thread that changed the
/// loaded word and then called heavy_fence().
template <class T>
void add_to_mine_first(std::atomic<T>& mine, T by) noexcept {
    if (!detail::light) [[unlikely]] {
        mine.fetch_add(by, std::memory_order_seq_cst);
        return;
    }
    mine.store(static_cast<T>(mine.load(std::memory_order_relaxed) + by), std::memory_order_release);
    // The compiler must not move later loads before the addition; the processor may, until heavy_fence().
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

/// See the head of this file. Takes microseconds; not for the data path.
void heavy_fence() noexcept;

}  // namespace gnstor::rdma
