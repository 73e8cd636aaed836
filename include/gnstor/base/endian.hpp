// endian.hpp: byte order of wire structures. Pure; CPU and GPU lanes.
#pragma once

#include <gnstor/base/target.hpp>

#include <cstdint>

namespace gnstor {

GN_HD
constexpr std::uint16_t swap16(std::uint16_t v) {
    return static_cast<std::uint16_t>((v << 8) | (v >> 8));
}
GN_HD
constexpr std::uint32_t swap32(std::uint32_t v) {
#if GN_DEVICE_PASS
    // One instruction; the compiler turns the shifts into five or six, and a send entry has a dozen swaps.
    if (!__builtin_is_constant_evaluated()) return __byte_perm(v, 0, 0x0123);
#endif
    return (v << 24) | ((v & 0xFF00u) << 8) | ((v >> 8) & 0xFF00u) | (v >> 24);
}
GN_HD
constexpr std::uint64_t swap64(std::uint64_t v) {
    return (static_cast<std::uint64_t>(swap32(static_cast<std::uint32_t>(v))) << 32) |
           swap32(static_cast<std::uint32_t>(v >> 32));
}

// Every machine that this runs on (x86-64, arm64, NVIDIA GPUs) is little endian; NVMe is little endian, mlx5
// and RoCE are big endian. The same function converts both ways.
GN_HD
constexpr std::uint16_t be16(std::uint16_t v) {
    return swap16(v);
}
GN_HD
constexpr std::uint32_t be32(std::uint32_t v) {
    return swap32(v);
}
GN_HD
constexpr std::uint64_t be64(std::uint64_t v) {
    return swap64(v);
}

}  // namespace gnstor
