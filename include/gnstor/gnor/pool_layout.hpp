// pool_layout.hpp: how the words of a pool's allocator lie. Layout; no behaviour. Written by the host before
// lanes get the channel.
#pragma once

#include <cstdint>

namespace gnstor::gnor {

inline constexpr std::uint32_t kMaxPoolLevels = 4;

/// The sizes of a pool's levels, as powers of two of its blocks: shift[0] is 0, each next one larger by 1 to
/// 6, so that the blocks of a group lie in one word.
struct PoolLevels {
    std::uint32_t count;
    std::uint32_t shift[kMaxPoolLevels];
};

/// One growth step of the pool: which of its blocks, and where its words lie among all words of the pool.
struct PoolStep {
    std::uint32_t first;  ///< block of the pool
    std::uint32_t blocks;
    std::uint32_t words[kMaxPoolLevels];       ///< of each level
    std::uint32_t word_at[kMaxPoolLevels];     ///< where they begin
    std::uint32_t summary_at[kMaxPoolLevels];  ///< where their summary begins
    std::uint32_t moves_at;  ///< a word: splits and merges begun (63:32), and those under way (31:0)
};

}  // namespace gnstor::gnor
