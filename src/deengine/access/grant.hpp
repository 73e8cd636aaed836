// grant.hpp: until when a drive may serve data commands. docs/array.md, rule 3; nvme/fencing.hpp.
//
// Invariants
//   * a drive boots without a grant and does not know nonces of an earlier boot;
//   * a grant is counted from the moment that its nonce was issued, never from its receipt;
//   * it ends when either clock says so. Suspending the host stops neither clock; pausing a virtual machine
//     stops both, and its wall clock is corrected afterwards. A wall clock that is set back to before the
//     nonce was issued ends the grant too: no time can be measured with it any more.
// Model: tests/model/grants.pml. Pure: time comes as an argument. Owned by one thread.
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
    /// Issues a nonce for a grant that counts from `now`; earlier nonces become invalid.
    std::uint32_t ask(const GrantTime& now) {
        // Nonces count up, so that one repeats only after 2^32; the first nonce of a boot is hashed from its
        // clocks, so that it differs from those of the boot before.
        nonce_ =
            nonce_ != 0 ? nonce_ + 1 : static_cast<std::uint32_t>(mix64(now.boot_ns ^ mix64(now.wall_ns)));
        if (nonce_ == 0) nonce_ = 1;
        asked_ = now;
        return nonce_;
    }
    /// Whether a grant for this nonce would be valid now; `ms` is not 0.
    [[nodiscard]] bool is_due(std::uint32_t nonce, std::uint32_t ms, const GrantTime& now) const {
        return nonce != 0 && nonce == nonce_ && !is_over(asked_, ns(ms), now);
    }
    /// After is_due(): the grant of the newest nonce replaces the present one.
    void begin(std::uint32_t ms) {
        from_ = asked_;
        length_ns_ = ns(ms);
        const std::uint64_t end = from_.boot_ns + length_ns_;
        ends_ns_ = end < from_.boot_ns ? kNever - 1 : end;
    }
    void begin_without_end() { ends_ns_ = kNever; }
    /// Ends the grant if its time has passed by either clock. Call it with every reading of the clocks,
    /// before commands are checked at that moment.
    void observe(const GrantTime& now) {
        if (ends_ns_ != kNever && ends_ns_ != 0 && is_over(from_, length_ns_, now)) ends_ns_ = 0;
    }
    /// Whether the grant is valid at this time of the clock that counts suspended time. One comparison:
    /// observe() checks the wall clock.
    [[nodiscard]] bool lasts(std::uint64_t boot_ns) const { return boot_ns < ends_ns_; }

  private:
    static constexpr std::uint64_t kNever = ~std::uint64_t{0};
    static std::uint64_t ns(std::uint32_t ms) { return std::uint64_t{ms} * 1'000'000; }
    /// Unsigned differences: a clock behind `from` counts as far ahead of it.
    static bool is_over(const GrantTime& from, std::uint64_t length_ns, const GrantTime& now) {
        return now.boot_ns - from.boot_ns >= length_ns || now.wall_ns - from.wall_ns >= length_ns;
    }

    std::uint32_t nonce_ = 0;  ///< newest nonce; 0: none issued since boot
    GrantTime asked_{};        ///< when it was issued
    GrantTime from_{};         ///< start of the grant
    std::uint64_t length_ns_ = 0;
    std::uint64_t ends_ns_ = 0;  ///< 0: no grant
};

}  // namespace gnstor::deengine
