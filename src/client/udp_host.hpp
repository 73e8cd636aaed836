// udp_host.hpp: the NIC of a host process on the udp wire: its address, its thread, its wire.
//
// One a process that reaches SSDs of other processes or machines: a client, or gnstord. Opening and closing
// from one thread; the NIC is used as rdma/nic/nic.hpp says.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>

#include "rdma/nic/nic.hpp"
#include "rdma/wire/udp/udp_wire.hpp"

#include <memory>
#include <string>

namespace gnstor::client {

/// The address of this machine that packets to `peer` leave from. kNotFound: no route there.
Result<std::string> local_address_for(const std::string& peer);

class UdpHost {
  public:
    /// `address`: of this machine; empty: the one that the route to `peer` leaves from. Where that is the
    /// peer's own, or of the loopback, a free one of 127.0.0.0/8: two NICs cannot share an address.
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
