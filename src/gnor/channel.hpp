// channel.hpp: the host's owner of a channel: its memory, queue pairs, pool and registrations.
//
// The host makes a channel, connects its queue pairs (the client layer: connection manager and Fabrics
// Connect), hands ref() to kernels, and stands by: registering memory, reading counters, and after an error
// reset, reclaim, reconnect. It is not in the I/O path.
//
// Threads: one host thread, and one more for grow_pool_if_asked. Calls marked "quiet" need lane memory to
// themselves: no lane may be in a call on this channel. With CPU lanes the host works on lane memory itself;
// with GPU lanes it takes a copy, works on that, and puts it back.
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
    std::uint32_t ssds = 1;    ///< slots of the array: one queue pair each; 1 .. 64
    std::uint64_t absent = 0;  ///< a bit a slot with no SSD to connect to: as if its queue pair had broken
    std::uint32_t depth = 32;  ///< commands in flight a queue pair; a power of two, 2 .. 1024
    std::uint64_t pool_bytes = 8ull << 20;  ///< registered pool; a multiple of 256 KiB
    std::uint64_t pool_bytes_max = 0;       ///< it may grow to this; 0: it does not (PoolOptions)
    std::array<std::uint32_t, kMaxPoolLevels> pool_levels = PoolOptions{}.levels;
    simt::LanesKind lanes = simt::LanesKind::kCpu;
    Sharing sharing = Sharing::kGrid;  ///< which lanes use it at once; views of other modes are refused
    rdma::RingUse use = rdma::RingUse::kLanes;  ///< channels of one use are spread over the NIC's pollers
    /// Debug: commands name only memory of the pool that was allocated and not freed (kNotAllocated), and
    /// what a command uses cannot be freed (kBufferInUse). Costs a search and two atomics a command.
    bool check_buffers = false;
    bool scatter_to_cqe = true;  ///< responses land in the completion: one trip less
    bool huge_pages = false;     ///< for the pool
};

/// Where everything lies in the NIC-visible block and in lane memory: pure arithmetic.
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

/// Memory that a channel of this depth takes besides its pool (whose bookkeeping, for all that it may grow
/// to, is 4 bytes and 1.1 bits a 4 KiB block, and 68 bytes a growth step):
///   NIC-visible, a queue pair: depth x (64 entry + 64 capsule + 16 receive + 16 response) + 256;
///   NIC-visible, shared: 64 x completions + 768, with completions = depth x ssds rounded up to a power of
///   two; lane memory: 1024 + ssds x (4 x depth + 240) + slots x 128 + slots / 4, with as many command slots
///   as completions, at least 64.
[[nodiscard]] constexpr std::size_t memory_bytes(std::uint32_t depth, std::uint32_t ssds);

class Channel {
  public:
    /// Lays the memory out, creates completion queues and a queue pair a slot (not connected), registers the
    /// pool. `nic` must outlive it.
    static Result<std::unique_ptr<Channel>> create(rdma::SoftNic& nic, const ChannelOptions& options);
    /// Destroys queue pairs, queues and registrations. No kernel may use the channel any more. Where a drive
    /// holds a command for longer than the NIC waits, the channel's memory stays mapped and registered.
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    /// For kernels: valid while this lives. Where the calling thread uses another GPU than the channel was
    /// made on, an empty one, whose calls say kWrongLanes (the reason is logged).
    [[nodiscard]] ChannelRef ref() const;
    /// The view for the lanes that it was opened for (ChannelOptions::sharing).
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

    /// Makes memory usable by lanes without copying; under a running kernel too. With GPU lanes it must be
    /// pinned host memory. Up to 16 regions; the place of one that was taken back is used again only when
    /// quiet.
    Result<void> register_buffer(void* base, std::size_t bytes);
    /// Takes it back; kBusy while commands name it, for drives may write there. Quiet.
    Result<void> unregister_buffer(void* base);

    /// Under a running kernel a snapshot that may be torn between words.
    Result<Counters> counters() const;
    /// The first refusal or error completion since creation (or clear_first_error).
    Result<std::optional<FirstError>> first_error() const;
    Result<void> clear_first_error();

    /// The map version that an SSD refused last as stale, or 0. Any thread, also under a running kernel.
    [[nodiscard]] nvme::MapVersion refused_map() const;
    /// Forgets it: waiting lanes say it again. Any thread.
    void clear_refused_map();

    /// Registers the pool's next growth step if lanes asked for it, and publishes it to them. Any one thread,
    /// also under a running kernel. Whether it grew; an Error says why it could not.
    Result<bool> grow_pool_if_asked();
    /// What is registered of the pool now. Any thread.
    [[nodiscard]] std::uint64_t pool_bytes() const;

    /// Polls until no command is in flight; kTimedOut names how many are. Quiet.
    Result<void> quiesce(simt::Deadline deadline);
    /// After an error or a quarantine: resets the queue pair, ends all commands on it (kQueueError to those
    /// who still hold a token), frees what was in quarantine. On return the NIC touches no buffer of theirs;
    /// the queue pair must be connected again. Quiet.
    Result<void> reclaim(std::uint32_t slot);
    /// After that, where it cannot be connected: lanes pass the queue pair by, as one that broke. Quiet.
    Result<void> give_up(std::uint32_t slot);
    /// Gives up the tokens that lanes left behind: their requests go on, their slots come back with the
    /// answers, and the tokens are stale. Returns how many commands that were. For kernels that ended without
    /// waiting for, polling or dropping what they sent. Quiet.
    Result<std::uint32_t> drop_tokens();
    /// Gives up the callbacks that kernels left behind: they never run, whatever comes. Requests that are
    /// answered give their slots back now, others go into quarantine until their answers come or reclaim().
    /// Returns how many callbacks that were. For kernels that ended with requests under way, whose functors
    /// (or what those point at) may be gone; a later kernel that knows them may run them instead, and so does
    /// quiesce() with CPU lanes. Quiet.
    Result<std::uint32_t> drop_callbacks();
    /// Gives back the pool buffers that ended kernels had allocated and did not free; those that a command in
    /// quarantine may still touch stay, until it ends and this is called again. Afterwards no address that
    /// alloc() gave before is anybody's. Quiet.
    struct LeftBuffers {
        std::uint32_t freed;
        std::uint32_t in_use;
    };
    Result<LeftBuffers> free_left_buffers();

    /// Commands in flight, those in quarantine included; free pool blocks. Quiet.
    struct Usage {
        std::uint32_t slots_taken;
        std::uint32_t commands_pending;
        std::uint32_t commands_with_tokens;     ///< answered or not, that some lane still has to ask for
        std::uint32_t requests_with_callbacks;  ///< answered or not, whose callbacks have not run
        std::uint32_t pool_blocks_free;
        std::uint32_t pool_blocks;     ///< of the pool as it is now
        std::uint64_t queues_pending;  ///< a bit a slot of the array that owes answers
        std::uint64_t queues_broken;   ///< likewise, that lanes pass by until reclaim()
    };
    Result<Usage> usage();
    /// Where the channel stands, a few lines of text for a report: who holds what, what is sent and
    /// unanswered, what the NIC was told. Any one thread. With GPU lanes also under a running kernel, torn
    /// between words; with CPU lanes quiet.
    Result<std::string> describe() const;

  private:
    class HostAccess;  // channel_access.hpp: lane memory, or a copy of it that is put back

    Channel(rdma::SoftNic& nic, const ChannelOptions& options, const PoolPlan& plan,
            const ChannelLayout& layout);
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

    rdma::SoftNic& nic_;
    ChannelOptions options_;
    PoolPlan plan_;
    ChannelLayout layout_;
    simt::PinnedMemory nic_memory_;
    simt::PinnedRange pool_;
    std::size_t pool_shared_bytes_ = 0;  ///< of it, from its beginning: what the NIC may be told of
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
    l.notes = take(at, sizeof(HostNotes));
    l.nic_bytes = take(at, 0);
    return l;
}

constexpr std::size_t memory_bytes(std::uint32_t depth, std::uint32_t ssds) {
    const ChannelLayout l = ChannelLayout::of(depth, ssds, PoolPlan{});
    return l.nic_bytes + l.lane_fixed;
}
static_assert(memory_bytes(32, 4) <= 50'000, "50 KB at 4 SSDs and depth 32, as DESIGN.md says");

}  // namespace gnstor::gnor
