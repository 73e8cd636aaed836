// stripes.hpp: where a thread counts, so that threads which count the same thing do not share cache lines.
#pragma once

#include <atomic>
#include <cstdint>

namespace gnstor::rdma {

inline constexpr std::uint32_t kStripes = 16;

/// The calling thread's stripe; threads share one only where there are more than kStripes of them.
inline std::uint32_t my_stripe() noexcept {
    static std::atomic<std::uint32_t> next{0};
    thread_local const std::uint32_t mine = next.fetch_add(1, std::memory_order_relaxed) % kStripes;
    return mine;
}

}  // namespace gnstor::rdma
