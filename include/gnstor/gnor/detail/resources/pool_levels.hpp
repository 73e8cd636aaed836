// pool_levels.hpp: the multi-level allocator of one growth step of a channel's pool: its bitmaps, without the
// memory. CPU and GPU lanes, any number at once.
//
// Invariants
//   * a set bit at level l is a free block of that level, and none of its blocks is free at another level: a
//     4 KiB block is free at exactly one level, or a lane has it;
//   * a lane that clears a bit owns the blocks that it stood for, until it sets bits for them at this level
//     or another. Splitting is taking a large block and giving the rest back as smaller ones; merging is
//     taking all blocks of a group (they lie in one word) and giving one block of the level above;
//   * a summary has one bit per word: set where the word is not empty, except between the two steps of a lane
//     that fills or empties the word.
//
// Each step is one read-modify-write of one word. There is no lock: a lane that loses a race reads the word
// again, and then another lane has made progress. Blocks that a lane holds while it splits or merges are in
// no bitmap; the lane counts itself as moving first, so that one that finds nothing knows whether it has seen
// everything, and else searches again, kPoolLooks times at most.
#pragma once

#include <gnstor/gnor/detail/resources/bitmap.hpp>
#include <gnstor/gnor/detail/resources/pool_layout.hpp>
#include <gnstor/simt/time.hpp>

namespace gnstor::gnor {

inline constexpr std::uint32_t kPoolSpread = 4;   ///< words that lanes start at, by their hints
inline constexpr std::uint32_t kPoolLooks = 32;   ///< searches before a lane reports that it found nothing
inline constexpr std::uint32_t kPoolPauses = 64;  ///< pauses between two, while other lanes split or merge
inline constexpr std::uint32_t kPoolWordsOnce = 1024;  ///< a level with more is searched by its summary only

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
    std::uint32_t at(std::uint32_t i) const { return first + detail::nth_bit(starts, i) * scale; }
};

/// The allocator of one step. Block numbers count from the step's first block. A view: copied freely. S: the
/// scope of the lanes that use it.
template <simt::Scope S>
class BasicLevelsRef {
  public:
    GN_HD
    BasicLevelsRef(const PoolLevels* levels, const PoolStep* step, std::uint64_t* words)
        : levels_(levels), step_(step), words_(words) {}

    /// `blocks` neighbouring blocks, 1 .. those of the largest level; kNone when none were found. The best
    /// fitting level first; then runs of smaller levels, which leave large blocks whole; then a block of a
    /// larger level, split.
    GN_HD
    std::uint32_t take(std::uint32_t blocks, std::uint32_t hint) const {
        if (blocks > step_->blocks) return kNone;
        const std::uint32_t best = best_level(blocks);
        const std::uint32_t first = take_at_levels(best, blocks, hint, false);
        return first != kNone ? first : look_again(best, blocks, hint);
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

    /// Gives blocks back that were taken, or part of such a run. False: one of them was free already at the
    /// level that it goes to.
    GN_HD
    bool give(std::uint32_t first, std::uint32_t blocks) const {
        bool right = true;
        while (blocks != 0) {
            std::uint32_t l = levels_->count - 1;
            while ((first & (unit(l) - 1)) != 0 || unit(l) > blocks) --l;
            const std::uint32_t index = first >> levels_->shift[l];
            // Up to where a block of the level above may begin, or to the end of the word.
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

    /// Merges all groups that are wholly free, also those kept for small requests. Returns whether there were
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

    /// Free blocks of 4 KiB, at all levels; exact only while no lane takes or gives.
    GN_HD
    std::uint32_t count_free() const {
        std::uint32_t blocks = 0;
        for (std::uint32_t l = 0; l < levels_->count; ++l) blocks += count_free_units(l) << levels_->shift[l];
        return blocks;
    }
    /// The same, blocks of one level.
    GN_HD
    std::uint32_t count_free_units(std::uint32_t level) const {
        return gnor::count_free<S>(words_ + step_->word_at[level], step_->words[level]);
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
    static std::uint64_t load(const std::uint64_t* p) { return simt::load_relaxed<S>(p); }
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

    /// Searches again: kNone when a whole search found nothing while no lane was moving blocks, or after
    /// kPoolLooks searches.
    GN_HD
    std::uint32_t look_again(std::uint32_t best, std::uint32_t blocks, std::uint32_t hint) const {
        std::uint32_t backoff = 0;
        for (std::uint32_t i = 0; i < kPoolLooks; ++i) {
            // Blocks of moves that ended before are seen by the search that follows: pairs with end_move.
            const std::uint64_t before = simt::load_acquire<S>(moves());
            // The request may be covered by adjacent smaller blocks that are not merged yet.
            if (best != 0) (void)merge_all();
            const std::uint32_t first = take_at_levels(best, blocks, hint, true);
            if (first != kNone) return first;
            // A read-modify-write, so that no load of the search above is ordered after it.
            const std::uint64_t after = simt::fetch_add<S>(moves(), std::uint64_t{0});
            if (before == after && under_way(after) == 0) break;
            for (std::uint32_t k = 0; k < kPoolPauses && under_way(load(moves())) != 0; ++k)
                simt::give_way(backoff);
        }
        return kNone;
    }
    GN_HD
    std::uint64_t* moves() const { return words_ + step_->moves_at; }
    GN_HD
    static std::uint32_t under_way(std::uint64_t moves) { return static_cast<std::uint32_t>(moves); }
    GN_HD
    void begin_move() const {
        // Before blocks are taken out of a bitmap to go into another: pairs with look_again.
        simt::fetch_add<S>(moves(), (std::uint64_t{1} << 32) + 1);
    }
    GN_HD
    void end_move() const {
        // Releases the blocks in their new bitmap: pairs with look_again. begin_move has added 1: no borrow
        // from the high half.
        simt::fetch_add<S>(moves(), ~std::uint64_t{0});
    }
    /// Mask of words to search, of level l from word `from` on; `all`: also those whose summary bit another
    /// lane is about to set.
    GN_HD
    std::uint64_t words_to_look_at(std::uint32_t l, std::uint32_t from, bool all) const {
        if (!all || step_->words[l] > kPoolWordsOnce) return load(summary(l, from));
        return detail::run_mask(step_->words[l] - from < 64 ? step_->words[l] - from : 64);
    }

    GN_HD
    std::uint32_t take_at_levels(std::uint32_t best, std::uint32_t blocks, std::uint32_t hint,
                                 bool all) const {
        for (std::uint32_t l = best;; --l) {
            if (units_for(l, blocks) > 64) break;
            const std::uint32_t first = take_at(l, blocks, hint, all);
            if (first != kNone) return first;
            if (l == 0) break;
        }
        for (std::uint32_t l = best + 1; l < levels_->count; ++l) {
            const std::uint32_t first = take_at(l, blocks, hint, all);
            if (first != kNone) return first;
        }
        return kNone;
    }
    /// Takes a run of level l; what exceeds the request goes back as smaller blocks.
    GN_HD
    std::uint32_t take_at(std::uint32_t l, std::uint32_t blocks, std::uint32_t hint, bool all) const {
        const std::uint32_t units = units_for(l, blocks);
        const std::uint32_t excess = (units << levels_->shift[l]) - blocks;
        const std::uint32_t index = take_units(l, units, hint, all, excess != 0);
        if (index == kNone) return kNone;
        const std::uint32_t first = index << levels_->shift[l];
        if (excess != 0) {
            give(first + blocks, excess);
            end_move();
        }
        return first;
    }

    /// Searches each word that is not empty once, beginning at one of the kPoolSpread lowest, by the hint.
    /// Low words are preferred, so that high ones become wholly free. `splits`: part of the run will go back,
    /// and the caller then ends the move.
    GN_HD
    std::uint32_t take_units(std::uint32_t l, std::uint32_t units, std::uint32_t hint, bool all,
                             bool splits) const {
        for (std::uint32_t from = 0; from < step_->words[l]; from += 64) {
            const std::uint64_t filled = words_to_look_at(l, from, all);
            std::uint64_t later = filled;
            for (std::uint32_t skip = hint % kPoolSpread; skip != 0 && (later & (later - 1)) != 0; --skip)
                later &= later - 1;
            const std::uint64_t orders[2] = {later, filled & ~later};
            for (std::uint64_t rest : orders)
                for (; rest != 0; rest &= rest - 1) {
                    const std::uint32_t w = from + detail::lowest_bit(rest);
                    const std::uint32_t bit = take_in_word(l, w, units, hint, splits);
                    if (bit != kNone) return w * 64 + bit;
                }
        }
        return kNone;
    }
    GN_HD
    std::uint32_t take_in_word(std::uint32_t l, std::uint32_t w, std::uint32_t units, std::uint32_t hint,
                               bool splits) const {
        std::uint64_t free = load(word(l, w));
        std::uint64_t starts = detail::run_starts(free, units);
        if (starts == 0) return kNone;
        // Only if there is a run: failed attempts must not make other lanes search again.
        if (splits) begin_move();
        for (; starts != 0; starts = detail::run_starts(free, units)) {
            if (units == 1) {
                const std::uint64_t bit = choose_bit(l, free, hint);
                // Takes the block unless another lane took it first; changes of other bits do not matter.
                // Acquires what its last holder wrote before give_units' release.
                const std::uint64_t seen = simt::fetch_and<S>(word(l, w), ~bit);
                if (seen == bit) note_change(l, w);
                if ((seen & bit) != 0) return detail::lowest_bit(bit);
                free = seen;
                continue;
            }
            const std::uint64_t aligned = starts & detail::aligned_starts(units);
            const std::uint32_t first = detail::lowest_bit(aligned != 0 ? aligned : starts);
            const std::uint64_t left = free & ~(detail::run_mask(units) << first);
            // The same for a run, which is taken as a whole or not at all.
            const std::uint64_t seen = simt::compare_exchange<S>(word(l, w), free, left);
            if (seen == free) {
                if (left == 0) note_change(l, w);
                return first;
            }
            free = seen;
        }
        if (splits) end_move();
        return kNone;
    }
    /// A free bit of the lowest group that has one, chosen by the hint: lanes that come together take
    /// different bits, and higher groups become wholly free. `free` is not 0.
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
                const std::uint32_t excess = (units << levels_->shift[l]) - blocks;
                const std::uint64_t starts = take_runs_in_word(l, w, units, wanted, excess != 0);
                if (starts == 0) continue;
                const RunSet runs{starts, (w * 64) << levels_->shift[l], unit(l)};
                if (excess == 0) return runs;
                for (std::uint32_t i = 0; i < runs.count(); ++i) give(runs.at(i) + blocks, excess);
                end_move();
                return runs;
            }
        return RunSet{};
    }
    /// Takes as many runs as there are, at most `wanted`, all by one compare-and-exchange; returns their
    /// first bits.
    GN_HD
    std::uint64_t take_runs_in_word(std::uint32_t l, std::uint32_t w, std::uint32_t units,
                                    std::uint32_t wanted, bool splits) const {
        std::uint64_t free = load(word(l, w));
        bool moving = false;
        while (true) {
            std::uint64_t left = free, starts = 0;
            for (std::uint32_t n = 0; n < wanted; ++n) {
                const std::uint64_t possible = detail::run_starts(left, units);
                if (possible == 0) break;
                const std::uint32_t first = detail::lowest_bit(possible);
                starts |= 1ull << first;
                left &= ~(detail::run_mask(units) << first);
            }
            if (starts == 0) {
                if (moving) end_move();
                return 0;
            }
            if (splits && !moving) begin_move();
            moving = splits;
            // Takes all runs; acquires what their last holders wrote before give_units' releases.
            const std::uint64_t seen = simt::compare_exchange<S>(word(l, w), free, left);
            if (seen == free) {
                if (left == 0) note_change(l, w);
                return starts;
            }
            free = seen;
        }
    }
    GN_HD
    RunSet carve(std::uint32_t l, std::uint32_t blocks, std::uint32_t wanted, std::uint32_t hint) const {
        const std::uint32_t index = take_units(l, 1, hint, false, true);
        if (index == kNone) return RunSet{};
        std::uint32_t runs = unit(l) / blocks;
        if (runs > wanted) runs = wanted;
        const std::uint32_t first = index << levels_->shift[l];
        give(first + runs * blocks, unit(l) - runs * blocks);
        end_move();
        return RunSet{detail::run_mask(runs), first, blocks};
    }

    /// Gives neighbouring blocks of one level, which lie in one group and word, and merges upwards.
    GN_HD
    bool give_units(std::uint32_t l, std::uint32_t index, std::uint32_t count) const {
        bool right = true, moving = false;
        for (;; ++l) {
            const std::uint32_t w = index / 64;
            const std::uint64_t mask = detail::run_mask(count) << (index % 64);
            // Releases the holder's accesses to the lane that takes the blocks next.
            std::uint64_t now = simt::fetch_or<S>(word(l, w), mask);
            right = right && (now & mask) == 0;
            if (now == 0) note_change(l, w);
            if (l + 1 == levels_->count) break;
            now |= mask;
            const std::uint64_t group = group_mask(l, index % 64);
            if ((now & group) != group || is_last_group(l, w, now & ~group)) break;
            if (!moving) begin_move();
            moving = true;
            if (!merge_group(l, w, group, now)) break;
            index /= group_size(l);
            count = 1;
        }
        if (moving) end_move();
        return right;
    }
    /// Whether neither this word nor those that share its summary word have another free block of the level:
    /// then the group stays split, or lanes that take one small block at a time would split and merge each
    /// time.
    GN_HD
    bool is_last_group(std::uint32_t l, std::uint32_t w, std::uint64_t others) const {
        return others == 0 && (load(summary(l, w)) & ~(1ull << (w % 64))) == 0;
    }
    /// Takes a group that is wholly free. False: another lane took a part of it, and will check the group
    /// again when it gives that back.
    GN_HD
    bool merge_group(std::uint32_t l, std::uint32_t w, std::uint64_t group, std::uint64_t now) const {
        while ((now & group) == group) {
            // Acquires what the holders of all its blocks released, to be released again a level up.
            const std::uint64_t seen = simt::compare_exchange<S>(word(l, w), now, now & ~group);
            if (seen == now) {
                if ((now & ~group) == 0) note_change(l, w);
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
            const std::uint64_t group = group_mask(l, bit);
            if ((now & group) != group) continue;
            begin_move();
            if (merge_group(l, w, group, now)) {
                any = true;
                give_units(l + 1, (w * 64 + bit) / size, 1);
            }
            end_move();
        }
        return any;
    }

    /// Updates a word's summary bit after the caller has filled or emptied the word. Other lanes may empty
    /// and fill the word between those two steps, so the lane reads the word once more afterwards and repeats
    /// until both agree. Every change between empty and not empty comes here: if the last lane to update the
    /// summary did not see such a change, the lane that made it updates the summary later still (each update
    /// acquires what those before it released).
    GN_HD
    void note_change(std::uint32_t l, std::uint32_t w) const {
        const std::uint64_t bit = 1ull << (w % 64);
        for (;;) {
            const bool filled = load(word(l, w)) != 0;
            if (filled)
                simt::fetch_or<S>(summary(l, w), bit);
            else
                simt::fetch_and<S>(summary(l, w), ~bit);
            if ((load(word(l, w)) != 0) == filled) return;
        }
    }

    const PoolLevels* levels_;
    const PoolStep* step_;
    std::uint64_t* words_;
};
using LevelsRef = BasicLevelsRef<simt::Scope::kDevice>;

}  // namespace gnstor::gnor
