// floor_tracker.hpp: the floor of an opening, from what its lanes note (gnor/resolved.hpp). ARRAY.md, rule 8.
// Pure.
//
// Invariants
//   * the floor only rises, and no sequence up to it is unresolved: it stops below the first whose bit does
//   not say otherwise, whatever was resolved above;
//   * bits are believed only if no sequence was taken more than kResolvedBits above the floor by the time
//   they had been read: a later round may have changed them else. A tracker that finds it so is *overrun*:
//   what it missed nobody can tell any more, and the floor stays where it is. So it is one that is asked too
//   seldom, or an opening in which a write failed for good, and many came after it.
// One thread.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/gnor/resolved.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::client {

class FloorTracker {
  public:
    /// Looks how far it has come. `last(std::uint64_t&)` reads the last sequence taken;
    /// `words(first, std::span<std::uint64_t>)` reads words of the ring, a run that does not wrap. Both
    /// return Result<void>, and neither may return what is older than what an earlier call has seen.
    template <class Last, class Words>
    Result<std::uint64_t> advance(Last&& last, Words&& words) {
        std::uint64_t taken = 0;
        GN_TRY(last(taken));
        if (overrun_ || taken <= floor_) return floor_;
        const std::uint64_t first_word = (floor_ + 1) / 64;
        const std::uint64_t count = std::min(taken / 64 - first_word + 1, gnor::kResolvedWords);
        bits_.resize(count);
        for (std::uint64_t done = 0; done < count;) {
            const std::uint64_t at = (first_word + done) % gnor::kResolvedWords;
            const std::uint64_t run = std::min(count - done, gnor::kResolvedWords - at);
            GN_TRY(words(at, std::span(bits_).subspan(done, run)));
            done += run;
        }
        std::uint64_t taken_by_now = 0;
        GN_TRY(last(taken_by_now));
        if (taken_by_now - floor_ > gnor::kResolvedBits) {
            overrun_ = true;
            return floor_;
        }
        for (std::uint64_t i = 0; i < count && step(bits_[i], (first_word + i) * 64, taken); ++i) {
        }
        return floor_;
    }

    [[nodiscard]] std::uint64_t floor() const { return floor_; }
    [[nodiscard]] bool overrun() const { return overrun_; }

  private:
    /// Over the resolved ones of a word, which begins with sequence `first`; whether to the word's end.
    bool step(std::uint64_t word, std::uint64_t first, std::uint64_t taken) {
        if (!gnor::resolves_to_one(first)) word = ~word;
        const std::uint64_t from = floor_ + 1 - first;  // 0 .. 63
        const auto resolved = static_cast<std::uint64_t>(std::countr_one(word >> from));
        floor_ = std::min({floor_ + std::min(resolved, 64 - from), taken});
        return floor_ + 1 == first + 64;
    }

    std::uint64_t floor_ = 0;
    bool overrun_ = false;
    std::vector<std::uint64_t> bits_;
};

}  // namespace gnstor::client
