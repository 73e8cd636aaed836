// pieces.hpp: how a range of blocks is split into commands. Pure; CPU and GPU lanes.
//
// Pieces are aligned spans of 2^shift blocks cut out of the range: they cover it exactly, in order, and as a
// chunk is such a span (or a multiple of one) no piece crosses a chunk boundary (docs/design.md, "A read,
// from end to end", 1).
#pragma once

#include <gnstor/base/target.hpp>

#include <cstdint>

namespace gnstor::gnor {

struct Piece {
    std::uint32_t block;   ///< first block, of the volume
    std::uint32_t blocks;  ///< 1 .. 2^shift
    std::uint32_t offset;  ///< blocks since the beginning of the range
};

/// How many pieces the range has; `blocks` > 0 and block + blocks <= 2^32.
GN_HD
constexpr std::uint32_t piece_count(std::uint32_t block, std::uint32_t blocks, std::uint32_t shift) {
    const std::uint64_t last = std::uint64_t{block} + blocks - 1;
    return static_cast<std::uint32_t>((last >> shift) - (block >> shift) + 1);
}

/// Piece `index` of the range, in order of address; index < piece_count().
GN_HD
constexpr Piece piece_at(std::uint32_t block, std::uint32_t blocks, std::uint32_t shift,
                         std::uint32_t index) {
    const std::uint64_t span = (std::uint64_t{block} >> shift) + index;
    const std::uint64_t span_begin = span << shift;
    const std::uint64_t span_end = (span + 1) << shift;
    const std::uint64_t range_end = std::uint64_t{block} + blocks;
    const std::uint64_t begin = span_begin > block ? span_begin : block;
    const std::uint64_t end = span_end < range_end ? span_end : range_end;
    return Piece{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end - begin),
                 static_cast<std::uint32_t>(begin - block)};
}

}  // namespace gnstor::gnor
