// fencing.hpp: terms fence off a superseded daemon, grants a drive that lost contact. docs/array.md, rules 1
// and 3.
//
//   Terms          A drive accepts a vendor command whose term is at most kTermLeapMost above the newest term
//                  that it has seen. Lower: Stale Term. Further above, or kLastTerm, which no later daemon
//                  could exceed: Command Sequence Error. DW0: low half of the newest term. A refused command
//                  does not raise the term.
//   GRANT ASK      No data. DW0: a nonce, never 0. The drive remembers when it issued the nonce and forgets
//                  the one before. It changes nothing else, not even the term.
//   MAP SET        CDW10: the nonce of the newest GRANT ASK. The grant lasts `grant_ms` from the moment the
//                  drive issued the nonce, by the drive's clock that counts suspended time and by its wall
//                  clock, whichever ends first. Any other nonce, a nonce from before the mount, or one so old
//                  that its grant would already be over: Not Granted, nothing changes. `grant_ms` 0: no nonce
//                  is needed and the grant never ends; gnstord sends 0 only if configured to grant for ever.
#pragma once

#include <gnstor/nvme/command.hpp>

#include <cstdint>

namespace gnstor::nvme {

/// Every start of a daemon raises the term by one. A drive that is away for 45 days while a daemon restarts
/// once a minute misses 65,536 terms.
inline constexpr std::uint64_t kTermLeapMost = 1u << 16;
inline constexpr std::uint64_t kLastTerm = ~std::uint64_t{0};
/// A daemon that rebuilds lost records from its drives begins a new range of map versions, at
/// (term << kVersionsPerTermShift), so that no version is given out twice. Versions have 32 bits.
inline constexpr std::uint32_t kVersionsPerTermShift = 12;
inline constexpr std::uint64_t kLastVersionOfRebuild = 0xFFFFFF00u;
/// The newest term that drives may have seen for the next daemon to find a range of versions left.
inline constexpr std::uint64_t kTermOfDriveMost = (kLastVersionOfRebuild >> kVersionsPerTermShift) - 1;

/// Whether a drive that has seen term `newest` may accept a command of `term`: not older, not too far above.
constexpr bool is_plausible_term(std::uint64_t term, std::uint64_t newest) {
    return term >= newest && term - newest <= kTermLeapMost && term != kLastTerm;
}

/// Bits 1:0 of an opcode give the data direction; 00: none.
inline constexpr AdminOpcode kGrantAsk = static_cast<AdminOpcode>(0xDC);

}  // namespace gnstor::nvme
