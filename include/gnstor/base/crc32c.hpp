// crc32c.hpp: CRC-32C (Castagnoli; RFC 3720, appendix B.4), alone and fused with a copy.
//
// Conventional form: initial value and final exclusive-or are applied inside, so crc32c("123456789") ==
// 0xE3069283.
#pragma once

#include <gnstor/base/target.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor {

/// CRC of `bytes` bytes, continuing from `crc` (0 to begin). Host; uses ISA-L or SSE 4.2 where available.
[[nodiscard]] std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc = 0) noexcept;

/// Copies `sectors` sectors of 512 bytes and gives the CRC of each as read (interleaved streams). Ranges must
/// not overlap.
void copy_sectors_crc32c(void* to, const void* from, std::uint32_t sectors, std::uint32_t* crcs) noexcept;
/// The same, for a destination that this processor will not read soon: where possible (a destination aligned
/// to a cache line) with non-temporal stores, so that lines are not loaded only to be overwritten. Such
/// stores are not ordered: call fence_streamed_copies() before another thread or a device is told of the
/// copy.
void stream_sectors_crc32c(void* to, const void* from, std::uint32_t sectors, std::uint32_t* crcs) noexcept;
/// Orders the calling thread's streamed copies before its later stores. It waits for the copies: call it once
/// for many, not after each.
void fence_streamed_copies() noexcept;

/// The same CRC for CPU and GPU lanes, bit by bit; slower than the host's. For one lane.
GN_HD
std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t crc = 0) noexcept;

/// The CRC of A followed by B from crc(A), crc(B) and the length of B: lets lanes share the work of one
/// block.
GN_HD
std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t bytes_b) noexcept;

}  // namespace gnstor

#include <gnstor/base/detail/crc32c.inl>
