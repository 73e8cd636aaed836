// random.hpp: numbers that a stranger must not guess: first PSNs, queue pair numbers, keys of memory, ids of
// connection management.
//
// They come from the kernel's generator (getrandom(2)), in simulations from a seed. SplitMix64 (hash.hpp)
// would not do: its state follows from one of its numbers, and with it all later numbers. A RandomSource is
// used by one thread at a time, fill_random() by any.
#pragma once

#include <gnstor/base/hash.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace gnstor {

/// Fills it with unpredictable bytes of the kernel's generator. Throws what std::random_device throws if the
/// kernel has none.
void fill_random(std::span<std::byte> out);

class RandomSource {
  public:
    /// nullopt: the kernel's generator. Otherwise the same numbers for the same seed, which can be guessed.
    explicit RandomSource(std::optional<std::uint64_t> seed = std::nullopt) {
        if (seed) seeded_.emplace(mix64(*seed));
    }
    std::uint64_t next();
    /// Uniform in [0, bound), but for a bias below bound / 2^32; bound of at most 2^32.
    std::uint64_t below(std::uint64_t bound) { return ((next() >> 32) * bound) >> 32; }

  private:
    std::optional<SplitMix64> seeded_;
};

}  // namespace gnstor
