// bijection.hpp: keyed permutations of n-bit integers, and the exact split of one into bucket number and
// remainder.
//
// Invariants
//   * inverse(forward(x)) == x for every x below 2^width: nothing of a key is lost, so a table need not
//     store it;
//   * join(split(x)) == x for every x below 2^48, whatever the number of buckets (it need not be a power of
//     two).
// Pure; no state after construction.
#pragma once

#include <gnstor/base/hash.hpp>

#include <bit>
#include <cstdint>

namespace gnstor::deengine {

/// Three rounds of odd multiplication and half-width xor-shift, each invertible modulo 2^width. `width` is 1
/// .. 64.
class Bijection {
  public:
    constexpr Bijection(std::uint32_t width, std::uint64_t seed)
        : mask_(width == 64 ? ~0ull : (1ull << width) - 1),
          shift_((width + 1) / 2),
          offset_(mix64(seed) & mask_) {
        for (int i = 0; i < kRounds; ++i) {
            factor_[i] = (mix64(seed + 1 + static_cast<std::uint64_t>(i)) | 1) & mask_;
            inverse_[i] = inverse_of_odd(factor_[i]) & mask_;
        }
    }
    [[nodiscard]] constexpr std::uint64_t forward(std::uint64_t x) const {
        x = (x + offset_) & mask_;
        for (int i = 0; i < kRounds; ++i) {
            x = (x * factor_[i]) & mask_;
            x ^= x >> shift_;
        }
        return x;
    }
    [[nodiscard]] constexpr std::uint64_t inverse(std::uint64_t x) const {
        for (int i = kRounds; i-- > 0;) {
            x ^= x >> shift_;  // twice the shift is at least the width: its own inverse
            x = (x * inverse_[i]) & mask_;
        }
        return (x - offset_) & mask_;
    }

  private:
    static constexpr int kRounds = 3;
    /// Newton's iteration modulo 2^64: an odd number is its own inverse modulo 8, and every step doubles the
    /// correct low bits.
    static constexpr std::uint64_t inverse_of_odd(std::uint64_t a) {
        std::uint64_t x = a;
        for (int i = 0; i < 5; ++i) x *= 2 - a * x;
        return x;
    }
    std::uint64_t mask_;
    std::uint32_t shift_;
    std::uint64_t offset_;
    std::uint64_t factor_[kRounds] = {};
    std::uint64_t inverse_[kRounds] = {};
};

/// Splits a 48-bit number evenly over `buckets` by multiplication; the remainder is the low part of the
/// product, without the bits that are not needed to tell the members of a bucket apart. Only join() divides.
class BucketSplit {
  public:
    static constexpr std::uint32_t kKeyBits = 48;
    struct Parts {
        std::uint32_t bucket;
        std::uint64_t remainder;
    };

    /// `buckets` is 1 .. 2^31.
    constexpr explicit BucketSplit(std::uint32_t buckets)
        : buckets_(buckets), cut_(static_cast<std::uint32_t>(std::bit_width(buckets)) - 1) {}

    [[nodiscard]] constexpr Parts split(std::uint64_t x) const {
        // Members x of one bucket have products `buckets` apart, and 2^cut_ is at most `buckets`: the low
        // cut_ bits are not needed.
        const Wide product = static_cast<Wide>(x) * buckets_;
        const auto low = static_cast<std::uint64_t>(product) & kLowMask;
        return {static_cast<std::uint32_t>(product >> kKeyBits), low >> cut_};
    }
    [[nodiscard]] constexpr std::uint64_t join(Parts p) const {
        const Wide least =
            (static_cast<Wide>(p.bucket) << kKeyBits) + (static_cast<Wide>(p.remainder) << cut_);
        return static_cast<std::uint64_t>((least + buckets_ - 1) / buckets_);
    }
    [[nodiscard]] constexpr std::uint32_t buckets() const { return buckets_; }
    [[nodiscard]] constexpr std::uint32_t remainder_bits() const { return kKeyBits - cut_; }

  private:
    __extension__ using Wide = unsigned __int128;
    static constexpr std::uint64_t kLowMask = (1ull << kKeyBits) - 1;
    std::uint32_t buckets_;
    std::uint32_t cut_;
};

}  // namespace gnstor::deengine
