// link.hpp: one reliable connection on the udp wire, between the NIC's engine above and the driver below.
//
// The engine implements Endpoint (a queue pair), the driver Link (packets, timers, connection management).
// Both are called on the wire's reactor thread alone, and an endpoint may call its link from within any of
// its own functions but those of MemoryPort, which the transport calls in the middle of a packet.
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
    /// The peer is told that its connection is accepted, and may keep the answer to itself: until the link is
    /// up (Acceptor::on_link) or on_failed(), link.close() ends it, and is all that may be called.
    virtual void on_accepted(Link& link) { (void)link; }
    /// A posted request ended; in the order of posting. After on_failed() none follows: what was posted and
    /// not finished has completed as flushed before it.
    virtual void on_completion(const roce::Completion& completion) = 0;
    /// Packets that had come have been executed: messages that were received() may be handed on now.
    virtual void on_batch() = 0;
    /// The connection failed, or the peer ended it. Once; the link is gone after the call.
    virtual void on_failed(mlx5::Syndrome why) = 0;
};

/// A connection that is up. Owned by the driver.
class Link {
  public:
    virtual ~Link() = default;
    /// kBusy: full(). Its memory is used until its completion.
    virtual Result<void> post(const roce::Request& request) = 0;
    [[nodiscard]] virtual bool full() const noexcept = 0;
    /// Ends it from this side: the peer is told, nothing completes any more, the endpoint is not called
    /// again. The link is gone after the call.
    virtual void close() = 0;
};

struct LinkOptions {
    std::uint32_t depth = 64;  ///< requests under way
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
    /// In a thread of the driver's that is no reactor's; may block for a bounded time.
    virtual ArrivalReply on_arrival(const Arrival& arrival) = 0;
    /// The connection that was accepted is up; the reactor's thread. If it does not come up, on_failed().
    virtual void on_link(QpNumber qp, Link& link) = 0;
};

}  // namespace gnstor::rdma::udp
