// serving_processes.hpp: CPU time of the other processes that emulate hardware, where the array is one that
// they serve: kept in a repeat as process_<name>_cpu_seconds, each apart. Host; pure.
#pragma once

#include "bench/initiators/served_array.hpp"
#include "result.hpp"

#include <string>
#include <vector>

namespace gnstor::bench {

/// What each took between two moments around a repeat; it counts as the engines' as well: an initiator on
/// shared memory has none of its own.
void add_processes(Repeat& repeat, const std::vector<HardwareProcess>& before,
                   const std::vector<HardwareProcess>& after);

/// By case, us an I/O; empty where there are none.
std::string process_lines(const std::vector<Case>& cases);

}  // namespace gnstor::bench
