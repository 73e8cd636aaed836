// link.hpp: one reliable connection on the udp wire, between the NIC's engine above and the driver below.
//
// The engine implements Endpoint (a queue pair), the driver Link (packets, timers, connection
// management). Both are called on the wire's reactor thread alone. An endpoint may call its link from
// within any of its own functions except those of MemoryPort, which the transport calls while it
// processes a packet.
#pragma once

#include <gnstor/base/result.hpp>

#include "rdma/nic/nic.hpp"
#include "rdma/roce/transport.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gnstor::rdma::udp {

class Link;

/// A queue pair as the driver sees it.
class Endpoint : public roce::MemoryPort {
  public:
    /// The driver has accepted the peer's request. The peer may delay its next message, so until the link
    /// is up (Acceptor::on_link) or on_failed(), only link.close() may be called; it ends the link.
    virtual void on_accepted(Link& link) { (void)link; }
    /// A posted request ended; in the order of posting. All posted requests have completed, unfinished
    /// ones as flushed, before on_failed().
    virtual void on_completion(const roce::Completion& completion) = 0;
    /// All packets of a batch have been executed: messages passed to received() may be delivered now.
    virtual void on_batch() = 0;
    /// The connection failed, or the peer ended it. Called once; the link is destroyed after the call.
    virtual void on_failed(mlx5::Syndrome why) = 0;
};

/// A connection. Owned by the driver.
class Link {
  public:
    virtual ~Link() = default;
    /// kBusy: full(). The request's memory is in use until its completion.
    virtual Result<void> post(const roce::Request& request) = 0;
    [[nodiscard]] virtual bool full() const noexcept = 0;
    /// Ends the connection: the peer is notified, requests complete no more, the endpoint is not called
    /// again. The link is destroyed after the call.
    virtual void close() = 0;
};

struct LinkOptions {
    std::uint32_t depth = 64;  ///< requests in progress
    std::uint32_t reads_max = 4;
};

/// A connection request of a peer, to be answered by its Acceptor.
struct Arrival {
    std::string peer;  ///< its IP address
    std::span<const std::byte> private_data;
};
struct ArrivalReply {
    bool accept = false;
    std::uint16_t reject_reason = 0;  ///< of the connection manager (28: the consumer's, in private_data)
    std::vector<std::byte> private_data;
    QpNumber qp = 0;
    Endpoint* endpoint = nullptr;  ///< lives until on_failed() or Link::close()
    LinkOptions options;
};
class Acceptor {
  public:
    virtual ~Acceptor() = default;
    /// Runs in a thread of the driver's, not a reactor's; may block for a bounded time.
    virtual ArrivalReply on_arrival(const Arrival& arrival) = 0;
    /// The accepted connection is up; on the reactor's thread. Otherwise Endpoint::on_failed() is called.
    virtual void on_link(QpNumber qp, Link& link) = 0;
};

}  // namespace gnstor::rdma::udp
