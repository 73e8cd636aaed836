// connection.hpp: both halves of a reliable connection as one queue pair: packets by kind to the half that
// they are for, answers and requests out in turn, and one end for both.
//
// An error of either half ends the other as a NIC does: unfinished requests are flushed, a receive that is
// being filled completes with an error, and posted receives are the driver's to flush. What a failed
// connection still sends is the NAK that tells the peer why. Pure; one thread at a time.
#pragma once

#include "rdma/roce/requester.hpp"
#include "rdma/roce/responder.hpp"

namespace gnstor::rdma::roce {

class Connection {
  public:
    Connection(const RequesterOptions& requester, const ResponderOptions& responder, MemoryPort& port)
        : requester_(requester), responder_(responder, port) {}

    Result<void> post(const Request& request) { return requester_.post(request); }
    /// A packet that decoded, with a good ICRC, for this queue pair, from this peer's address: the driver's
    /// checks.
    void on_packet(TimeNs now, const Packet& packet);
    /// The next packet to go out now; payload refers to memory of either side, good until the next call.
    /// `requests`: false: only answers to the peer's.
    bool next_packet(TimeNs now, Packet& packet, bool requests = true);
    void on_time(TimeNs now);
    [[nodiscard]] TimeNs next_deadline() const noexcept;
    bool next_completion(Completion& completion) { return requester_.next_completion(completion); }
    /// The peer is gone, or the owner wants no more.
    void flush();
    /// The peer's process has ended: fails as after too many timeouts.
    void give_up();
    /// Requester::probe().
    bool probe() { return requester_.probe(); }

    [[nodiscard]] bool failed() const noexcept { return requester_.failed() || responder_.failed(); }
    /// Why: of the half that failed first; kFlushed after flush().
    [[nodiscard]] mlx5::Syndrome failure() const noexcept { return failure_; }
    [[nodiscard]] const Requester& requester() const noexcept { return requester_; }
    [[nodiscard]] const Responder& responder() const noexcept { return responder_; }

  private:
    void end_both();

    Requester requester_;
    Responder responder_;
    mlx5::Syndrome failure_ = mlx5::kSyndromeNone;
    bool requests_first_ = false;  ///< whose turn it is
};

}  // namespace gnstor::rdma::roce
