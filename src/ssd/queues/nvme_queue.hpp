// nvme_queue.hpp: one NVMe queue pair between a host (the target offload) and a drive. NVMe Base 2.0, 3.3.1.
//
// Submission entries are 64 bytes, completions 16 with a phase bit; both rings lie in host memory as on PCIe.
// The host thread owns the submission tail and the completion head, the drive's thread owns the other two:
// single producer, single consumer, no locks. The data pointer of an entry is an unkeyed SGL data block whose
// address is a *host virtual address* that stays valid until the completion is reaped, just as a NIC's target
// offload rewrites keyed SGLs to bus addresses. The metadata pointer, which fabrics reserve, may hold the
// remote host's command id (host_command_id).
#pragma once

#include <gnstor/nvme/command.hpp>

#include <atomic>
#include <cstdint>
#include <vector>

namespace gnstor::ssd {

/// Priority classes of weighted round robin with urgent priority class (Base 2.0, 3.4.4.3).
enum class Priority : std::uint8_t { kUrgent = 0, kHigh = 1, kMedium = 2, kLow = 3 };

/// Flag in an entry's metadata pointer: bits 15:0 hold the command id that the remote host chose. The entry's
/// own command id is the offload's.
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
    /// The entry that the next submit() publishes, to be filled completely; null when `depth - 1` commands
    /// are outstanding. Fill it in place: a command that is built elsewhere, field by field, and then copied
    /// stalls on its own pending stores.
    [[nodiscard]] nvme::Command* next_entry();
    /// Publishes the entry that next_entry() returned.
    void submit();
    /// next_entry(), copy, submit(). False: no free entry.
    [[nodiscard]] bool submit(const nvme::Command& command);
    /// False: no new completion.
    [[nodiscard]] bool reap(nvme::Completion& completion);
    /// Prefetches the completion that reap() reads next, so that the cache misses of several queues overlap.
    void prefetch_completion() const { __builtin_prefetch(&cq_[cq_head_ & (depth_ - 1)]); }

    /// The command id in the completion that reap() would return. Consumes nothing; false: no completion.
    [[nodiscard]] bool peek_completion(std::uint16_t& command_id) const;

    // Drive side, one thread.
    [[nodiscard]] bool fetch(nvme::Command& command);
    /// Never fails: at most `depth - 1` commands are fetched and not completed. The phase bit is set here.
    void complete(const nvme::Completion& completion);
    /// Whether `fetch` would return a command; cheap.
    [[nodiscard]] bool has_work() const;
    /// The word that holds the host's tail: a drive that serves many queues prefetches and compares it.
    [[nodiscard]] const std::atomic<std::uint32_t>& tail() const { return sq_tail_; }
    /// Number of commands fetched; equal to the tail when the queue is empty.
    [[nodiscard]] std::uint32_t fetched() const { return sq_head_.load(std::memory_order_relaxed); }
    /// Prefetches entries that fetch() takes soon, up to `count`.
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
    /// Aligned to a cache line: one line moves from the host's cache to the drive's, not two halves.
    struct alignas(64) Entry {
        nvme::Command command;
    };
    std::vector<Entry> sq_;
    std::vector<nvme::Completion> cq_;
    alignas(64) std::atomic<std::uint32_t> sq_tail_{0};  // written by the host, released after the entry
    alignas(64) std::atomic<std::uint32_t> sq_head_{0};  // written by the drive, released after the copy
    alignas(64) std::uint32_t cq_head_ = 0;              // host's own
    alignas(64) std::uint32_t cq_tail_ = 0;              // drive's own
    std::uint32_t tail_seen_ = 0;  // drive's own: sq_tail_ as last read; read again once fetched up to
};

}  // namespace gnstor::ssd
