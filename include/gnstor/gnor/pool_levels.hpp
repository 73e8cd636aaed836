// pool_levels.hpp: the multi-level allocator of one growth step of a channel's pool: bitmaps alone, no
// memory. CPU and GPU lanes, any number at once.
//
// Invariants
//   * a set bit at level l is a free block of that level, and none of its blocks is free at another level: a
//     4 KiB block is free at exactly one level, or in somebody's hands;
//   * whoever clears a bit owns the blocks that it stood for, until it sets bits for them at this level or
//     another. Splitting is taking a large block and giving the rest back as smaller ones; merging is taking
//     all blocks of a group (they lie in one word) and giving one block of the level above;
//   * a summary has a bit a word: set where the word is not empty, but for the moment between the two steps
//     of whoever fills or empties it.
//
// Each step is one read-modify-write of one word. Nothing waits: a lane that loses a race looks at the word
// again, and every loss is another lane's gain. While a lane splits or merges, what it holds is in no bitmap:
// another may find nothing at that moment, and say so.
#pragma once

#include <gnstor/gnor/bitmap.hpp>

namespace gnstor::gnor {

inline constexpr std::uint32_t kMaxPoolLevels = 4;
inline constexpr std::uint32_t kPoolSpread = 4;  ///< words that lanes of different hints begin with

/// The sizes of a pool's levels, as powers of two of its blocks: shift[0] is 0, each next one larger by 1 to
/// 6, so that the blocks of a group lie in one word.
struct PoolLevels {
    std::uint32_t count;
    std::uint32_t shift[kMaxPoolLevels];
};

/// One growth step of the pool: which of its blocks, and where its words lie among all words of the pool.
struct PoolStep {
    std::uint32_t first;  ///< block of the pool
    std::uint32_t blocks;
    std::uint32_t words[kMaxPoolLevels];       ///< of each level
    std::uint32_t word_at[kMaxPoolLevels];     ///< where they begin
    std::uint32_t summary_at[kMaxPoolLevels];  ///< where their summary begins
};

/// Several runs of the same length, taken in one step: run i begins at block first + (i-th set bit of
/// `starts`) * scale. `starts` 0: none.
struct RunSet {
    std::uint64_t starts = 0;
    std::uint32_t first = 0;
    std::uint32_t scale = 1;

    GN_HD
    std::uint32_t count() const { return detail::count_bits(starts); }
    /// i < count()
    GN_HD
    std::uint32_t at(std::uint32_t i) const {
        std::uint64_t rest = starts;
        for (; i != 0; --i) rest &= rest - 1;
        return first + detail::lowest_bit(rest) * scale;
    }
};

/// The allocator of one step. Block numbers are the step's own. A view: copied freely.
class LevelsRef {
  public:
    GN_HD
    LevelsRef(const PoolLevels* levels, const PoolStep* step, std::uint64_t* words)
        : levels_(levels), step_(step), words_(words) {}

    /// `blocks` neighbouring blocks, 1 .. those of the largest level; kNone when none were found. The best
    /// fitting level first; then runs of smaller levels, which leave large blocks whole; then a block of a
    /// larger level, split.
    GN_HD
    std::uint32_t take(std::uint32_t blocks, std::uint32_t hint) const {
        if (blocks > step_->blocks) return kNone;
        const std::uint32_t best = best_level(blocks);
        std::uint32_t first = take_at_levels(best, blocks, hint);
        // Smaller blocks that lie beside each other, unmerged, may be what is missing.
        if (first == kNone && best != 0 && merge_all()) first = take_at_levels(best, blocks, hint);
        return first;
    }

    /// Up to `wanted` (1 .. 64) runs of `blocks` blocks each, in one step of one word of the best fitting
    /// level, or out of one block of a larger one.
    GN_HD
    RunSet take_several(std::uint32_t blocks, std::uint32_t wanted, std::uint32_t hint) const {
        if (blocks > step_->blocks) return RunSet{};
        const std::uint32_t best = best_level(blocks);
        RunSet runs = take_runs(best, blocks, wanted);
        for (std::uint32_t l = best + 1; runs.starts == 0 && l < levels_->count; ++l)
            runs = carve(l, blocks, wanted, hint);
        return runs;
    }

    /// Gives blocks back that were taken, or part of such a run. False: one of them was free at the level it
    /// is given to.
    GN_HD
    bool give(std::uint32_t first, std::uint32_t blocks) const {
        bool right = true;
        while (blocks != 0) {
            std::uint32_t l = levels_->count - 1;
            while ((first & (unit(l) - 1)) != 0 || unit(l) > blocks) --l;
            const std::uint32_t index = first >> levels_->shift[l];
            // To where a block of the level above may begin, or to the end of the word.
            const std::uint32_t border = l + 1 < levels_->count ? group_size(l) : 64;
            const std::uint32_t room = border - index % border;
            std::uint32_t count = blocks >> levels_->shift[l];
            if (count > room) count = room;
            right = give_units(l, index, count) && right;
            first += count << levels_->shift[l];
            blocks -= count << levels_->shift[l];
        }
        return right;
    }

    /// Merges all groups that are free as a whole, also those kept for small requests. Whether there were
    /// any.
    GN_HD
    bool merge_all() const {
        bool any = false;
        for (std::uint32_t l = 0; l + 1 < levels_->count; ++l)
            for (std::uint32_t w = 0; w < step_->words[l]; ++w) {
                if (w % 64 == 0 && load(summary(l, w)) == 0) {
                    w += 63;
                    continue;
                }
                any = merge_word(l, w) || any;
            }
        return any;
    }

    /// Free blocks of 4 KiB, at all levels; exact only while nobody takes or gives.
    GN_HD
    std::uint32_t count_free() const {
        std::uint32_t blocks = 0;
        for (std::uint32_t l = 0; l < levels_->count; ++l) blocks += count_free_units(l) << levels_->shift[l];
        return blocks;
    }
    /// The same, blocks of one level.
    GN_HD
    std::uint32_t count_free_units(std::uint32_t level) const {
        return gnor::count_free(words_ + step_->word_at[level], step_->words[level]);
    }

  private:
    GN_HD
    std::uint32_t unit(std::uint32_t l) const { return 1u << levels_->shift[l]; }
    /// How many blocks of level l make one of the level above.
    GN_HD
    std::uint32_t group_size(std::uint32_t l) const {
        return 1u << (levels_->shift[l + 1] - levels_->shift[l]);
    }
    GN_HD
    std::uint64_t group_mask(std::uint32_t l, std::uint32_t bit) const {
        const std::uint32_t size = group_size(l);
        return detail::run_mask(size) << (bit / size * size);
    }
    GN_HD
    std::uint64_t* word(std::uint32_t l, std::uint32_t w) const { return words_ + step_->word_at[l] + w; }
    GN_HD
    std::uint64_t* summary(std::uint32_t l, std::uint32_t w) const {
        return words_ + step_->summary_at[l] + w / 64;
    }
    GN_HD
    static std::uint64_t load(const std::uint64_t* p) { return simt::load_relaxed<simt::Scope::kDevice>(p); }
    /// The largest level whose blocks are no larger than the request.
    GN_HD
    std::uint32_t best_level(std::uint32_t blocks) const {
        std::uint32_t l = levels_->count - 1;
        while (unit(l) > blocks) --l;
        return l;
    }
    GN_HD
    std::uint32_t units_for(std::uint32_t l, std::uint32_t blocks) const {
        return (blocks + unit(l) - 1) >> levels_->shift[l];
    }

    GN_HD
    std::uint32_t take_at_levels(std::uint32_t best, std::uint32_t blocks, std::uint32_t hint) const {
        for (std::uint32_t l = best;; --l) {
            if (units_for(l, blocks) > 64) break;
            const std::uint32_t first = take_at(l, blocks, hint);
            if (first != kNone || l == 0) return first != kNone ? first : split(best, blocks, hint);
        }
        return split(best, blocks, hint);
    }
    GN_HD
    std::uint32_t split(std::uint32_t best, std::uint32_t blocks, std::uint32_t hint) const {
        for (std::uint32_t l = best + 1; l < levels_->count; ++l) {
            const std::uint32_t first = take_at(l, blocks, hint);
            if (first != kNone) return first;
        }
        return kNone;
    }
    /// A run of level l; what is beyond the request goes back as smaller blocks.
    GN_HD
    std::uint32_t take_at(std::uint32_t l, std::uint32_t blocks, std::uint32_t hint) const {
        const std::uint32_t units = units_for(l, blocks);
        const std::uint32_t index = take_units(l, units, hint);
        if (index == kNone) return kNone;
        const std::uint32_t first = index << levels_->shift[l];
        give(first + blocks, (units << levels_->shift[l]) - blocks);
        return first;
    }

    /// Looks once at each word that is not empty: first at one of the kPoolSpread lowest, by the hint. Low
    /// words are preferred, so that high ones fall free as a whole.
    GN_HD
    std::uint32_t take_units(std::uint32_t l, std::uint32_t units, std::uint32_t hint) const {
        for (std::uint32_t from = 0; from < step_->words[l]; from += 64) {
            const std::uint64_t filled = load(summary(l, from));
            std::uint64_t later = filled;
            for (std::uint32_t skip = hint % kPoolSpread; skip != 0 && (later & (later - 1)) != 0; --skip)
                later &= later - 1;
            const std::uint64_t orders[2] = {later, filled & ~later};
            for (std::uint64_t rest : orders)
                for (; rest != 0; rest &= rest - 1) {
                    const std::uint32_t w = from + detail::lowest_bit(rest);
                    const std::uint32_t bit = take_in_word(l, w, units, hint);
                    if (bit != kNone) return w * 64 + bit;
                }
        }
        return kNone;
    }
    GN_HD
    std::uint32_t take_in_word(std::uint32_t l, std::uint32_t w, std::uint32_t units,
                               std::uint32_t hint) const {
        std::uint64_t free = load(word(l, w));
        while (true) {
            std::uint64_t starts = detail::run_starts(free, units);
            if (starts == 0) return kNone;
            if (units == 1) {
                const std::uint64_t bit = choose_bit(l, free, hint);
                // Takes the block, unless another was faster; other bits of the word are of no concern.
                // Acquires what its last holder wrote before give_units' release.
                const std::uint64_t seen = simt::fetch_and<simt::Scope::kDevice>(word(l, w), ~bit);
                if ((seen & bit) != 0) {
                    if (seen == bit) note_empty(l, w);
                    return detail::lowest_bit(bit);
                }
                free = seen;
                continue;
            }
            const std::uint64_t aligned = starts & detail::aligned_starts(units);
            const std::uint32_t first = detail::lowest_bit(aligned != 0 ? aligned : starts);
            const std::uint64_t left = free & ~(detail::run_mask(units) << first);
            // The same for a run, which is taken as a whole or not at all.
            const std::uint64_t seen = simt::compare_exchange<simt::Scope::kDevice>(word(l, w), free, left);
            if (seen == free) {
                if (left == 0) note_empty(l, w);
                return first;
            }
            free = seen;
        }
    }
    /// A free bit of the lowest group that has one, where the hint says: lanes that come together take
    /// different bits, and groups fall free one after the other. `free` is not 0.
    GN_HD
    std::uint64_t choose_bit(std::uint32_t l, std::uint64_t free, std::uint32_t hint) const {
        std::uint64_t among = free;
        std::uint32_t from = hint % 64;
        if (l + 1 < levels_->count) {
            const std::uint32_t lowest = detail::lowest_bit(free);
            const std::uint32_t size = group_size(l);
            among &= group_mask(l, lowest);
            from = lowest / size * size + hint % size;
        }
        const std::uint64_t behind = among & (~0ull << from);
        return 1ull << detail::lowest_bit(behind != 0 ? behind : among);
    }

    GN_HD
    RunSet take_runs(std::uint32_t l, std::uint32_t blocks, std::uint32_t wanted) const {
        const std::uint32_t units = units_for(l, blocks);
        for (std::uint32_t from = 0; from < step_->words[l]; from += 64)
            for (std::uint64_t rest = load(summary(l, from)); rest != 0; rest &= rest - 1) {
                const std::uint32_t w = from + detail::lowest_bit(rest);
                const std::uint64_t starts = take_runs_in_word(l, w, units, wanted);
                if (starts == 0) continue;
                const RunSet runs{starts, (w * 64) << levels_->shift[l], unit(l)};
                const std::uint32_t excess = (units << levels_->shift[l]) - blocks;
                for (std::uint32_t i = 0; excess != 0 && i < runs.count(); ++i)
                    give(runs.at(i) + blocks, excess);
                return runs;
            }
        return RunSet{};
    }
    /// Where runs were taken: as many as there are, at most `wanted`, all by one compare-and-exchange.
    GN_HD
    std::uint64_t take_runs_in_word(std::uint32_t l, std::uint32_t w, std::uint32_t units,
                                    std::uint32_t wanted) const {
        std::uint64_t free = load(word(l, w));
        while (true) {
            std::uint64_t left = free, starts = 0;
            for (std::uint32_t n = 0; n < wanted; ++n) {
                const std::uint64_t possible = detail::run_starts(left, units);
                if (possible == 0) break;
                const std::uint32_t first = detail::lowest_bit(possible);
                starts |= 1ull << first;
                left &= ~(detail::run_mask(units) << first);
            }
            if (starts == 0) return 0;
            // Takes all runs; acquires what their last holders wrote before give_units' releases.
            const std::uint64_t seen = simt::compare_exchange<simt::Scope::kDevice>(word(l, w), free, left);
            if (seen == free) {
                if (left == 0) note_empty(l, w);
                return starts;
            }
            free = seen;
        }
    }
    GN_HD
    RunSet carve(std::uint32_t l, std::uint32_t blocks, std::uint32_t wanted, std::uint32_t hint) const {
        const std::uint32_t index = take_units(l, 1, hint);
        if (index == kNone) return RunSet{};
        std::uint32_t runs = unit(l) / blocks;
        if (runs > wanted) runs = wanted;
        const std::uint32_t first = index << levels_->shift[l];
        give(first + runs * blocks, unit(l) - runs * blocks);
        return RunSet{detail::run_mask(runs), first, blocks};
    }

    /// Gives neighbouring blocks of one level, which lie in one group and word, and merges upwards.
    GN_HD
    bool give_units(std::uint32_t l, std::uint32_t index, std::uint32_t count) const {
        for (bool right = true;; ++l) {
            const std::uint32_t w = index / 64;
            const std::uint64_t mask = detail::run_mask(count) << (index % 64);
            // Releases the holder's accesses to whoever takes the blocks next.
            std::uint64_t now = simt::fetch_or<simt::Scope::kDevice>(word(l, w), mask);
            right = right && (now & mask) == 0;
            if (now == 0) note_filled(l, w);
            if (l + 1 == levels_->count) return right;
            now |= mask;
            const std::uint64_t group = group_mask(l, index % 64);
            if ((now & group) != group || is_last_group(l, w, now & ~group)) return right;
            if (!merge_group(l, w, group, now)) return right;
            index /= group_size(l);
            count = 1;
        }
    }
    /// Whether the level has nothing else near: then the group stays split, or lanes that take one small
    /// block at a time would split and merge each time.
    GN_HD
    bool is_last_group(std::uint32_t l, std::uint32_t w, std::uint64_t others) const {
        return others == 0 && (load(summary(l, w)) & ~(1ull << (w % 64))) == 0;
    }
    /// Takes a group that is free as a whole. False: somebody took part of it, or all; who gives it back
    /// looks again.
    GN_HD
    bool merge_group(std::uint32_t l, std::uint32_t w, std::uint64_t group, std::uint64_t now) const {
        while ((now & group) == group) {
            // Acquires what the holders of all its blocks released, to be released again a level up.
            const std::uint64_t seen =
                simt::compare_exchange<simt::Scope::kDevice>(word(l, w), now, now & ~group);
            if (seen == now) {
                if ((now & ~group) == 0) note_empty(l, w);
                return true;
            }
            now = seen;
        }
        return false;
    }
    GN_HD
    bool merge_word(std::uint32_t l, std::uint32_t w) const {
        bool any = false;
        const std::uint32_t size = group_size(l);
        for (std::uint32_t bit = 0; bit < 64; bit += size) {
            const std::uint64_t now = load(word(l, w));
            if (!merge_group(l, w, group_mask(l, bit), now)) continue;
            any = true;
            give_units(l + 1, (w * 64 + bit) / size, 1);
        }
        return any;
    }

    GN_HD
    void note_filled(std::uint32_t l, std::uint32_t w) const {
        // After the word: pairs with note_empty, whichever of the two comes last leaves the bit right.
        simt::fetch_or<simt::Scope::kDevice>(summary(l, w), 1ull << (w % 64));
    }
    GN_HD
    void note_empty(std::uint32_t l, std::uint32_t w) const {
        // If another lane's note_filled came before this in the summary, what it filled is seen by the load
        // that follows (this acquires that one's release); if it comes after, it sets the bit itself.
        simt::fetch_and<simt::Scope::kDevice>(summary(l, w), ~(1ull << (w % 64)));
        if (load(word(l, w)) != 0) note_filled(l, w);
    }

    const PoolLevels* levels_;
    const PoolStep* step_;
    std::uint64_t* words_;
};

}  // namespace gnstor::gnor
