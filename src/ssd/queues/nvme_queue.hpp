// nvme_queue.hpp: one NVMe queue pair between a host (the target offload) and a drive. NVMe Base 2.0, 3.3.1.
//
// Submission entries are 64 bytes, completions 16 with a phase bit; both rings lie in host memory as on PCIe.
// The host thread owns the submission tail and the completion head, the drive's thread owns the other two:
// single producer, single consumer, no locks. The data pointer of an entry is an unkeyed SGL data block whose
// address is a *host virtual address* that stays valid until the completion is reaped: what a NIC's offload
// does when it rewrites keyed SGLs to bus addresses. Its metadata pointer, which fabrics reserve, may hold
// the command id of the host at the other end (host_command_id).
#pragma once

#include <gnstor/nvme/command.hpp>

#include <atomic>
#include <cstdint>
#include <vector>

namespace gnstor::ssd {

/// Priority classes of weighted round robin with urgent priority class (Base 2.0, 3.4.4.3).
enum class Priority : std::uint8_t { kUrgent = 0, kHigh = 1, kMedium = 2, kLow = 3 };

/// In the metadata pointer of an entry: bits 15:0 are the id that the host gave the command. The entry's own
/// is the offload's.
inline constexpr std::uint64_t kHasHostCommandId = 1ull << 63;
[[nodiscard]] constexpr std::uint16_t host_command_id(const nvme::Command& command) {
    return (command.metadata & kHasHostCommandId) != 0 ? static_cast<std::uint16_t>(command.metadata)
                                                       : command.command_id;
}

class NvmeQueue {
  public:
    /// `depth` is a power of two of 2 .. 65536. `client`: commands that carry another client id are Access
    /// Denied. `privileged`: vendor admin commands are allowed (admin queues of the array's admin host).
    NvmeQueue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client, Priority priority,
              bool privileged);

    // Host side, one thread.
    /// The entry that the next submit() publishes, to be filled whole; null when `depth - 1` commands are
    /// outstanding in the ring. Filled where it lies: a command that is built elsewhere, field by field, and
    /// copied at once waits for its own stores.
    [[nodiscard]] nvme::Command* next_entry();
    /// After next_entry().
    void submit();
    /// Both. False when there is no entry.
    [[nodiscard]] bool submit(const nvme::Command& command);
    /// False when no new completion is there.
    [[nodiscard]] bool reap(nvme::Completion& completion);
    /// A hint: reap() is called soon. Lines that the drive has written come across while others do.
    void prefetch_completion() const { __builtin_prefetch(&cq_[cq_head_ & (depth_ - 1)]); }

    /// The id of the command that reap() would say has ended, if there is one. A hint: nothing is consumed.
    [[nodiscard]] bool peek_completion(std::uint16_t& command_id) const;

    // Drive side, one thread.
    [[nodiscard]] bool fetch(nvme::Command& command);
    /// Never fails: at most `depth - 1` commands are fetched and not completed. The phase bit is set here.
    void complete(const nvme::Completion& completion);
    /// Whether `fetch` would return a command; cheap.
    [[nodiscard]] bool has_work() const;
    /// What a drive that goes round many queues needs of each: where the host writes the tail.
    [[nodiscard]] const std::atomic<std::uint32_t>& tail() const { return sq_tail_; }
    /// How many were fetched: what the tail is, where none is left.
    [[nodiscard]] std::uint32_t fetched() const { return sq_head_.load(std::memory_order_relaxed); }
    /// A hint: fetch() is called soon, for `count` commands.
    void prefetch_commands(std::uint32_t count) const {
        const std::uint32_t head = fetched();
        for (std::uint32_t i = 0; i < (count < kAhead ? count : kAhead); ++i)
            __builtin_prefetch(&sq_[(head + i) & (depth_ - 1)]);
    }

    std::uint16_t id() const { return id_; }
    std::uint32_t depth() const { return depth_; }
    nvme::ClientId client() const { return client_; }
    Priority priority() const { return priority_; }
    bool privileged() const { return privileged_; }
    bool is_admin() const { return id_ == 0; }

  private:
    static constexpr std::uint32_t kAhead = 4;

    const std::uint16_t id_;
    const std::uint32_t depth_;
    const nvme::ClientId client_;
    const Priority priority_;
    const bool privileged_;
    /// One line from the host's cache to the drive's, not two halves.
    struct alignas(64) Entry {
        nvme::Command command;
    };
    std::vector<Entry> sq_;
    std::vector<nvme::Completion> cq_;
    alignas(64) std::atomic<std::uint32_t> sq_tail_{0};  // written by the host, released after the entry
    alignas(64) std::atomic<std::uint32_t> sq_head_{
        0};                                  // written by the drive, released after the entry was copied
    alignas(64) std::uint32_t cq_head_ = 0;  // host's own
    alignas(64) std::uint32_t cq_tail_ = 0;  // drive's own, as the next
    std::uint32_t tail_seen_ = 0;            // of sq_tail_: looked at again only when all below was fetched
};

}  // namespace gnstor::ssd
