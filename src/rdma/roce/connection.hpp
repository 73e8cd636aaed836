// connection.hpp: both halves of a reliable connection as one queue pair: passes each packet to its half,
// sends requests and answers alternately, and ends both halves together.
//
// An error of either half ends the other as in a NIC: unfinished requests are flushed, a receive in
// progress completes with an error; the driver flushes posted receives. A failed connection still sends
// the NAK that tells the peer the reason. Pure; one thread at a time.
#pragma once

#include "rdma/roce/requester.hpp"
#include "rdma/roce/responder.hpp"

namespace gnstor::rdma::roce {

class Connection {
  public:
    Connection(const RequesterOptions& requester, const ResponderOptions& responder, MemoryPort& port)
        : requester_(requester), responder_(responder, port) {}

    Result<void> post(const Request& request) { return requester_.post(request); }
    /// `packet`: decoded, with a good ICRC, for this queue pair, from this peer's address; the driver has
    /// checked that.
    void on_packet(TimeNs now, const Packet& packet);
    /// The next packet to send now; its payload refers to memory of either side, valid until the next
    /// call. `requests` false: only answers to the peer's requests.
    bool next_packet(TimeNs now, Packet& packet, bool requests = true);
    void on_time(TimeNs now);
    [[nodiscard]] TimeNs next_deadline() const noexcept;
    bool next_completion(Completion& completion) { return requester_.next_completion(completion); }
    /// The peer is gone, or the owner ends the connection.
    void flush();
    /// The peer's process has ended: fail as after too many timeouts.
    void give_up();
    /// Requester::probe().
    bool probe() { return requester_.probe(); }

    [[nodiscard]] bool failed() const noexcept { return requester_.failed() || responder_.failed(); }
    /// Reason: of the half that failed first; kFlushed after flush().
    [[nodiscard]] mlx5::Syndrome failure() const noexcept { return failure_; }
    [[nodiscard]] const Requester& requester() const noexcept { return requester_; }
    [[nodiscard]] const Responder& responder() const noexcept { return responder_; }

  private:
    void end_both();

    Requester requester_;
    Responder responder_;
    mlx5::Syndrome failure_ = mlx5::kSyndromeNone;
    bool requests_first_ = false;  ///< which half goes first next time
};

}  // namespace gnstor::rdma::roce
