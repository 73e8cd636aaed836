// pool_plan.hpp: the levels and growth steps of a pool, and where their words lie in lane memory. Pure
// arithmetic; host.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/gnor/detail/resources/channel_state.hpp>

#include <array>
#include <cstdint>

namespace gnstor::gnor {

inline constexpr std::uint64_t kPoolBytesMost = 64ull << 30;

/// What the user wants of a pool; check_pool() checks it.
struct PoolOptions {
    std::uint64_t bytes = 8ull << 20;  ///< registered at once; a multiple of 256 KiB
    std::uint64_t bytes_max = 0;       ///< growth ends here; 0: it does not grow
    /// Block sizes of the levels in bytes, ascending: 4096 first, each next one 2 to 64 times as large; 0
    /// ends the list.
    std::array<std::uint32_t, kMaxPoolLevels> levels{4096, 65536, 1u << 20, 0};
};

/// kInvalidArgument: the message names the wrong option and the values allowed.
[[nodiscard]] Result<void> check_pool(const PoolOptions& options);

struct PoolPlan {
    PoolLevels levels{};
    std::uint32_t steps_max = 0;
    PoolStep steps[kMaxPoolSteps]{};
    std::uint32_t words = 0;        ///< 64-bit words of all bitmaps and summaries
    std::uint32_t blocks = 0;       ///< of all growth steps
    std::uint32_t blocks_most = 0;  ///< longest run that can be allocated

    /// `options` has passed check_pool().
    [[nodiscard]] static PoolPlan of(const PoolOptions& options);

  private:
    void add_step(std::uint32_t blocks_of_step);
};

}  // namespace gnstor::gnor
