// pending_connections.cpp: see pending_connections.hpp.
#include "rdma/wire/shm/pending_connections.hpp"

#include <algorithm>
#include <map>

namespace gnstor::rdma::shm {

void PendingConnections::add(Socket socket, std::uint32_t user, Time now) {
    connections_.push_back({std::move(socket), user, now + patience_});
    if (connections_.size() <= places_) return;
    std::map<std::uint32_t, std::size_t> count;
    for (const Pending& one : connections_) ++count[one.user];
    const auto most = std::ranges::max_element(count, {}, [](const auto& one) { return one.second; });
    connections_.erase(std::ranges::find(connections_, most->first, &Pending::user));
}

std::size_t PendingConnections::expire(Time now) {
    return std::erase_if(connections_, [now](const Pending& one) { return one.until <= now; });
}

bool PendingConnections::evict_oldest() {
    if (connections_.empty()) return false;
    connections_.erase(connections_.begin());
    return true;
}

PendingConnections::Pending PendingConnections::take(std::size_t index) {
    const auto at = connections_.begin() + static_cast<std::ptrdiff_t>(index);
    Pending one = std::move(*at);
    connections_.erase(at);
    return one;
}

}  // namespace gnstor::rdma::shm
