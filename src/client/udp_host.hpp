// udp_host.hpp: the NIC of a host process on the udp wire: its address, its thread, its wire.
//
// One per process that reaches SSDs of other processes or machines: a client, or gnstord. Opened and closed
// by one thread; rdma/nic/nic.hpp gives the threading rules of the NIC.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>

#include "rdma/wire/loop/soft_nic.hpp"
#include "rdma/wire/udp/udp_wire.hpp"

#include <memory>
#include <string>

namespace gnstor::client {

/// The source address of this machine for packets to `peer`. kNotFound: no route to it.
Result<std::string> local_address_for(const std::string& peer);

class UdpHost {
  public:
    /// `address`: an address of this machine; empty: the source address of the route to `peer`. If that is
    /// the peer's own address or a loopback one, a free one of 127.0.0.0/8 is chosen, because two NICs cannot
    /// share an address.
    static Result<std::unique_ptr<UdpHost>> open(const std::string& address, const std::string& peer);
    ~UdpHost();
    UdpHost(const UdpHost&) = delete;
    UdpHost& operator=(const UdpHost&) = delete;

    [[nodiscard]] rdma::SoftNic& nic() { return *nic_; }
    [[nodiscard]] const rdma::UdpWire& wire() const { return *wire_; }
    [[nodiscard]] const Reactor& reactor() const { return *reactor_; }
    [[nodiscard]] const std::string& address() const { return wire_->address(); }

  private:
    UdpHost() = default;
    Result<void> bind(const std::string& address);
    Result<void> bind_on_loopback();

    std::unique_ptr<Reactor> reactor_;
    std::unique_ptr<rdma::UdpWire> wire_;
    std::unique_ptr<rdma::SoftNic> nic_;
};

}  // namespace gnstor::client
