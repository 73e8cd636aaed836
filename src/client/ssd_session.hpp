// ssd_session.hpp: a client's association with the SSD of one slot: the admin connection, and the I/O queues of
// the client's channels.
//
// The periodic threads call keep_alive() and fill(), the client's host thread calls the rest. Each call keeps a
// reference to the association it found, so that reopen() does not destroy it under another thread.
#pragma once

#include <gnstor/client/client.hpp>
#include <gnstor/client/control_plane.hpp>

#include "gnor/channel.hpp"
#include "nvmf/host/host.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

namespace gnstor::client {

class SsdSession {
  public:
    /// Starts without an SSD and without an association: fill() names the SSD, reopen() connects to it.
    SsdSession(rdma::Nic& nic, std::uint32_t slot, const ClientIdentity& identity,
               const nvmf::HostId& host_id, std::uint32_t keep_alive_ms, std::uint32_t channels);

    /// Names the SSD that fills the slot. If it is another one than before, the association with that one is
    /// dropped, and true is returned; its queue pairs are the caller's to disconnect (if_lost()).
    bool fill(const SsdAddress& ssd);
    /// Connects the queue pair that `channel` has for this SSD as I/O queue `queue_id`: RDMA connection, then
    /// Fabrics Connect.
    Result<void> connect_queue(gnor::Channel& channel, std::uint16_t queue_id);
    Result<void> keep_alive();
    /// Calls `then` if the association is known to be lost, and blocks reopen() meanwhile. For the periodic
    /// threads.
    template <class Then>
    void if_lost(Then then) {
        const std::lock_guard lock(mutex_);
        if (host_ == nullptr || !host_->connected()) then();
    }
    /// Asks the SSD: false if the association is lost, even if no keep-alive has noticed yet.
    [[nodiscard]] bool alive();
    /// From its Identify Controller data (VWC).
    Result<bool> volatile_write_cache();
    Result<SsdCounts> counts();
    /// Sends the SSD a volume's floor (nvme/vendor.hpp, FLOOR); returns its completion with DW0.
    Result<nvme::Completion> tell_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor);
    [[nodiscard]] std::uint32_t slot() const { return slot_; }
    /// This slot's bit in words that have a bit per slot.
    [[nodiscard]] std::uint64_t bit() const { return 1ull << slot_; }
    /// nullopt: gnstord knows of no SSD in this slot.
    [[nodiscard]] std::optional<SsdAddress> ssd() const;
    /// Number of associations so far: what an SSD was told in an earlier one, the next one may not know.
    [[nodiscard]] std::uint64_t associations() const { return associations_.load(std::memory_order_relaxed); }
    /// The SSD's NQN, for messages; without an SSD it names the slot.
    [[nodiscard]] std::string name() const;
    /// Of its node's NIC; empty: there is no SSD.
    [[nodiscard]] std::string nic_address() const;
    /// Creates a new association: the first one, or after the old one was lost. All I/O queues must then be
    /// reset and reconnected, even those that look intact: the SSD is closing its side of the old ones.
    Result<void> reopen();
    /// The keys for the next reopen(). kInvalidArgument: they are malformed.
    Result<void> set_keys(const SsdKeys& keys);

  private:
    rdma::Nic& nic_;
    const std::uint32_t slot_;
    nvmf::HostOptions options_;  ///< for each association, but for the SSD's address
    [[nodiscard]] Result<std::shared_ptr<nvmf::HostController>> host() const;

    std::atomic<std::uint64_t> associations_{0};
    mutable std::mutex mutex_;  ///< guards the members below
    std::optional<SsdAddress> ssd_;
    std::shared_ptr<nvmf::HostController> host_;  ///< null before the first reopen() and after a failed one
};

}  // namespace gnstor::client
