// unmix64.hpp: what an attacker computes who is told one number of a SplitMix64 generator: its state, and so
// all its other numbers.
#pragma once

#include <gnstor/base/hash.hpp>

#include <cstdint>

namespace gnstor {

/// The inverse of mix64: the state of a SplitMix64 generator that said `out`.
inline std::uint64_t unmix64(std::uint64_t out) {
    const auto unshift = [](std::uint64_t x, int by) {
        std::uint64_t y = x;
        for (int done = by; done < 64; done += by) y = x ^ (y >> by);
        return y;
    };
    const auto inverse = [](std::uint64_t odd) {
        std::uint64_t y = odd;
        for (int i = 0; i < 6; ++i) y *= 2 - odd * y;
        return y;
    };
    out = unshift(out, 31) * inverse(0x94D049BB133111EBull);
    out = unshift(out, 27) * inverse(0xBF58476D1CE4E5B9ull);
    return unshift(out, 30) - 0x9E3779B97F4A7C15ull;
}

}  // namespace gnstor
