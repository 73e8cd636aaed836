// generations.hpp: the generations of clients' keys, of which none is ever given out twice. docs/array.md,
// rule 19. Pure.
//
// A generation given out under a term lies in the range of that term, which lies above those of all earlier
// terms. A daemon whose records are lost or an older copy does not know which generations were given out. It
// runs under a term that no daemon of the array has had, so its generations are above all of them. The ranges
// are those of map versions (gnstor/nvme/fencing.hpp), for the same reason.
#pragma once

#include <gnstor/nvme/fencing.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace gnstor::daemon {

/// The first generation of a term. All terms from which no records can be rebuilt share the last range.
constexpr std::uint32_t first_generation(std::uint64_t term) {
    return static_cast<std::uint32_t>(std::min(term, nvme::kTermOfDriveMost + 1)
                                      << nvme::kVersionsPerTermShift);
}
constexpr std::uint32_t last_generation(std::uint64_t term) {
    return term > nvme::kTermOfDriveMost ? std::numeric_limits<std::uint32_t>::max()
                                         : first_generation(term + 1) - 1;
}

}  // namespace gnstor::daemon
