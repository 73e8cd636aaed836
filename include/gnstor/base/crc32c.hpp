// crc32c.hpp: CRC-32C (Castagnoli; RFC 3720, appendix B.4), alone and fused with a copy.
//
// Conventional form: initial value and final exclusive-or are applied inside, so crc32c("123456789") ==
// 0xE3069283.
#pragma once

#include <gnstor/base/target.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor {

/// CRC of `bytes` bytes, continuing from `crc` (0 to begin). Host; uses ISA-L or SSE 4.2 where there is one.
[[nodiscard]] std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc = 0) noexcept;

/// Copies `sectors` sectors of 512 bytes and gives the CRC of each as read (interleaved streams). Ranges must
/// not overlap.
void copy_sectors_crc32c(void* to, const void* from, std::uint32_t sectors, std::uint32_t* crcs) noexcept;
/// The same, for a destination that this processor will not read soon: where it can (a destination at a cache
/// line's border), it stores past the caches, so that lines are not loaded first to be overwritten whole.
/// Such stores come in any order: before another thread or a device is told of the copy,
/// fence_streamed_copies().
void stream_sectors_crc32c(void* to, const void* from, std::uint32_t sectors, std::uint32_t* crcs) noexcept;
/// Whoever sees a store that the calling thread makes from here on sees its streamed copies. It waits for
/// them, and so do the stores that follow: once for many copies, not after each.
void fence_streamed_copies() noexcept;

/// The same CRC for CPU and GPU lanes, byte table in constant code; slower than the host's. For one lane.
GN_HD
std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t crc = 0) noexcept;

/// The CRC of A followed by B from crc(A), crc(B) and the length of B: lets lanes share the work of one
/// block.
GN_HD
std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t bytes_b) noexcept;

}  // namespace gnstor

#include <gnstor/base/detail/crc32c.inl>
