// bitmap.hpp: bits that lanes take and give back: pool blocks and command slots. CPU and GPU lanes, any
// number at once.
//
// A set bit is a free item. A run lies within one 64-bit word, so one compare-and-exchange takes it as a
// whole, and never has to be undone; one fetch_or gives it back. Nothing here waits: a lane that loses a race
// tries again, and then another lane has made progress. S: the scope of the lanes that share the bitmap.
#pragma once

#include <gnstor/simt/atomic.hpp>

#include <cstdint>

namespace gnstor::gnor {

inline constexpr std::uint32_t kNone = 0xFFFFFFFFu;
inline constexpr std::uint32_t kMaxRun = 64;  ///< longest run that can be taken at once

namespace detail {
GN_HD
inline std::uint32_t lowest_bit(std::uint64_t v) {
#if GN_DEVICE_PASS
    return static_cast<std::uint32_t>(__ffsll(static_cast<long long>(v)) - 1);
#else
    return static_cast<std::uint32_t>(__builtin_ctzll(v));
#endif
}
/// The number of the `n`-th set bit; n < count_bits(v).
GN_HD
inline std::uint32_t nth_bit(std::uint64_t v, std::uint32_t n) {
    GN_DEVICE_ROLLED
    for (; n != 0; --n) v &= v - 1;
    return lowest_bit(v);
}
GN_HD
inline std::uint32_t count_bits(std::uint64_t v) {
#if GN_DEVICE_PASS
    return static_cast<std::uint32_t>(__popcll(v));
#else
    return static_cast<std::uint32_t>(__builtin_popcountll(v));
#endif
}
GN_HD
constexpr std::uint64_t run_mask(std::uint32_t length) {
    return length >= 64 ? ~0ull : (1ull << length) - 1;
}

/// Bits of `free` at which `length` set bits begin. Halving steps: each AND doubles the length that a bit
/// stands for.
GN_HD
constexpr std::uint64_t run_starts(std::uint64_t free, std::uint32_t length) {
    std::uint64_t starts = free;
    for (std::uint32_t have = 1; have < length;) {
        const std::uint32_t step = have < length - have ? have : length - have;
        starts &= starts >> step;
        have += step;
    }
    return starts;
}

/// Bits at multiples of the power of two that is at least `length`: runs placed there leave no odd gaps.
GN_HD
constexpr std::uint64_t aligned_starts(std::uint32_t length) {
    std::uint32_t size = 1;
    while (size < length) size <<= 1;
    std::uint64_t mask = 0;
    for (std::uint32_t at = 0; at < 64; at += size) mask |= 1ull << at;
    return mask;
}
}  // namespace detail

/// The word, of `count`, that lanes with this hint start at: as `hint % count`, without a division.
GN_HD
constexpr std::uint32_t spread_over(std::uint32_t hint, std::uint32_t count) {
    return static_cast<std::uint32_t>((std::uint64_t{hint * 0x9E3779B9u} * count) >> 32);
}

/// Takes `length` neighbouring bits (1 .. 64) of one word, beginning with word `first_word` and trying each
/// word once. Returns the first bit's number, or kNone when no word has such a run.
template <simt::Scope S = simt::Scope::kDevice>
GN_HD std::uint32_t take_run(std::uint64_t* words, std::uint32_t word_count, std::uint32_t length,
                             std::uint32_t first_word) {
    const std::uint64_t aligned = detail::aligned_starts(length);
    for (std::uint32_t i = 0; i < word_count; ++i) {
        const std::uint32_t w = (first_word + i) % word_count;
        std::uint64_t free = simt::load_relaxed<S>(&words[w]);
        while (true) {
            std::uint64_t starts = detail::run_starts(free, length);
            if (starts == 0) break;
            if ((starts & aligned) != 0) starts &= aligned;
            const std::uint32_t bit = detail::lowest_bit(starts);
            const std::uint64_t taken = detail::run_mask(length) << bit;
            // Takes the run; acquires what its last holder wrote before give_run's release.
            const std::uint64_t seen =
                simt::compare_exchange<S, simt::Order::kAcquire>(&words[w], free, free & ~taken);
            if (seen == free) return w * 64 + bit;
            free = seen;
        }
    }
    return kNone;
}

/// Bits of one word that were taken together.
struct TakenBits {
    std::uint32_t word = 0;
    std::uint64_t bits = 0;

    GN_HD
    std::uint32_t count() const { return detail::count_bits(bits); }
    /// The number of the `rank`-th of them; rank < count().
    GN_HD
    std::uint32_t at(std::uint32_t rank) const { return word * 64 + detail::nth_bit(bits, rank); }
};

/// Takes up to `wanted` (>= 1) bits, any of them, of the first word that has free ones, in the order of
/// take_run; `first_word` < `word_count`.
template <simt::Scope S = simt::Scope::kDevice>
GN_HD TakenBits take_some(std::uint64_t* words, std::uint32_t word_count, std::uint32_t wanted,
                          std::uint32_t first_word) {
    std::uint32_t w = first_word;
    for (std::uint32_t i = 0; i < word_count; ++i, w = w + 1 < word_count ? w + 1 : 0) {
        std::uint64_t free = simt::load_relaxed<S>(&words[w]);
        while (free != 0) {
            std::uint64_t rest = free;
            GN_DEVICE_ROLLED
            for (std::uint32_t n = 0; n < wanted; ++n) rest &= rest - 1;
            // As in take_run.
            const std::uint64_t seen =
                simt::compare_exchange<S, simt::Order::kAcquire>(&words[w], free, rest);
            if (seen == free) return TakenBits{w, free & ~rest};
            free = seen;
        }
    }
    return TakenBits{};
}

/// Gives a run back. False: a bit of it was free already (no other lane's bits are affected: setting it again
/// changes nothing).
template <simt::Scope S = simt::Scope::kDevice>
GN_HD bool give_run(std::uint64_t* words, std::uint32_t first, std::uint32_t length) {
    const std::uint64_t mask = detail::run_mask(length) << (first % 64);
    // Releases the holder's accesses to the lane that takes the run next (take_run).
    return (simt::fetch_or<S, simt::Order::kRelease>(&words[first / 64], mask) & mask) == 0;
}

/// How many bits are free; exact only while no lane takes or gives.
template <simt::Scope S = simt::Scope::kDevice>
GN_HD std::uint32_t count_free(const std::uint64_t* words, std::uint32_t word_count) {
    std::uint32_t n = 0;
    for (std::uint32_t w = 0; w < word_count; ++w) n += detail::count_bits(simt::load_relaxed<S>(&words[w]));
    return n;
}

}  // namespace gnstor::gnor
