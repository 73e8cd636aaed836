// crc32.hpp: CRC-32 (IEEE 802.3, reflected, as in zlib): the polynomial of RoCE's invariant CRC.
//
// The NVMe side of this system uses CRC-32C (gnstor/base/crc32c.hpp), another polynomial. Pure; host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gnstor::rdma::roce {

/// CRC of `bytes`, continuing from `crc` (0 to begin); initial value and final exclusive-or are applied
/// inside: crc32("123456789") == 0xCBF43926.
[[nodiscard]] std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;
/// The same without a library: the fallback, and a reference for tests.
[[nodiscard]] std::uint32_t crc32_by_tables(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

}  // namespace gnstor::rdma::roce
