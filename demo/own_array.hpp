// own_array.hpp: the demo with an array of its own in other processes: started before it, taken down after
// it, whatever ends it. Host, one thread.
#pragma once

#include "demo.hpp"

namespace gnstor::demo {

/// Starts nodes and gnstord below `work` ('gnstor up'), runs the demo's steps in a process of their own, and
/// stops the array when that has ended, or when SIGINT, SIGTERM or SIGHUP comes. The exit code: 0 every
/// answer agrees, 1 one does not, 128 + N where signal N came. Logs are kept where something failed.
Result<int> run_with_own_array(const Options& options, const std::filesystem::path& work,
                               const Archive& archive);

}  // namespace gnstor::demo
