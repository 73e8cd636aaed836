// lobby.cpp: see lobby.hpp.
#include "rdma/wire/shm/lobby.hpp"

#include <algorithm>
#include <map>

namespace gnstor::rdma::shm {

void Lobby::enter(Socket socket, std::uint32_t user, Time now) {
    guests_.push_back({std::move(socket), user, now + patience_});
    if (guests_.size() <= places_) return;
    std::map<std::uint32_t, std::size_t> count;
    for (const Guest& guest : guests_) ++count[guest.user];
    const auto most = std::ranges::max_element(count, {}, [](const auto& one) { return one.second; });
    guests_.erase(std::ranges::find(guests_, most->first, &Guest::user));
}

std::size_t Lobby::expire(Time now) {
    return std::erase_if(guests_, [now](const Guest& guest) { return guest.until <= now; });
}

bool Lobby::make_room() {
    if (guests_.empty()) return false;
    guests_.erase(guests_.begin());
    return true;
}

Lobby::Guest Lobby::leave(std::size_t index) {
    const auto at = guests_.begin() + static_cast<std::ptrdiff_t>(index);
    Guest guest = std::move(*at);
    guests_.erase(at);
    return guest;
}

}  // namespace gnstor::rdma::shm
