// wire_mover.hpp: one repeat of one case of `bench wire`: a queue pair kept so deep for a time, and what that
// cost. Host; one thread posts and waits.
#pragma once

#include "wire.hpp"
#include "wire_pair.hpp"

#include <cstdint>

namespace gnstor::bench::wire_bench {

inline constexpr std::uint32_t kEntriesLog2 = 6;

enum class Direction : std::uint8_t { kWrite, kRead };

/// On a pair of its own, whose bytes are checked at the end.
Result<Repeat> run_on_wire(Pair::Plan plan, const Work& work, Direction direction);
/// The same bytes by memcpy.
Result<Repeat> run_memcpy(const Work& work);

}  // namespace gnstor::bench::wire_bench
