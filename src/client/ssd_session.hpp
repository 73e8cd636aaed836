// ssd_session.hpp: a client's association with one SSD: the admin connection, and the I/O queues of its
// channels.
//
// keep_alive() comes from the proxy's thread, connect_queue() and reconnect from the client's host thread;
// HostController serializes them.
#pragma once

#include <gnstor/client/control_plane.hpp>

#include "gnor/channel.hpp"
#include "nvmf/host.hpp"

#include <memory>

namespace gnstor::client {

class SsdSession {
  public:
    static Result<std::unique_ptr<SsdSession>> open(rdma::SoftNic& nic, const SsdAddress& ssd,
                                                    const ClientIdentity& identity,
                                                    const nvmf::HostId& host_id, std::uint32_t keep_alive_ms,
                                                    std::uint32_t channels);

    /// Connects the queue pair that `channel` has for this SSD as I/O queue `queue_id`: RDMA connection, then
    /// Fabrics Connect.
    Result<void> connect_queue(gnor::Channel& channel, std::uint16_t queue_id);
    Result<void> keep_alive() { return host_->keep_alive(); }
    [[nodiscard]] bool connected() const { return host_->connected(); }
    [[nodiscard]] const SsdAddress& ssd() const { return ssd_; }
    /// A fresh association after the old one was lost; I/O queues must be connected anew.
    Result<void> reopen();

  private:
    SsdSession(rdma::SoftNic& nic, SsdAddress ssd, nvmf::HostOptions options)
        : nic_(nic), ssd_(std::move(ssd)), options_(std::move(options)) {}

    rdma::SoftNic& nic_;
    const SsdAddress ssd_;
    const nvmf::HostOptions options_;
    std::unique_ptr<nvmf::HostController> host_;
};

}  // namespace gnstor::client
