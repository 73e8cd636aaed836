// link.hpp: one reliable connection that carries packets, between a NIC's engine and the driver of a wire.
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

namespace gnstor::rdma {

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

}  // namespace gnstor::rdma
