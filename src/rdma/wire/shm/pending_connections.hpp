// pending_connections.hpp: pending connections of a shm server: their first message has not come yet. Each
// costs a descriptor, but no thread and no NIC; their number and their waiting time are limited.
//
// Invariants
//   * at most `places` pending connections; one more closes the oldest of the user that has most of them,
//     so that a user who opens silent connections displaces only his own;
//   * a connection whose first message does not come in time is closed;
//   * what it closes goes to the owner's function, as a message may have come just now (SocketCloser).
// A message is one datagram, so it arrives whole or not at all. Owned by the thread that accepts; times
// are arguments.
#pragma once

#include "rdma/wire/shm/socket.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace gnstor::rdma::shm {

class PendingConnections {
  public:
    using Time = std::chrono::steady_clock::time_point;
    struct Pending {
        Socket socket;
        std::uint32_t user = 0;
        Time until;
    };

    /// `close`: of a connection that waits no longer; by default it is just closed.
    PendingConnections(
        std::size_t places, std::chrono::milliseconds patience,
        std::function<void(Socket)> close = [](const Socket&) {})
        : places_(places), patience_(patience), close_(std::move(close)) {}

    void add(Socket socket, std::uint32_t user, Time now);
    /// Closes the connections whose time is over; returns how many.
    std::size_t expire(Time now);
    /// Closes the oldest connection to free its descriptor. False: there is none.
    bool evict_oldest();
    /// Removes a connection and returns it.
    Pending take(std::size_t index);

    [[nodiscard]] const std::vector<Pending>& connections() const noexcept { return connections_; }
    /// When expire() next closes one.
    [[nodiscard]] std::optional<Time> next_deadline() const {
        return connections_.empty() ? std::nullopt : std::optional(connections_.front().until);
    }

  private:
    const std::size_t places_;
    const std::chrono::milliseconds patience_;
    const std::function<void(Socket)> close_;
    std::vector<Pending> connections_;  ///< oldest first
};

}  // namespace gnstor::rdma::shm
