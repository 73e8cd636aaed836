// acceptor.hpp: connection requests that came over the udp wire, and who answers them.
#pragma once

#include "rdma/nic/link.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gnstor::rdma::udp {

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
