// driver.hpp: runs the state machines of roce/ as a wire: sockets, packets in and out, timers, connection
// management. One IP address, one reactor.
//
// Invariants
//   * a packet reaches a connection only with a good ICRC, for its queue pair, and from the address with
//     which the connection was made; all others are counted and dropped;
//   * connections send round robin, a few packets each; packets that the socket does not accept stay in
//     the packet buffers of one batch, and no more are taken from connections meanwhile: memory is
//     constant;
//   * memory of endpoints is touched while a packet is encoded or executed, never later.
// The reactor's thread owns everything except the queue of the answering thread and the waiters of
// connect(). The driver adds itself to its reactor, which wakes when a packet comes (Reactor::watch).
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>

#include "rdma/roce/icrc.hpp"
#include "rdma/wire/udp/acceptor.hpp"
#include "rdma/wire/udp/udp_wire.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gnstor::rdma::udp {

/// Sees every packet before the socket gets it, and every arrived packet with a good ICRC; for captures
/// and for tests of loss. The reactor's thread.
class Tap {
  public:
    virtual ~Tap() = default;
    /// False: the packet is dropped here, as if the network had lost it.
    virtual bool on_packet(bool sent, const roce::NetworkHeaders& headers,
                           std::span<const std::byte> udp_payload) = 0;
};

class Driver final : public Poller {
  public:
    /// Binds the address and starts. Errors: UdpWire::open. `reactor` outlives the driver.
    static Result<std::unique_ptr<Driver>> open(const UdpWireOptions& options, Reactor& reactor);
    /// Any thread but the reactor's. Links that are still up end without notice to their peers, as when a
    /// process is killed, and their endpoints are not called again; close them before.
    ~Driver() override;
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    /// Connects queue pair `qp` (2 to 2^24 - 1, not in use here) to the listener on `port` of `peer` (an
    /// IP address) and returns the private data of its answer. Any thread but the reactor's; waits at
    /// most `timeout_ms`. `link` is set on the reactor's thread, before the endpoint is first called; the
    /// link may have failed already (Endpoint::on_failed()) when this returns, so `link` must refer to a
    /// pointer that on_failed() clears. After an error neither `link` nor the endpoint is touched.
    /// kPermission: the peer refused, with its reason; kNotFound: no RoCE process at `peer`; kTimedOut;
    /// kInvalidArgument; kNoSpace.
    Result<std::vector<std::byte>> connect(QpNumber qp, Endpoint& endpoint, const std::string& peer,
                                           std::uint16_t port, std::span<const std::byte> private_data,
                                           const LinkOptions& options, std::uint32_t timeout_ms, Link*& link);

    /// Connection requests for `port` of the RDMA IP port space go to `acceptor`. kExists: the port has
    /// one already. Any thread.
    Result<void> listen(std::uint16_t port, Acceptor& acceptor);
    /// On return the acceptor is not being called and will not be: links that it accepted and that are
    /// not up yet have failed. Any thread but the reactor's, and not from within the acceptor.
    void unlisten(std::uint16_t port);

    [[nodiscard]] const std::string& address() const noexcept;
    [[nodiscard]] std::uint32_t mtu() const noexcept;
    /// Any thread.
    [[nodiscard]] UdpWireCounters counters() const;
    /// True: a raw socket shows the IP headers of arriving packets. False (no CAP_NET_RAW): their
    /// identification is assumed to be 0, as in packets from this driver. IPv6 has no such field.
    [[nodiscard]] bool sees_ip_headers() const noexcept;
    /// Links that exist, up or not; any thread but the reactor's.
    [[nodiscard]] std::uint32_t links();
    /// Null: no tap. Any thread but the reactor's; on return the previous tap is not being called.
    void set_tap(Tap* tap);

    std::uint32_t poll() override;

    struct Impl;

  private:
    explicit Driver(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::rdma::udp
