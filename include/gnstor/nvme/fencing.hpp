// fencing.hpp: what keeps a superseded daemon and a silent drive out: terms and grants. ARRAY.md, rules 1
// and 3.
//
//   Terms          A drive takes a vendor command of a term up to kTermLeapMost above the newest that it has
//                  seen. Below: Stale Term; further above, or the last term that there is, which nobody could
//                  follow: Command Sequence Error. DW0: the newest term's low half. A command that is refused
//                  raises no term.
//   GRANT ASK      No data. DW0: a nonce, never 0, of which the drive remembers when it gave it; the one
//                  before is forgotten. Nothing else changes, not even the term.
//   MAP SET        CDW10: the nonce of the newest GRANT ASK. The grant lasts `grant_ms` from the moment that
//                  the nonce was given, by the drive's clock that counts suspended time and by its wall
//                  clock, whichever ends first. Another nonce, also one of before the drive was mounted, or
//                  one so old that its grant would be over: Not Granted, and nothing has changed. With
//                  `grant_ms` 0 there is no nonce and no end: gnstord sends that only when it is told to
//                  grant for ever.
#pragma once

#include <gnstor/nvme/command.hpp>

#include <cstdint>

namespace gnstor::nvme {

/// Every start of a daemon raises the term by one: 65,536 is one a minute for 45 days, while a drive is away.
inline constexpr std::uint64_t kTermLeapMost = 1u << 16;
inline constexpr std::uint64_t kLastTerm = ~std::uint64_t{0};
/// A daemon that rebuilds lost records from its drives begins a new range of map versions, so that none is
/// given out twice: those from its term << kVersionsPerTermShift on. Versions have 32 bits.
inline constexpr std::uint32_t kVersionsPerTermShift = 12;
inline constexpr std::uint64_t kLastVersionOfRebuild = 0xFFFFFF00u;
/// The newest term that a drive may have seen for the next daemon to be able to do that.
inline constexpr std::uint64_t kTermOfDriveMost = (kLastVersionOfRebuild >> kVersionsPerTermShift) - 1;

/// Whether a drive that has seen `newest` may take a command of `term`, which is not older.
constexpr bool is_plausible_term(std::uint64_t term, std::uint64_t newest) {
    return term >= newest && term - newest <= kTermLeapMost && term != kLastTerm;
}

/// Bits 1:0 of an opcode say how data goes: none.
inline constexpr AdminOpcode kGrantAsk = static_cast<AdminOpcode>(0xDC);

}  // namespace gnstor::nvme
