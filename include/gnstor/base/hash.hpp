// hash.hpp: mixing functions that CPU and GPU compute alike. Pure.
#pragma once

#include <gnstor/base/target.hpp>

#include <cstdint>

namespace gnstor {

/// A bijective 64-bit finalizer (SplitMix64, Steele, Lea, Flood, OOPSLA 2014).
GN_HD
constexpr std::uint64_t mix64(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/// A small seeded generator for tests, workloads and back-off; the same sequence on every processor.
class SplitMix64 {
  public:
    GN_HD
    explicit constexpr SplitMix64(std::uint64_t seed) : state_(seed) {}
    GN_HD
    constexpr std::uint64_t next() {
        const std::uint64_t out = mix64(state_);
        state_ += 0x9E3779B97F4A7C15ull;
        return out;
    }
    /// Uniform in [0, bound) except for a bias below bound / 2^32; bound of at most 2^32.
    GN_HD
    constexpr std::uint64_t below(std::uint64_t bound) { return ((next() >> 32) * bound) >> 32; }

  private:
    std::uint64_t state_;
};

}  // namespace gnstor
