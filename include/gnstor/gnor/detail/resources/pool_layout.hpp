// pool_layout.hpp: where the words of a pool's allocator lie. Layout; no behaviour. Written by the host
// before lanes get the channel.
#pragma once

#include <cstdint>

namespace gnstor::gnor {

inline constexpr std::uint32_t kMaxPoolLevels = 4;

/// The block sizes of a pool's levels, as log2 of 4 KiB blocks: shift[0] is 0, each next one is larger by 1
/// to 6, so that the blocks of a group lie in one 64-bit word.
struct PoolLevels {
    std::uint32_t count;
    std::uint32_t shift[kMaxPoolLevels];
};

/// One growth step of the pool: its blocks, and where its words lie among all words of the pool.
struct PoolStep {
    std::uint32_t first;  ///< first block, counted over the whole pool
    std::uint32_t blocks;
    std::uint32_t words[kMaxPoolLevels];       ///< bitmap words of each level
    std::uint32_t word_at[kMaxPoolLevels];     ///< a level's first word
    std::uint32_t summary_at[kMaxPoolLevels];  ///< first word of its summary
    std::uint32_t moves_at;  ///< the word that counts splits and merges: begun (63:32), under way (31:0)
};

}  // namespace gnstor::gnor
