// grant.hpp: until when a drive may serve data commands. ARRAY.md, rule 3; nvme/fencing.hpp.
//
// Invariants
//   * there is none after construction: a drive boots without a grant, and nonces of before are unknown;
//   * a grant is counted from the moment that its nonce was given to whoever asked, never from its receipt;
//   * it ends when either clock says so. A suspended host stops neither of them; a paused virtual machine
//   stops both, and its wall clock is put right afterwards. A wall clock that was put back before the moment
//   of asking ends it too: nothing can be counted on it any more.
// Pure: time comes as an argument. Owned by one thread.
#pragma once

#include <gnstor/base/hash.hpp>

#include <cstdint>

namespace gnstor::deengine {

/// Both clocks at one moment.
struct GrantTime {
    std::uint64_t boot_ns = 0;  ///< counts suspended time, never goes back (CLOCK_BOOTTIME)
    std::uint64_t wall_ns = 0;  ///< since 1970; may be set
};

class Grant {
  public:
    /// A nonce for a grant that counts from `now`; the one before is worth nothing any more.
    std::uint32_t ask(const GrantTime& now) {
        // Each follows the last, so that none comes twice before 2^32 others; the first of a boot lies where
        // its clocks say, so that it is none of the boot before.
        nonce_ =
            nonce_ != 0 ? nonce_ + 1 : static_cast<std::uint32_t>(mix64(now.boot_ns ^ mix64(now.wall_ns)));
        if (nonce_ == 0) nonce_ = 1;
        asked_ = now;
        return nonce_;
    }
    /// Whether a grant for this nonce would last at this moment; `ms` is not 0.
    [[nodiscard]] bool is_due(std::uint32_t nonce, std::uint32_t ms, const GrantTime& now) const {
        return nonce != 0 && nonce == nonce_ && !is_over(asked_, ns(ms), now);
    }
    /// After is_due(): the grant of the newest nonce takes the place of what was there.
    void begin(std::uint32_t ms) {
        from_ = asked_;
        length_ns_ = ns(ms);
        const std::uint64_t end = from_.boot_ns + length_ns_;
        ends_ns_ = end < from_.boot_ns ? kNever - 1 : end;
    }
    void begin_without_end() { ends_ns_ = kNever; }
    /// Ends it if its time has gone by either clock. Call it with every reading of the clocks, before
    /// commands are checked at that moment.
    void observe(const GrantTime& now) {
        if (ends_ns_ != kNever && ends_ns_ != 0 && is_over(from_, length_ns_, now)) ends_ns_ = 0;
    }
    /// Whether it lasts at this moment of the clock that counts suspended time: one comparison, as the wall
    /// clock was looked at by observe().
    [[nodiscard]] bool lasts(std::uint64_t boot_ns) const { return boot_ns < ends_ns_; }

  private:
    static constexpr std::uint64_t kNever = ~std::uint64_t{0};
    static std::uint64_t ns(std::uint32_t ms) { return std::uint64_t{ms} * 1'000'000; }
    /// Differences of unsigned numbers: a clock that is behind `from` is far ahead of it.
    static bool is_over(const GrantTime& from, std::uint64_t length_ns, const GrantTime& now) {
        return now.boot_ns - from.boot_ns >= length_ns || now.wall_ns - from.wall_ns >= length_ns;
    }

    std::uint32_t nonce_ = 0;  ///< the newest; 0: nobody has asked since boot
    GrantTime asked_{};        ///< when it was given
    GrantTime from_{};         ///< of the grant
    std::uint64_t length_ns_ = 0;
    std::uint64_t ends_ns_ = 0;  ///< 0: there is none
};

}  // namespace gnstor::deengine
