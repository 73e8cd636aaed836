// crc32c_host.hpp: the host's implementations of CRC-32C, each callable separately, so that tests compare
// them all. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gnstor::detail {

/// Table of 8 x 256 words, 8 bytes a step: any processor.
[[nodiscard]] std::uint32_t crc32c_by_table(const void* data, std::size_t bytes, std::uint32_t crc) noexcept;
/// The processor's CRC instruction in three interleaved streams (the table where there is none).
[[nodiscard]] std::uint32_t crc32c_by_instruction(const void* data, std::size_t bytes,
                                                  std::uint32_t crc) noexcept;
/// ISA-L; by instruction in a build without it.
[[nodiscard]] std::uint32_t crc32c_by_library(const void* data, std::size_t bytes,
                                              std::uint32_t crc) noexcept;

/// copy_sectors_crc32c() through a local buffer: any processor.
void copy_sectors_in_pieces(void* to, const void* from, std::uint32_t sectors, std::uint32_t* crcs) noexcept;
/// Whether this processor has AVX-512 and carry-less multiplication of vectors.
[[nodiscard]] bool copies_by_vectors() noexcept;
/// The same, each vector loaded once, stored and summed; only if copies_by_vectors().
void copy_sectors_by_vectors(void* to, const void* from, std::uint32_t sectors, std::uint32_t* crcs) noexcept;
/// The same with non-temporal stores; `to` aligned to 64 bytes.
void stream_sectors_by_vectors(void* to, const void* from, std::uint32_t sectors,
                               std::uint32_t* crcs) noexcept;

}  // namespace gnstor::detail
