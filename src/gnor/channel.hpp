// channel.hpp: the host's owner of a channel: its memory, queue pairs, pool and registrations.
//
// The host creates a channel, connects its queue pairs (the client layer: connection manager and Fabrics
// Connect) and hands ref() to kernels. Later it only registers memory, reads counters and, after an error,
// resets, reclaims and reconnects. It is not in the I/O path.
//
// Threads: one host thread, and one more for grow_pool_if_asked. Calls marked "quiet" need lane memory to
// themselves: no lane may be in a call on this channel. With CPU lanes the host works on lane memory
// directly; with GPU lanes on a copy that it writes back.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/gnor/channel_ref.hpp>
#include <gnstor/simt/device_memory.hpp>
#include <gnstor/simt/pinned_memory.hpp>
#include <gnstor/simt/pinned_range.hpp>

#include "gnor/pool_plan.hpp"
#include "rdma/nic/nic.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace gnstor::gnor {

struct ChannelOptions {
    std::uint32_t ssds = 1;                 ///< slots of the array: one queue pair each; 1 .. 64
    std::uint64_t absent = 0;               ///< bit per slot without an SSD: its queue pair counts as broken
    std::uint32_t depth = 32;               ///< commands in flight per queue pair; a power of two, 2 .. 1024
    std::uint64_t pool_bytes = 8ull << 20;  ///< registered pool; a multiple of 256 KiB
    std::uint64_t pool_bytes_max = 0;       ///< the pool may grow to this; 0: no growth (PoolOptions)
    std::array<std::uint32_t, kMaxPoolLevels> pool_levels = PoolOptions{}.levels;
    simt::LanesKind lanes = simt::LanesKind::kCpu;
    Sharing sharing = Sharing::kGrid;           ///< which lanes share it; views of other modes are refused
    rdma::RingUse use = rdma::RingUse::kLanes;  ///< channels of one use are spread over the NIC's pollers
    /// Debug checks: commands on pool memory that is not allocated are refused (kNotAllocated), and memory
    /// that a command uses cannot be freed (kBufferInUse). Costs a search and two atomics per command.
    bool check_buffers = false;
    bool scatter_to_cqe = true;  ///< responses land in the completion: one memory access less
    bool huge_pages = false;     ///< for the pool
};

/// Offsets of everything in the NIC-visible block and in lane memory: pure arithmetic.
struct ChannelLayout {
    std::uint32_t ssds, depth, command_slots, slot_bits, completion_entries;
    // Lane memory.
    std::size_t queues, ready_marks, receives, slots, free_words, ready_words, lane_fixed, pool_steps,
        pool_words, pool_length, lane_bytes;
    // NIC-visible memory.
    std::size_t queue_stride, send_ring, capsules, receive_ring, responses, records, bell, send_completion,
        ring, consumer_record, regions, pool_table, notes, nic_bytes;

    static constexpr ChannelLayout of(std::uint32_t depth, std::uint32_t ssds, const PoolPlan& pool);
};

/// Bytes that a channel of this depth takes besides its pool. (The pool's bookkeeping, for its full size, is
/// 4 bytes and 1.1 bits per 4 KiB block, and 68 bytes per growth step.)
///   NIC-visible, per queue pair: depth x (64 entry + 64 capsule + 16 receive + 16 response) + 256;
///   NIC-visible, shared: 64 x completions + 768, with completions = depth x ssds rounded up to a power of
///   two;
///   lane memory: 1024 + ssds x (4 x depth + 240) + slots x 128 + slots / 4, with as many command slots as
///   completions, at least 64.
[[nodiscard]] constexpr std::size_t memory_bytes(std::uint32_t depth, std::uint32_t ssds);

class Channel {
  public:
    /// Lays the memory out, creates completion queues and one queue pair per slot (not connected), registers
    /// the pool. `nic` must outlive the channel.
    static Result<std::unique_ptr<Channel>> create(rdma::Nic& nic, const ChannelOptions& options);
    /// Destroys queue pairs, queues and registrations. No kernel may use the channel any more. Where a drive
    /// holds a command for longer than the NIC waits, the channel's memory stays mapped and registered.
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    /// The view that kernels take; valid while this Channel lives. If the calling thread uses another GPU
    /// than the channel's, the view is empty: its calls return kWrongLanes (the reason is logged).
    [[nodiscard]] ChannelRef ref() const;
    /// The view for the sharing mode that the channel was opened with (ChannelOptions::sharing).
    template <Sharing kMode>
    [[nodiscard]] BasicChannelRef<kMode> ref() const {
        return ref().as<kMode>();
    }
    [[nodiscard]] const ChannelOptions& options() const { return options_; }
    /// The queue pair of a slot of the array, for the connection manager.
    [[nodiscard]] rdma::QpNumber queue_pair(std::uint32_t slot) const { return queue_pairs_[slot]; }

    /// Sends one raw command (Fabrics Connect) with up to 4 KiB of data in the capsule, and waits for its
    /// response. The command id and, where there is data, the data pointer are filled in here. Quiet.
    Result<nvme::Completion> execute_from_host(std::uint32_t slot, nvme::Command command,
                                               std::span<const std::byte> in_capsule_data,
                                               std::uint32_t timeout_ms);

    /// Makes memory usable by lanes without copying. With GPU lanes it must be pinned host memory. Up to 16
    /// regions at a time. Allowed under a running kernel, except where it reuses the entry of an unregistered
    /// region (after 16 registrations): then quiet.
    Result<void> register_buffer(void* base, std::size_t bytes);
    /// Ends the registration; kBusy while commands name the region, as drives may still write there. Quiet.
    Result<void> unregister_buffer(void* base);

    /// Under a running kernel no consistent snapshot: each word may be of another moment.
    Result<Counters> counters() const;
    /// The first refusal or error completion since creation (or clear_first_error).
    Result<std::optional<FirstError>> first_error() const;
    Result<void> clear_first_error();

    /// The map version that an SSD refused last as stale, or 0. Any thread, also under a running kernel.
    [[nodiscard]] nvme::MapVersion refused_map() const;
    /// Clears it; lanes that still wait for a newer map set it again. Any thread.
    void clear_refused_map();

    /// Registers the pool's next growth step if lanes asked for it, and publishes it to them. Any one thread,
    /// also under a running kernel. Returns whether the pool grew; the Error says why it could not.
    Result<bool> grow_pool_if_asked();
    /// Bytes of the pool that are registered now. Any thread.
    [[nodiscard]] std::uint64_t pool_bytes() const;

    /// Polls until no command is in flight; kTimedOut says how many still are. Quiet.
    Result<void> quiesce(simt::Deadline deadline);
    /// After an error or with commands in quarantine: resets the queue pair, ends all commands on it (holders
    /// of tokens get kQueueError), frees its slots and buffers in quarantine. On return the NIC touches none
    /// of their buffers; the queue pair must be connected again. Quiet.
    Result<void> reclaim(std::uint32_t slot);
    /// After reclaim(), if the queue pair cannot be connected: marks it broken, so that lanes do not use it.
    /// Quiet.
    Result<void> give_up(std::uint32_t slot);
    /// For kernels that ended without waiting for, polling or dropping their tokens: drops these tokens,
    /// which become stale. The requests continue, and their answers free the slots. Returns the number of
    /// their commands. Quiet.
    Result<std::uint32_t> drop_tokens();
    /// For kernels that ended with requests in flight, whose functors (or what these point to) may be gone:
    /// drops the callbacks, which then never run. Slots of answered requests are freed now, others go into
    /// quarantine until their answers come or reclaim(). Returns the number of callbacks. Instead, a later
    /// kernel that knows the functors may run them, and so does quiesce() with CPU lanes. Quiet.
    Result<std::uint32_t> drop_callbacks();
    /// Frees the pool buffers that ended kernels allocated and did not free. A buffer that a command in
    /// quarantine may still touch is kept: call again when that command has ended. Afterwards all addresses
    /// that alloc() returned before are invalid. Quiet.
    struct LeftBuffers {
        std::uint32_t freed;
        std::uint32_t in_use;
    };
    Result<LeftBuffers> free_left_buffers();

    /// Commands in flight, those in quarantine included; free pool blocks. Quiet.
    struct Usage {
        std::uint32_t slots_taken;
        std::uint32_t commands_pending;
        std::uint32_t commands_with_tokens;     ///< answered or not, whose token a lane still holds
        std::uint32_t requests_with_callbacks;  ///< answered or not, whose callbacks have not run
        std::uint32_t pool_blocks_free;
        std::uint32_t pool_blocks;     ///< registered now
        std::uint64_t queues_pending;  ///< bit per slot of the array with unanswered commands
        std::uint64_t queues_broken;   ///< bit per slot whose queue pair lanes do not use until reclaim()
    };
    Result<Usage> usage();
    /// The channel's state as a few lines of text, for a report: slots and buffers held, commands unanswered,
    /// doorbell records. Any one thread. With GPU lanes also under a running kernel (then no consistent
    /// snapshot); with CPU lanes quiet.
    Result<std::string> describe() const;

  private:
    class HostAccess;  // channel_memory.hpp: lane memory, or a copy that is written back

    Channel(rdma::Nic& nic, const ChannelOptions& options, const PoolPlan& plan, const ChannelLayout& layout);
    Result<void> set_up();
    Result<void> create_queue(std::uint32_t slot, ChannelState& state);
    void fill_state(ChannelState& state);
    Result<void> extend_pool();
    void fill_pool_state(ChannelState& state);
    void deregister_pool();
    std::uint32_t count_free_blocks(ChannelState& state) const;
    PoolTable* pool_table() const {
        return reinterpret_cast<PoolTable*>(nic_memory_.data() + layout_.pool_table);
    }
    std::byte* queue_memory(std::uint32_t slot) const {
        return nic_memory_.data() + slot * layout_.queue_stride;
    }
    Result<std::uint32_t> count_commands_in(const Region& region);
    Result<void> write_cached_region(std::uint32_t place, const Region& region);
    void point_receives_at(ChannelState& image, std::byte* base) const;

    rdma::Nic& nic_;
    ChannelOptions options_;
    PoolPlan plan_;
    ChannelLayout layout_;
    simt::PinnedMemory nic_memory_;
    simt::PinnedRange pool_;
    std::size_t pool_shared_bytes_ = 0;  ///< length of its first part, shared with the node
    simt::DeviceMemory lane_memory_;
    simt::DeviceMemory shadow_;  ///< GPU lanes: host copy of lane memory
    rdma::MemoryKeys queue_keys_{};
    bool queues_registered_ = false;
    std::vector<rdma::CqNumber> completion_queues_;
    std::vector<rdma::QpNumber> queue_pairs_;
    std::vector<std::uint32_t> free_regions_;
};

// ---- bodies of the arithmetic

constexpr ChannelLayout ChannelLayout::of(std::uint32_t depth, std::uint32_t ssds, const PoolPlan& pool) {
    ChannelLayout l{};
    l.ssds = ssds;
    l.depth = depth;
    l.command_slots = 64;
    l.slot_bits = 6;
    for (; l.command_slots < depth * ssds; l.command_slots <<= 1) ++l.slot_bits;
    l.completion_entries = 1;
    while (l.completion_entries < depth * ssds) l.completion_entries <<= 1;
    const auto take = [](std::size_t& at, std::size_t bytes, std::size_t grain = 64) {
        const std::size_t here = (at + grain - 1) / grain * grain;
        at = here + bytes;
        return here;
    };
    std::size_t at = sizeof(ChannelState);
    l.queues = take(at, sizeof(QueueLane) * ssds);
    l.ready_marks = take(at, std::size_t{4} * ssds * depth);
    l.receives = take(at, sizeof(rdma::ReceiveQueueRef) * ssds);
    l.slots = take(at, sizeof(CommandSlot) * l.command_slots, alignof(CommandSlot));
    l.free_words = take(at, l.command_slots / 8);
    l.ready_words = take(at, l.command_slots / 8);
    l.lane_fixed = at;
    l.pool_steps = take(at, sizeof(PoolStep) * pool.steps_max);
    l.pool_words = take(at, std::size_t{8} * pool.words);
    l.pool_length = take(at, std::size_t{4} * pool.blocks);
    l.lane_bytes = take(at, 0);
    at = 0;
    l.send_ring = take(at, std::size_t{64} * depth);
    l.capsules = take(at, std::size_t{64} * depth);
    l.receive_ring = take(at, std::size_t{16} * depth);
    l.responses = take(at, std::size_t{kResponseBytes} * depth);
    l.records = take(at, 64);
    l.bell = take(at, 64);
    l.send_completion = take(at, 64);
    l.queue_stride = take(at, 0);
    at = l.queue_stride * ssds;
    l.ring = take(at, std::size_t{64} * l.completion_entries);
    l.consumer_record = take(at, 64);
    l.regions = take(at, sizeof(RegionTable));
    l.pool_table = take(at, sizeof(PoolTable));
    l.notes = take(at, sizeof(HostMailbox));
    l.nic_bytes = take(at, 0);
    return l;
}

constexpr std::size_t memory_bytes(std::uint32_t depth, std::uint32_t ssds) {
    const ChannelLayout l = ChannelLayout::of(depth, ssds, PoolPlan{});
    return l.nic_bytes + l.lane_fixed;
}
static_assert(memory_bytes(32, 4) <= 50'000, "50 KB at 4 SSDs and depth 32, as DESIGN.md says");

}  // namespace gnstor::gnor
