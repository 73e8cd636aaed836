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
    const auto oldest = std::ranges::find(connections_, most->first, &Pending::user);
    close_(take(static_cast<std::size_t>(oldest - connections_.begin())).socket);
}

std::size_t PendingConnections::expire(Time now) {
    std::size_t expired = 0;  // oldest first, and all with the same patience
    for (; !connections_.empty() && connections_.front().until <= now; ++expired) close_(take(0).socket);
    return expired;
}

bool PendingConnections::evict_oldest() {
    if (connections_.empty()) return false;
    close_(take(0).socket);
    return true;
}

PendingConnections::Pending PendingConnections::take(std::size_t index) {
    const auto at = connections_.begin() + static_cast<std::ptrdiff_t>(index);
    Pending one = std::move(*at);
    connections_.erase(at);
    return one;
}

}  // namespace gnstor::rdma::shm
