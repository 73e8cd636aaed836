// hardware_threads.hpp: the threads of this process that emulate hardware, with the CPU time of each: an
// initiator's is what is left. Host.
//
// Engine threads run NICs and SSDs; beside them, threads named gn-pages get the memory of memory drives from
// the kernel ahead of its use.
#pragma once

#include <gnstor/embedded_array.hpp>

#include <vector>

namespace gnstor::bench {

/// The engine threads, then one entry for all helpers, if there are any.
std::vector<EngineThread> hardware_threads(const EmbeddedArray& array);

}  // namespace gnstor::bench
