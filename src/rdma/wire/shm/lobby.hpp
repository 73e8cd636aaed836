// lobby.hpp: connections of a shm server whose first message has not come yet. They cost a descriptor each,
// no thread and no NIC, and they wait for a limited time in a limited number of places.
//
// Invariants
//   * at most `places` guests; one more sends away the oldest guest of the user that has most of them, so
//   that
//     whoever opens connections and says nothing is in the way of his own alone;
//   * a guest whose message has not come in time is sent away: its socket is closed.
// Messages are datagrams, whole or not there: none is half sent. Owned by the thread that accepts; times are
// arguments.
#pragma once

#include "rdma/wire/shm/socket.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gnstor::rdma::shm {

class Lobby {
  public:
    using Time = std::chrono::steady_clock::time_point;
    struct Guest {
        Socket socket;
        std::uint32_t user = 0;
        Time until;
    };

    Lobby(std::size_t places, std::chrono::milliseconds patience) : places_(places), patience_(patience) {}

    void enter(Socket socket, std::uint32_t user, Time now);
    /// Sends away whose time is over; returns how many.
    std::size_t expire(Time now);
    /// Sends the oldest away, for its descriptor is needed. False: nobody is there.
    bool make_room();
    /// Takes a guest out.
    Guest leave(std::size_t index);

    [[nodiscard]] const std::vector<Guest>& guests() const noexcept { return guests_; }
    /// When expire() has something to do.
    [[nodiscard]] std::optional<Time> next_deadline() const {
        return guests_.empty() ? std::nullopt : std::optional(guests_.front().until);
    }

  private:
    const std::size_t places_;
    const std::chrono::milliseconds patience_;
    std::vector<Guest> guests_;  ///< oldest first
};

}  // namespace gnstor::rdma::shm
