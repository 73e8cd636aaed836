// engine_busy.hpp: how busy each thread was that runs emulated NICs and SSDs: what says which of them binds.
// Host; pure.
//
// A thread polls all the time that lanes do, so its CPU time says little; what counts is the share of the
// measured time in rounds that found work (Reactor::busy_time_ns). Kept in a repeat as busy_<thread>.
#pragma once

#include <gnstor/embedded_array.hpp>

#include "result.hpp"

#include <string>
#include <vector>

namespace gnstor::bench {

/// CPU time of all threads and the share of time with work of each. `before` and `after`: of one array,
/// around a repeat whose seconds are known.
void add_engine(Repeat& repeat, const std::vector<EngineThread>& before,
                const std::vector<EngineThread>& after);

/// A line a case: "gn-nic-0..1 87 85 %, gn-ssd-2..5 99 98 99 97 %", medians over repeats. Empty: none was
/// kept.
std::string busy_lines(const std::vector<Case>& cases);

}  // namespace gnstor::bench
