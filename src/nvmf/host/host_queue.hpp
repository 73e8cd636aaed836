// host_queue.hpp: a host's queue pair driven by the CPU: an admin queue, or an I/O queue of tools and tests.
//
// Owns rings, capsules, receives and their registration. Posts and polls with the device code of gnstor/rdma,
// as a single lane, so that host and kernels share one implementation. GPU lanes have queue pairs of their
// own (gnor); they need only what HostController::io_queue gives.
//
// Invariants
//   * a capsule's memory is written again only after the send completion of the entry that carried it (the
//     poster's credit);
//   * every outstanding command has a receive: never post more than `entries` unanswered commands.
// This limit also replaces the submission queue's flow control, so SQHD in responses is ignored. SQHD tells a
// host that may have more commands than entries how many were consumed; here a command keeps its entry until
// it is answered, and a target has consumed what it answers. All `entries` may be outstanding, as with
// Linux's host: the target learns their number at Connect and has a receive for each.
// One thread at a time.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/command.hpp>
#include <gnstor/rdma/poller.hpp>
#include <gnstor/rdma/poster.hpp>

#include "rdma/nic/nic.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gnstor::nvmf {

class HostQueue {
  public:
    /// `entries`: most outstanding commands, 2 .. 16384. `nic` outlives the queue.
    static Result<std::unique_ptr<HostQueue>> create(rdma::Nic& nic, std::uint32_t entries,
                                                     rdma::RingUse use = rdma::RingUse::kHost);
    /// Disconnects. On return the NIC does not access the queue's memory, or (logged) has taken it over.
    ~HostQueue();
    HostQueue(const HostQueue&) = delete;
    HostQueue& operator=(const HostQueue&) = delete;

    /// Makes the RDMA connection; returns the private data of the accept.
    Result<std::vector<std::byte>> connect(const std::string& peer_address, const std::string& service,
                                           std::span<const std::byte> private_data, std::uint32_t timeout_ms);
    void disconnect();

    enum class Posted : std::uint8_t { kYes, kFull, kBroken };
    /// Sends a capsule: `command`, then `data` (up to 4 KiB) behind it.
    Posted post(const nvme::Command& command, std::span<const std::byte> data = {});
    /// Sends any bytes (up to a capsule's size) as one message of 1 to 3 pieces, cut at the given offsets.
    Posted post_bytes(std::span<const std::byte> bytes, std::uint32_t first_cut = 0,
                      std::uint32_t second_cut = 0);

    /// Takes the next response, if one is there.
    bool poll(nvme::Completion& completion);
    /// Whether the queue pair is in error: responses may be missing.
    [[nodiscard]] bool broken() const;
    /// Key of the last response that came with an invalidation; 0: none.
    [[nodiscard]] std::uint32_t last_invalidated_key() const { return last_invalidated_; }

    [[nodiscard]] rdma::QpNumber qp() const { return qp_; }
    [[nodiscard]] std::uint32_t entries() const { return entries_; }

  private:
    struct Memory;
    HostQueue(rdma::Nic& nic, std::uint32_t entries, rdma::RingUse use);
    Result<void> open();

    rdma::Nic& nic_;
    const std::uint32_t entries_;
    const rdma::RingUse use_;
    std::unique_ptr<Memory> memory_;
    rdma::MemoryKeys keys_{};
    rdma::CqNumber send_cq_ = 0;
    rdma::CqNumber receive_cq_ = 0;
    rdma::QpNumber qp_ = 0;
    bool registered_ = false;
    bool receive_error_ = false;
    std::uint32_t last_invalidated_ = 0;
    rdma::SendQueueRef send_{};
    rdma::CompletionQueueRef completions_{};
    rdma::ReceiveQueueRef receive_{};
    std::vector<nvme::Completion> arrived_;  // polled from the NIC, not yet returned by poll()
    std::size_t next_arrived_ = 0;
};

}  // namespace gnstor::nvmf
