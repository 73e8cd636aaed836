// ssd_session.hpp: a client's association with one SSD: the admin connection, and the I/O queues of its
// channels.
//
// keep_alive() comes from the proxy's threads, the rest from the client's host thread. Whoever calls holds on
// to the association that it found, so that reopen() takes it from nobody.
#pragma once

#include <gnstor/client/client.hpp>
#include <gnstor/client/control_plane.hpp>

#include "gnor/channel.hpp"
#include "nvmf/host/host.hpp"

#include <memory>
#include <mutex>

namespace gnstor::client {

class SsdSession {
  public:
    /// Without an association: reopen() makes one.
    SsdSession(rdma::SoftNic& nic, const SsdAddress& ssd, const ClientIdentity& identity,
               const nvmf::HostId& host_id, std::uint32_t keep_alive_ms, std::uint32_t channels);

    /// Connects the queue pair that `channel` has for this SSD as I/O queue `queue_id`: RDMA connection, then
    /// Fabrics Connect.
    Result<void> connect_queue(gnor::Channel& channel, std::uint16_t queue_id);
    Result<void> keep_alive();
    /// Calls `then` if the association is known to be lost; none is made anew meanwhile. The proxy's threads.
    template <class Then>
    void if_lost(Then then) {
        const std::lock_guard lock(mutex_);
        if (host_ == nullptr || !host_->connected()) then();
    }
    /// Asks the SSD: false where the association is lost, also if nobody has noticed yet.
    [[nodiscard]] bool alive();
    /// As its Identify Controller says (VWC).
    Result<bool> volatile_write_cache();
    Result<SsdCounts> counts();
    /// Tells the SSD a volume's floor (nvme/vendor.hpp, FLOOR): its answer, and DW0.
    Result<nvme::Completion> tell_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor);
    [[nodiscard]] const SsdAddress& ssd() const { return ssd_; }
    [[nodiscard]] std::uint64_t bit() const { return 1ull << ssd_.slot; }  ///< in words of a bit a slot
    /// A fresh association, the first or after the old one was lost; I/O queues must be reset and connected
    /// anew, even those that look well: the SSD's side of the old ones is going.
    Result<void> reopen();

  private:
    rdma::SoftNic& nic_;
    const SsdAddress ssd_;
    const nvmf::HostOptions options_;
    [[nodiscard]] Result<std::shared_ptr<nvmf::HostController>> host() const;

    mutable std::mutex mutex_;                    ///< guards the pointer
    std::shared_ptr<nvmf::HostController> host_;  ///< null before the first reopen() and from a failed one on
};

}  // namespace gnstor::client
