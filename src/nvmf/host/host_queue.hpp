// host_queue.hpp: a host's queue pair driven by the CPU: an admin queue, or an I/O queue of tools and tests.
//
// Owns rings, capsules, receives and their registration; posts and polls with the device code of gnstor/rdma
// (a lone lane), so that host and kernels speak through the same lines. Lanes have their own queue pairs
// (gnor); they need only what HostController::io_queue gives.
//
// Invariants
//   * a capsule's memory is written again only after the send completion of the entry that carried it (the
//   poster's credit);
//   * there is a receive for every command that may be under way: never post more than `entries` unanswered.
// The same bound is the submission queue's flow control, so SQHD of the responses is not looked at. It tells
// a host that has more commands than the queue has entries how many were taken out; here a command keeps its
// place until it is answered, and a target has taken out what it answers. All `entries` may be under way, as
// Linux's host has them: the target was told of so many at Connect and has a receive for each.
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
    /// `entries`: commands under way at most, 2 .. 16384. `nic` outlives the queue.
    static Result<std::unique_ptr<HostQueue>> create(rdma::SoftNic& nic, std::uint32_t entries,
                                                     rdma::RingUse use = rdma::RingUse::kHost);
    /// Disconnects; on return the NIC touches none of its memory, or the NIC keeps the memory (and says so).
    ~HostQueue();
    HostQueue(const HostQueue&) = delete;
    HostQueue& operator=(const HostQueue&) = delete;

    /// The RDMA connection; returns the private data of the acceptance.
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
    HostQueue(rdma::SoftNic& nic, std::uint32_t entries, rdma::RingUse use);
    Result<void> open();

    rdma::SoftNic& nic_;
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
    std::vector<nvme::Completion> arrived_;  // taken from the NIC, not yet asked for
    std::size_t next_arrived_ = 0;
};

}  // namespace gnstor::nvmf
