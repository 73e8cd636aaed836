// kill.hpp: the demo with a process that does not live long. Host, one thread, and no lanes in this process.
#pragma once

#include "demo.hpp"

namespace gnstor::demo {

/// run_demo() in a process of its own, which is killed (SIGKILL) several times: while it stores, while it
/// opens the stores of its predecessor, while its kernel looks through them. Each process continues
/// with the data that was acknowledged to the one before, and the answers of the last one are compared with
/// those of the system's own tools, as in run_demo().
Result<bool> run_with_kills(const Options& options, const std::filesystem::path& work,
                            const Archive& archive);

}  // namespace gnstor::demo
