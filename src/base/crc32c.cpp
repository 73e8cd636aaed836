// crc32c.cpp: CRC-32C on the host (RFC 3720, appendix B.4). Pure. Fused with a copy: copy_crc32c.cpp.
//
// A CRC instruction takes three cycles but a new one may start every cycle: three streams over three
// stretches of the data keep it busy; their results are joined by shifting a CRC over the bytes of a stretch
// (a multiplication by a constant power of x, tabulated byte by byte).
#include <gnstor/base/crc32c.hpp>

#include "base/crc32c_host.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(GN_WITH_ISAL)
#include <isa-l/crc.h>
#endif
#if defined(__SSE4_2__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace gnstor {
namespace {

using ByteTables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b]: what byte b adds to the CRC when k further bytes follow it in the same step.
constexpr ByteTables make_step_tables() {
    ByteTables tables{};
    for (std::uint32_t b = 0; b < 256; ++b) {
        std::uint32_t crc = b;
        for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kCrc32cPolynomial : 0u);
        tables[0][b] = crc;
    }
    for (std::size_t k = 1; k < 8; ++k)
        for (std::uint32_t b = 0; b < 256; ++b)
            tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xFF];
    return tables;
}
constexpr ByteTables kStep = make_step_tables();

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
    std::uint32_t product = 0;
    for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        if ((a & bit) != 0) product ^= b;
        b = (b >> 1) ^ ((b & 1u) != 0 ? kCrc32cPolynomial : 0u);
    }
    return product;
}

using ShiftTable = std::array<std::array<std::uint32_t, 256>, 4>;

// Moves a CRC register over `bytes` zero bytes: linear, so four lookups, one for each of its bytes.
constexpr ShiftTable make_shift_table(std::size_t bytes) {
    std::uint32_t power = 1u << 31;           // x^0
    std::uint32_t factor = 0x80000000u >> 8;  // x^8
    for (std::size_t n = bytes; n != 0; n >>= 1) {
        if ((n & 1u) != 0) power = multiply(power, factor);
        factor = multiply(factor, factor);
    }
    ShiftTable table{};
    for (std::size_t k = 0; k < 4; ++k) {
        for (std::uint32_t bit = 0; bit < 8; ++bit)
            table[k][1u << bit] = multiply(power, 1u << (8 * k + bit));
        for (std::uint32_t b = 1; b < 256; ++b) table[k][b] = table[k][b & (b - 1)] ^ table[k][b & (~b + 1)];
    }
    return table;
}

std::uint32_t shift(const ShiftTable& table, std::uint32_t crc) {
    return table[0][crc & 0xFF] ^ table[1][(crc >> 8) & 0xFF] ^ table[2][(crc >> 16) & 0xFF] ^
           table[3][crc >> 24];
}

std::uint64_t load64(const std::uint8_t* p) {
    std::uint64_t word;
    std::memcpy(&word, p, sizeof word);
    return word;
}

std::uint32_t table_step8(std::uint32_t crc, std::uint64_t word) {
    word ^= crc;
    std::uint32_t out = 0;
    for (std::size_t k = 0; k < 8; ++k) out ^= kStep[7 - k][(word >> (8 * k)) & 0xFF];
    return out;
}
std::uint32_t table_step1(std::uint32_t crc, std::uint8_t byte) {
    return (crc >> 8) ^ kStep[0][(crc ^ byte) & 0xFF];
}

#if defined(__SSE4_2__)
std::uint32_t step8(std::uint32_t crc, std::uint64_t word) {
    return static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
}
std::uint32_t step1(std::uint32_t crc, std::uint8_t byte) {
    return _mm_crc32_u8(crc, byte);
}
#elif defined(__ARM_FEATURE_CRC32)
std::uint32_t step8(std::uint32_t crc, std::uint64_t word) {
    return __crc32cd(crc, word);
}
std::uint32_t step1(std::uint32_t crc, std::uint8_t byte) {
    return __crc32cb(crc, byte);
}
#else
std::uint32_t step8(std::uint32_t crc, std::uint64_t word) {
    return table_step8(crc, word);
}
std::uint32_t step1(std::uint32_t crc, std::uint8_t byte) {
    return table_step1(crc, byte);
}
#endif

// Three stretches of kStretch bytes at a time, on the raw register (no inversions). Advances p and bytes.
template <std::size_t kStretch>
std::uint32_t three_streams(const std::uint8_t*& p, std::size_t& bytes, std::uint32_t crc) {
    static constexpr ShiftTable kOver1 = make_shift_table(kStretch);
    while (bytes >= 3 * kStretch) {
        std::uint32_t b = 0;
        std::uint32_t c = 0;
        for (std::size_t i = 0; i < kStretch; i += 8) {
            crc = step8(crc, load64(p + i));
            b = step8(b, load64(p + kStretch + i));
            c = step8(c, load64(p + 2 * kStretch + i));
        }
        crc = shift(kOver1, shift(kOver1, crc) ^ b) ^ c;
        p += 3 * kStretch;
        bytes -= 3 * kStretch;
    }
    return crc;
}

}  // namespace

std::uint32_t detail::crc32c_by_table(const void* data, std::size_t bytes, std::uint32_t crc) noexcept {
    const auto* p = static_cast<const std::uint8_t*>(data);
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) crc = table_step8(crc, load64(p));
    for (; bytes != 0; --bytes, ++p) crc = table_step1(crc, *p);
    return ~crc;
}

std::uint32_t detail::crc32c_by_instruction(const void* data, std::size_t bytes, std::uint32_t crc) noexcept {
    const auto* p = static_cast<const std::uint8_t*>(data);
    crc = ~crc;
    crc = three_streams<1024>(p, bytes, crc);
    crc = three_streams<128>(p, bytes, crc);
    for (; bytes >= 8; bytes -= 8, p += 8) crc = step8(crc, load64(p));
    for (; bytes != 0; --bytes, ++p) crc = step1(crc, *p);
    return ~crc;
}

std::uint32_t detail::crc32c_by_library(const void* data, std::size_t bytes, std::uint32_t crc) noexcept {
#if defined(GN_WITH_ISAL)
    // ISA-L works on the raw register: neither the initial nor the final inversion is done inside. Its length
    // is an int, and its prototype lacks const though it only reads.
    constexpr std::size_t kPieceMax = std::size_t{1} << 30;
    auto* p = static_cast<unsigned char*>(const_cast<void*>(data));
    crc = ~crc;
    while (bytes != 0) {
        const std::size_t piece = std::min(bytes, kPieceMax);
        crc = crc32_iscsi(p, static_cast<int>(piece), crc);
        p += piece;
        bytes -= piece;
    }
    return ~crc;
#else
    return crc32c_by_instruction(data, bytes, crc);
#endif
}

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc) noexcept {
    return detail::crc32c_by_library(data, bytes, crc);
}

}  // namespace gnstor
