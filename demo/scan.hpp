// scan.hpp: what a group of lanes does with one block: finds a pattern, computes a CRC-32C. Device code, CPU
// and GPU lanes.
#pragma once

#include <gnstor/base/crc32c.hpp>
#include <gnstor/base/target.hpp>
#include <gnstor/nvme/command.hpp>
#include <gnstor/simt/atomic.hpp>
#include <gnstor/simt/group.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor::demo {

inline constexpr std::uint32_t kPatternBytesMax = 64;

/// What is looked for; taken by value by a kernel.
struct Pattern {
    std::uint8_t bytes[kPatternBytesMax];
    std::uint32_t length;  ///< 1 .. 64
};

/// Where lanes put what they found, in any order. `found` counts beyond `capacity`, so that an overflow is
/// seen.
struct Matches {
    std::uint64_t* offsets;
    std::uint32_t capacity;
    std::uint32_t* found;
};

/// Looks at the starting positions [0, starts) of `bytes`, of which `available` may be read (starts + length
/// - 1 if the input continues after the starting positions). All members call together; each takes every
/// size-th position.
template <class Group>
GN_HD void scan_bytes(Group group, const std::uint8_t* bytes, std::uint32_t starts, std::uint32_t available,
                      const Pattern& pattern, std::uint64_t base, Matches matches) {
    const std::uint8_t first = pattern.bytes[0];
    for (std::uint32_t at = group.rank(); at < starts; at += group.size()) {
        if (bytes[at] != first || at + pattern.length > available) continue;
        std::uint32_t same = 1;
        while (same < pattern.length && bytes[at + same] == pattern.bytes[same]) ++same;
        if (same < pattern.length) continue;
        const std::uint32_t slot = simt::fetch_add<simt::Scope::kSystem>(matches.found, 1u);
        if (slot < matches.capacity) matches.offsets[slot] = base + at;
    }
}

/// CRC-32C of one 4 KiB block. Each member takes pieces of 128 bytes; a CRC is linear, so the pieces' CRCs,
/// each moved past the bytes that follow it, add up (exclusive or) to the block's. All members call together
/// and get the same result.
template <class Group>
GN_HD std::uint32_t block_crc(Group group, const std::uint8_t* block) {
#if GN_DEVICE_PASS
    constexpr std::uint32_t kPieceBytes = 128;
    std::uint32_t mine = 0;
    for (std::uint32_t at = group.rank() * kPieceBytes; at < nvme::kBlockBytes;
         at += group.size() * kPieceBytes) {
        const std::uint32_t crc = crc32c_portable(block + at, kPieceBytes);
        mine ^= crc32c_combine(crc, 0, nvme::kBlockBytes - at - kPieceBytes);
    }
    std::uint32_t all = 0;
    for (simt::LaneSet rest = group.members(); !rest.empty(); rest = rest.without_lowest())
        all ^= group.shfl(mine, rest.lowest());
    return all;
#else
    (void)group;
    return crc32c(block, nvme::kBlockBytes);
#endif
}

}  // namespace gnstor::demo
