// load_threads.hpp: how many threads poll in a case of `bench load` and of the figures. Pure.
//
// Threads that emulate hardware, that initiate, and of a central array engine poll without end: more of them
// than cores would take turns on those, and measure the scheduler. So those that hardware leaves are shared
// out, whatever was asked for: what is asked for is the most. Each kind has one, even on a machine that has
// fewer cores than kinds.
#pragma once

#include "load.hpp"

namespace gnstor::bench {

struct LoadThreads {
    std::uint32_t engine = 0;  ///< that emulate NICs and SSDs
    std::uint32_t client = 0;  ///< that initiate, of all clients together; 0: lanes do
    std::uint32_t array = 0;   ///< of a central array engine; 0: there is none
};

/// `complete`: what complete() gave.
LoadThreads threads_for(const LoadCase& c, const LoadSettings& complete, std::uint32_t cores);

}  // namespace gnstor::bench
