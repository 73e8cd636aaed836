// pool_plan.hpp: the levels and growth steps of a pool, and where their words lie in lane memory. Pure
// arithmetic; host.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/gnor/channel_state.hpp>

#include <array>
#include <cstdint>

namespace gnstor::gnor {

inline constexpr std::uint64_t kPoolBytesMost = 64ull << 30;

/// What a pool shall be.
struct PoolOptions {
    std::uint64_t bytes = 8ull << 20;  ///< registered at once; a multiple of 256 KiB
    std::uint64_t bytes_max = 0;       ///< growth ends here; 0: it does not grow
    /// Block sizes of the levels, ascending: 4096 first, each next one 2 to 64 times as large; 0 ends them.
    std::array<std::uint32_t, kMaxPoolLevels> levels{4096, 65536, 1u << 20, 0};
};

/// kInvalidArgument names what is wrong with them and what is right.
[[nodiscard]] Result<void> check_pool(const PoolOptions& options);

struct PoolPlan {
    PoolLevels levels{};
    std::uint32_t steps_max = 0;
    PoolStep steps[kMaxPoolSteps]{};
    std::uint32_t words = 0;        ///< 64-bit words of all bitmaps and summaries
    std::uint32_t blocks = 0;       ///< of all steps
    std::uint32_t blocks_most = 0;  ///< in one run

    /// Of options that were checked.
    [[nodiscard]] static PoolPlan of(const PoolOptions& options);

  private:
    void add_step(std::uint32_t blocks_of_step);
};

}  // namespace gnstor::gnor
