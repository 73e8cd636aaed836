// load_threads.cpp: see load_threads.hpp.
#include "load_threads.hpp"

#include <algorithm>

namespace gnstor::bench {

LoadThreads threads_for(const LoadCase& c, const LoadSettings& s, std::uint32_t cores) {
    LoadThreads t;
    t.engine = s.engine.threads;
    if (is_lane_initiated(c.path)) return t;
    const std::uint32_t spare = std::max(1u, cores > t.engine ? cores - t.engine : 0);
    const bool central = is_central(c.path);
    // Unless it is said otherwise, a client has a thread, but an array engine more of the cores than clients.
    std::uint32_t wanted = s.client_threads;
    if (c.path == PathKind::kStrongCpu)
        wanted = s.threads;
    else if (wanted == 0)
        wanted = std::min(c.clients, central ? std::max(1u, spare / 2) : spare);
    const std::uint32_t most = central ? std::max(1u, spare - 1) : spare;
    // A thread without a request in flight would do nothing.
    t.client = std::clamp(wanted, 1u, std::min(most, c.clients * c.depth));
    if (central) t.array = std::clamp(s.array_threads, 1u, std::max(1u, spare - std::min(t.client, spare)));
    return t;
}

}  // namespace gnstor::bench
