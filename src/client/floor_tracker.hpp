// floor_tracker.hpp: the floor of an opening, from what its lanes record
// (gnor/detail/resources/resolved.hpp). docs/array.md, rule 8. Pure.
//
// Invariants
//   * the floor only rises, and every sequence up to it is resolved: it stops below the first sequence whose
//     bit does not say so, even if later ones are resolved;
//   * bits are trusted only if, after they were read, no sequence more than kResolvedBits above the floor had
//     been taken: otherwise a later round of the ring may have changed them. A tracker that finds this is
//     *overrun*: it was polled too seldom, or many writes followed one that takes long or ended in doubt;
//   * an overrun tracker trusts only a word that says "all taken sequences are resolved" (all_resolved), and
//     of which none was taken while it was read. Once each word has said so, all sequences taken before the
//     overrun was noticed are resolved, and the floor moves there. Lanes need not pause: each word only has
//     to be at rest at some time.
// One thread.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/gnor/detail/resources/resolved.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::client {

class FloorTracker {
  public:
    /// Reads the ring and moves the floor up. `last(std::uint64_t&)` reads the last sequence taken;
    /// `words(first, std::span<std::uint64_t>)` reads consecutive words of the ring without wrapping. Both
    /// return Result<void>, and neither may return values older than an earlier call returned.
    template <class Last, class Words>
    Result<std::uint64_t> advance(Last&& last, Words&& words) {
        std::uint64_t taken = 0;
        GN_TRY(last(taken));
        taken_ = taken;
        if (taken <= floor_) return floor_;
        const std::uint64_t first_word = overrun_ ? 0 : (floor_ + 1) / gnor::kResolvedInWord;
        const std::uint64_t count =
            overrun_ ? gnor::kResolvedWords
                     : std::min(taken / gnor::kResolvedInWord - first_word + 1, gnor::kResolvedWords);
        bits_.resize(count);
        for (std::uint64_t done = 0; done < count;) {
            const std::uint64_t at = (first_word + done) % gnor::kResolvedWords;
            const std::uint64_t run = std::min(count - done, gnor::kResolvedWords - at);
            GN_TRY(words(at, std::span(bits_).subspan(done, run)));
            done += run;
        }
        std::uint64_t taken_by_now = 0;
        GN_TRY(last(taken_by_now));
        if (overrun_) {
            heal(taken, taken_by_now);
            return floor_;
        }
        if (taken_by_now - floor_ > gnor::kResolvedBits) {
            begin_overrun(taken_by_now);
            return floor_;
        }
        for (std::uint64_t i = 0;
             i < count && step(bits_[i], (first_word + i) * gnor::kResolvedInWord, taken); ++i) {
        }
        return floor_;
    }

    /// Starts at `last`: all sequences up to it are resolved, the ring says so, and none is in flight.
    void begin_at(std::uint64_t last) {
        floor_ = taken_ = last;
        overrun_ = false;
    }

    [[nodiscard]] std::uint64_t floor() const { return floor_; }
    /// The last sequence that had been taken at the last advance().
    [[nodiscard]] std::uint64_t taken() const { return taken_; }
    [[nodiscard]] bool overrun() const { return overrun_; }

  private:
    /// Moves the floor over the resolved sequences of a word that begins with `first`; true if it reaches the
    /// word's end.
    bool step(std::uint64_t word, std::uint64_t first, std::uint64_t taken) {
        if (!gnor::resolves_to_one(first)) word = ~word;
        const std::uint64_t from = floor_ + 1 - first;  // 0 .. 31
        const auto resolved = static_cast<std::uint64_t>(std::countr_one(word >> from));
        floor_ = std::min({floor_ + std::min(resolved, gnor::kResolvedInWord - from), taken});
        return floor_ + 1 == first + gnor::kResolvedInWord;
    }

    void begin_overrun(std::uint64_t taken) {
        overrun_ = true;
        heals_to_ = taken;
        at_rest_.assign(gnor::kResolvedWords, false);
        left_ = gnor::kResolvedWords;
    }
    /// `before`, `after`: the last sequence taken before and after the whole ring was read.
    void heal(std::uint64_t before, std::uint64_t after) {
        if (after - before >= gnor::kResolvedBits) return;
        for (std::uint64_t w = 0; w < gnor::kResolvedWords; ++w) {
            if (at_rest_[w] || bits_[w] != gnor::all_resolved(w, before)) continue;
            if (gnor::all_resolved(w, after) != bits_[w]) continue;  // some were taken meanwhile
            at_rest_[w] = true;
            --left_;
        }
        if (left_ != 0) return;
        floor_ = heals_to_;
        overrun_ = false;
    }

    std::uint64_t floor_ = 0, taken_ = 0;
    bool overrun_ = false;
    std::uint64_t heals_to_ = 0, left_ = 0;  // left_: words that have not been at rest yet
    std::vector<bool> at_rest_;
    std::vector<std::uint64_t> bits_;
};

}  // namespace gnstor::client
