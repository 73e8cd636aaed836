// enumerate.hpp: every history of a few commands over two blocks of two volumes, cut at every flash
// operation.
//
// The alphabet: a write of each block with an earlier and a later sequence, a trim of both blocks between
// them, a flush, a deletion with the VID given out again. A history is cut while its last command is done and
// behind it: cuts of the commands before it are those of its beginning, which is a history too.
#pragma once

#include "deengine/sim/config.hpp"
#include "deengine/sim/world.hpp"

#include <functional>
#include <string>
#include <vector>

namespace gnstor::deengine::sim {

inline constexpr std::uint32_t kLetters = 13;

struct EnumerationResult {
    std::string failure;  ///< empty: nothing was found; else the history and what is wrong
    std::uint64_t histories = 0;
    SimCounters counters;
};

/// `waits`: each command is answered before the next is sent; else all are sent at once.
std::string run_script(const SimConfig& config, const std::vector<std::uint32_t>& letters, bool waits,
                       SimCounters& counters);
/// All histories of 1 .. `length` commands, but for names of volumes and blocks; `stop` ends it early.
EnumerationResult enumerate(Mode mode, bool waits, std::uint32_t length, Mutation mutation,
                            const std::function<bool()>& stop = {});

}  // namespace gnstor::deengine::sim
