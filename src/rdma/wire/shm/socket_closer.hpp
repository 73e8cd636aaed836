// socket_closer.hpp: closes sockets of strangers in a thread of its own, as that may take for ever: an unread
// message may hold descriptors, and the last close of one may wait for a file system or a TCP peer that the
// sender of the message controls.
//
// Invariants
//   * at most kRoom sockets wait; while it is full() the owner accepts no further connection;
//   * its end waits for a moment only: a thread that is stuck in a close is left behind, with what it needs.
// Any thread.
#pragma once

#include "rdma/wire/shm/socket.hpp"

#include <cstddef>
#include <memory>
#include <thread>

namespace gnstor::rdma::shm {

class SocketCloser {
  public:
    static constexpr std::size_t kRoom = 256;

    SocketCloser();
    ~SocketCloser();
    SocketCloser(const SocketCloser&) = delete;
    SocketCloser& operator=(const SocketCloser&) = delete;

    /// Reads what the socket holds, so that its peer can still read our answer, and closes it.
    void add(Socket socket);
    [[nodiscard]] bool full() const;

  private:
    struct State;
    static void loop(State& state);

    std::shared_ptr<State> state_;
    std::thread thread_;
};

}  // namespace gnstor::rdma::shm
