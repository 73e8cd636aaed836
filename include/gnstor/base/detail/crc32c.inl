// crc32c.inl: bodies for CPU and GPU lanes of crc32c.hpp.
#pragma once

namespace gnstor {

inline constexpr std::uint32_t kCrc32cPolynomial = 0x82F63B78u;  // reflected

GN_HD inline std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t crc) noexcept {
    const auto* p = static_cast<const std::uint8_t*>(data);
    crc = ~crc;
    for (std::size_t i = 0; i < bytes; ++i) {
        crc ^= p[i];
        for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kCrc32cPolynomial : 0u);
    }
    return ~crc;
}

namespace detail {
/// a * b modulo the polynomial, reflected bit order.
GN_HD inline std::uint32_t crc32c_multiply(std::uint32_t a, std::uint32_t b) noexcept {
    std::uint32_t product = 0;
    for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        if ((a & bit) != 0) product ^= b;
        b = (b >> 1) ^ ((b & 1u) != 0 ? kCrc32cPolynomial : 0u);
    }
    return product;
}
}  // namespace detail

GN_HD inline std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b,
                                          std::uint64_t bytes_b) noexcept {
    std::uint32_t power = 1u << 31;           // x^0
    std::uint32_t factor = 0x80000000u >> 8;  // x^8: one byte
    for (std::uint64_t n = bytes_b; n != 0; n >>= 1) {
        if ((n & 1u) != 0) power = detail::crc32c_multiply(power, factor);
        factor = detail::crc32c_multiply(factor, factor);
    }
    return detail::crc32c_multiply(power, crc_a) ^ crc_b;
}

}  // namespace gnstor
