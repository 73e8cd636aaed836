// answering.hpp: the thread that asks acceptors about connection requests, because they may block.
//
// Owns a queue of arrivals, bounded by its user (the connection manager's half-open limit), and knows which
// acceptor it is in. Any thread but its own; the callbacks run in it.
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
#include "rdma/wire/udp/link.hpp"

namespace gnstor::rdma::udp {

/// A request that awaits its answer.
struct PendingArrival {
    roce::CmId id = 0;
    std::uint16_t port = 0;
    Acceptor* acceptor = nullptr;
    std::string peer;
    std::vector<std::byte> private_data;
};

class AnsweringThread {
  public:
    /// `answered` gets each arrival with the acceptor's reply.
    explicit AnsweringThread(std::function<void(const PendingArrival&, const ArrivalReply&)> answered);
    ~AnsweringThread();
    AnsweringThread(const AnsweringThread&) = delete;
    AnsweringThread& operator=(const AnsweringThread&) = delete;

    void ask(PendingArrival arrival);
    /// Nobody waits for this one's answer any more. It may be being asked.
    void forget(roce::CmId id);
    /// Forgets what waits for `port`, and waits until its acceptor is in no call and `answered` in none for
    /// it. Not from within either.
    std::vector<PendingArrival> withdraw(std::uint16_t port);
    /// Ends the thread; what waits is not asked.
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
