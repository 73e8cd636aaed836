// copy_crc32c.cpp: copies sectors and computes the CRC-32C of each: two implementations, chosen by the
// processor. Pure.
//
// With AVX-512 and carry-less multiplication a sector of 512 bytes is eight vectors; each is loaded once,
// stored, and multiplied in its register. As polynomials (RFC 3720; bit-reflected), a sector is the sum over
// its 64-bit words w of w * x^d, d their distance from the end; a product with x^d mod P has 96 bits, so all
// products add up in one 128-bit number of the same remainder, which the CRC instruction reduces at the end.
// No step depends on the one before: the processor starts the next sector, and the cache misses of the next
// block, while it still multiplies.
#include <gnstor/base/crc32c.hpp>

#include "base/crc32c_host.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gnstor {
namespace {

constexpr std::size_t kSector = 512;
constexpr std::uintptr_t kLine = 64;

#if defined(__x86_64__)

// Polynomials of degree below 32, coefficient of x^k at bit 31 - k, as the CRC register has them.
constexpr std::uint32_t times_x(std::uint32_t p) {
    return (p >> 1) ^ ((p & 1u) != 0 ? kCrc32cPolynomial : 0u);
}
/// x^-1: P's constant term is 1, so x * ((P + 1) / x) is 1 modulo P.
constexpr std::uint32_t over_x(std::uint32_t p) {
    return (p & 0x80000000u) != 0 ? ((p ^ kCrc32cPolynomial) << 1) | 1u : p << 1;
}

constexpr std::size_t kWords = kSector / 8;
struct alignas(64) Factors {
    std::uint64_t of_word[kWords];
};

/// The factor of word k of a sector: x^(64 * (63 - k) - 1). The exponent is one lower because a carry-less
/// product of reflected numbers has one power of x too many.
constexpr Factors make_factors() {
    Factors f{};
    std::uint32_t power = over_x(0x80000000u);  // x^-1
    for (std::size_t k = kWords; k-- > 0;) {
        f.of_word[k] = std::uint64_t{power} << 32;
        for (int i = 0; i < 64; ++i) power = times_x(power);
    }
    return f;
}
constexpr Factors kFactors = make_factors();

/// CRC-32C of a sector of zeroes: what initial value and final inversion add to the linear part.
constexpr std::uint32_t crc_of_zero_sector() {
    std::uint32_t crc = ~0u;
    for (std::size_t i = 0; i < 8 * kSector; ++i) crc = times_x(crc);
    return ~crc;
}
constexpr std::uint32_t kZeroSector = crc_of_zero_sector();

constexpr int kXorOfThree = 0x96;

#define GN_VECTORS __attribute__((target("avx512f,avx512vl,avx512dq,vpclmulqdq,pclmul,sse4.2")))

// Factors stay in registers only if the loops over a sector's vectors are unrolled.
#if defined(__clang__)
#define GN_UNROLL _Pragma("unroll")
#else
#define GN_UNROLL _Pragma("GCC unroll 8")
#endif

/// How many sectors ahead cache lines are prefetched: without that, multiplications that wait for a miss fill
/// the processor's queues before the next misses have begun.
constexpr std::uint32_t kAheadSectors = 4;

void ask_for(const std::uint8_t* at, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i);
}

/// Streaming: `out` is aligned to a cache line.
template <bool kStreaming>
GN_VECTORS void copy_by_vectors(std::uint8_t* out, const std::uint8_t* in, std::uint32_t sectors,
                                std::uint32_t* crcs) {
    __m512i factor[8];
    GN_UNROLL for (int v = 0; v < 8; ++v) factor[v] = _mm512_load_si512(&kFactors.of_word[8 * v]);
    if (sectors > 1) ask_for(in + kSector, (std::min(sectors, kAheadSectors) - 1) * kSector);
    for (std::uint32_t s = 0; s < sectors; ++s, in += kSector, out += kSector) {
        if (s + kAheadSectors < sectors) ask_for(in + kAheadSectors * kSector, kSector);
        __m512i sum = _mm512_setzero_si512();
        GN_UNROLL for (int v = 0; v < 8; ++v) {
            const __m512i data = _mm512_loadu_si512(in + 64 * v);
            if constexpr (kStreaming)
                _mm512_stream_si512(reinterpret_cast<__m512i*>(out + 64 * v), data);
            else
                _mm512_storeu_si512(out + 64 * v, data);
            sum = _mm512_ternarylogic_epi64(sum, _mm512_clmulepi64_epi128(data, factor[v], 0x00),
                                            _mm512_clmulepi64_epi128(data, factor[v], 0x11), kXorOfThree);
        }
        // Masked by all ones: the plain forms make g++ 12 warn of an undefined operand that nothing reads.
        const __m256i half = _mm256_xor_si256(_mm512_maskz_extracti64x4_epi64(0xF, sum, 0),
                                              _mm512_maskz_extracti64x4_epi64(0xF, sum, 1));
        const __m128i rest = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
        const std::uint64_t first = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(rest)));
        crcs[s] = kZeroSector ^ static_cast<std::uint32_t>(_mm_crc32_u64(
                                    first, static_cast<std::uint64_t>(_mm_extract_epi64(rest, 1))));
    }
}

#endif

}  // namespace

bool detail::copies_by_vectors() noexcept {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("vpclmulqdq") &&
           __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
#else
    return false;
#endif
}

void detail::copy_sectors_by_vectors(void* to, const void* from, std::uint32_t sectors,
                                     std::uint32_t* crcs) noexcept {
#if defined(__x86_64__)
    copy_by_vectors<false>(static_cast<std::uint8_t*>(to), static_cast<const std::uint8_t*>(from), sectors,
                           crcs);
#else
    copy_sectors_in_pieces(to, from, sectors, crcs);
#endif
}

void detail::stream_sectors_by_vectors(void* to, const void* from, std::uint32_t sectors,
                                       std::uint32_t* crcs) noexcept {
#if defined(__x86_64__)
    copy_by_vectors<true>(static_cast<std::uint8_t*>(to), static_cast<const std::uint8_t*>(from), sectors,
                          crcs);
#else
    copy_sectors_in_pieces(to, from, sectors, crcs);
#endif
}

void detail::copy_sectors_in_pieces(void* to, const void* from, std::uint32_t sectors,
                                    std::uint32_t* crcs) noexcept {
    auto* out = static_cast<std::uint8_t*>(to);
    const auto* in = static_cast<const std::uint8_t*>(from);
    // Through a local buffer, so that each byte is loaded once and the CRC is that of the stored bytes, even
    // if another thread changes source or destination meanwhile. A plain copy also keeps many more cache
    // misses in flight than a loop that feeds words to CRC instructions: half the time on blocks that are in
    // no cache.
    constexpr std::uint32_t kPiece = 8;
    alignas(64) std::uint8_t own[kPiece * kSector];
    while (sectors != 0) {
        const std::uint32_t count = std::min(sectors, kPiece);
        std::memcpy(own, in, count * kSector);
        for (std::uint32_t s = 0; s < count; ++s) crcs[s] = crc32c(own + s * kSector, kSector);
        std::memcpy(out, own, count * kSector);
        sectors -= count;
        crcs += count;
        out += count * kSector;
        in += count * kSector;
    }
}

void copy_sectors_crc32c(void* to, const void* from, std::uint32_t sectors, std::uint32_t* crcs) noexcept {
    if (detail::copies_by_vectors()) {
        detail::copy_sectors_by_vectors(to, from, sectors, crcs);
    } else {
        detail::copy_sectors_in_pieces(to, from, sectors, crcs);
    }
}

void stream_sectors_crc32c(void* to, const void* from, std::uint32_t sectors, std::uint32_t* crcs) noexcept {
    if (detail::copies_by_vectors() && reinterpret_cast<std::uintptr_t>(to) % kLine == 0) {
        detail::stream_sectors_by_vectors(to, from, sectors, crcs);
    } else {
        copy_sectors_crc32c(to, from, sectors, crcs);
    }
}

void fence_streamed_copies() noexcept {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

}  // namespace gnstor
