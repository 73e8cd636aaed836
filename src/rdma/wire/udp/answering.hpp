// answering.hpp: the thread that calls acceptors with connection requests, as they may block.
//
// Owns a queue of arrivals, bounded by its user (the connection manager's half-open limit), and knows
// which acceptor it is calling. Public functions: any thread but its own; callbacks run in its own
// thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rdma/roce/connection_manager.hpp"
#include "rdma/wire/udp/acceptor.hpp"

namespace gnstor::rdma::udp {

/// A connection request that no acceptor has answered yet.
struct PendingArrival {
    roce::CmId id = 0;
    std::uint16_t port = 0;
    Acceptor* acceptor = nullptr;
    std::string peer;
    std::vector<std::byte> private_data;
};

class AnsweringThread {
  public:
    /// Calls `answered` with each arrival and the acceptor's reply.
    explicit AnsweringThread(std::function<void(const PendingArrival&, const ArrivalReply&)> answered);
    ~AnsweringThread();
    AnsweringThread(const AnsweringThread&) = delete;
    AnsweringThread& operator=(const AnsweringThread&) = delete;

    void ask(PendingArrival arrival);
    /// Drops the request: its reply is no longer needed. The acceptor may be in the call already.
    void forget(roce::CmId id);
    /// Drops the requests for `port` and returns them; waits until neither its acceptor nor `answered` is
    /// being called for `port`. Must not be called from either.
    std::vector<PendingArrival> withdraw(std::uint16_t port);
    /// Ends the thread; acceptors are not called for queued requests.
    void stop();

  private:
    void loop();

    const std::function<void(const PendingArrival&, const ArrivalReply&)> answered_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<PendingArrival> queue_;  // guarded by the mutex, like the rest
    bool stopping_ = false;
    bool in_call_ = false;
    std::uint16_t port_in_call_ = 0;
    std::thread thread_;
};

}  // namespace gnstor::rdma::udp
