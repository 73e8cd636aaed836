// nvme_queue.hpp: one NVMe queue pair between a host (the target offload) and a drive. NVMe Base 2.0, 3.3.1.
//
// Submission entries are 64 bytes, completions 16 with a phase bit; both rings lie in host memory as on PCIe.
// The host thread owns the submission tail and the completion head, the drive's thread owns the other two:
// single producer, single consumer, no locks. The data pointer of an entry is an unkeyed SGL data block whose
// address is a *host virtual address* that stays valid until the completion is reaped: what a NIC's offload
// does when it rewrites keyed SGLs to bus addresses.
#pragma once

#include <gnstor/nvme/command.hpp>

#include <atomic>
#include <cstdint>
#include <vector>

namespace gnstor::ssd {

/// Priority classes of weighted round robin with urgent priority class (Base 2.0, 3.4.4.3).
enum class Priority : std::uint8_t { kUrgent = 0, kHigh = 1, kMedium = 2, kLow = 3 };

class NvmeQueue {
  public:
    /// `depth` is a power of two of 2 .. 65536. `client`: commands that carry another client id are Access
    /// Denied. `privileged`: vendor admin commands are allowed (admin queues of the array's admin host).
    NvmeQueue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client, Priority priority,
              bool privileged);

    // Host side, one thread.
    /// False when `depth - 1` commands are outstanding in the ring.
    [[nodiscard]] bool submit(const nvme::Command& command);
    /// False when no new completion is there.
    [[nodiscard]] bool reap(nvme::Completion& completion);

    // Drive side, one thread.
    [[nodiscard]] bool fetch(nvme::Command& command);
    /// Never fails: at most `depth - 1` commands are fetched and not completed. The phase bit is set here.
    void complete(const nvme::Completion& completion);
    /// Whether `fetch` would return a command; cheap.
    [[nodiscard]] bool has_work() const;

    std::uint16_t id() const { return id_; }
    std::uint32_t depth() const { return depth_; }
    nvme::ClientId client() const { return client_; }
    Priority priority() const { return priority_; }
    bool privileged() const { return privileged_; }
    bool is_admin() const { return id_ == 0; }

  private:
    const std::uint16_t id_;
    const std::uint32_t depth_;
    const nvme::ClientId client_;
    const Priority priority_;
    const bool privileged_;
    std::vector<nvme::Command> sq_;
    std::vector<nvme::Completion> cq_;
    alignas(64) std::atomic<std::uint32_t> sq_tail_{0};  // written by the host, released after the entry
    alignas(64) std::atomic<std::uint32_t> sq_head_{
        0};                                  // written by the drive, released after the entry was copied
    alignas(64) std::uint32_t cq_head_ = 0;  // host's own
    alignas(64) std::uint32_t cq_tail_ = 0;  // drive's own
};

}  // namespace gnstor::ssd
