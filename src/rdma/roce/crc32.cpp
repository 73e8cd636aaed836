// crc32.cpp: CRC-32 by ISA-L (carry-less multiplication) if built with it, otherwise by eight tables,
// eight bytes per step.
#include "rdma/roce/crc32.hpp"

#if defined(GN_WITH_ISAL)
#include <isa-l/crc.h>
#endif

#include <array>
#include <cstring>

namespace gnstor::rdma::roce {
namespace {

constexpr std::uint32_t kPolynomial = 0xEDB88320u;  // 0x04C11DB7, reflected
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// Table k holds the contribution of a byte that is k bytes before the end of the step.
constexpr Tables make_tables() {
    Tables tables{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t crc = i;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kPolynomial : 0u);
        tables[0][i] = crc;
    }
    for (std::size_t k = 1; k < 8; ++k) {
        for (std::size_t i = 0; i < 256; ++i) {
            const std::uint32_t before = tables[k - 1][i];
            tables[k][i] = (before >> 8) ^ tables[0][before & 0xFFu];
        }
    }
    return tables;
}
constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32_by_tables(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
    crc = ~crc;
    const std::byte* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, at, 8);
        word ^= crc;
        crc = 0;
        for (unsigned k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFFu];
    }
    for (; left > 0; --left, ++at) {
        crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(*at)) & 0xFFu];
    }
    return ~crc;
}

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
#if defined(GN_WITH_ISAL)
    return crc32_gzip_refl(crc, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
#else
    return crc32_by_tables(bytes, crc);
#endif
}

}  // namespace gnstor::rdma::roce
