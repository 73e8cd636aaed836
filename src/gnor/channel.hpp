// channel.hpp: the host's owner of a channel: what lanes do I/O through, and what the host does to it between
// kernels.
//
// The host creates a channel, connects its queue pairs (the client layer: connection manager and Fabrics
// Connect) and hands ref() to kernels. Later it only registers memory, reads counters and, after an error,
// resets, reclaims and reconnects. It is not in the I/O path.
//
// Composed of ChannelMemory, ChannelPool, RegisteredRegions and ChannelQueues, which own its memory and what
// the NIC has of it. This class has the order in which they begin and end, and the calls that need lane
// memory to themselves.
//
// Threads: one host thread, and one more for grow_pool_if_asked. Calls marked "quiet": no lane may be in a
// call on this channel (LaneAccess).
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/gnor/channel_ref.hpp>

#include "gnor/channel_memory.hpp"
#include "gnor/channel_options.hpp"
#include "gnor/channel_pool.hpp"
#include "gnor/channel_queues.hpp"
#include "gnor/channel_report.hpp"
#include "gnor/left_behind.hpp"
#include "gnor/registered_regions.hpp"
#include "rdma/nic/nic.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace gnstor::gnor {

class Channel {
  public:
    using LeftBuffers = gnor::LeftBuffers;
    using Usage = ChannelUsage;

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
    [[nodiscard]] rdma::QpNumber queue_pair(std::uint32_t slot) const { return queues_.queue_pair(slot); }

    /// Sends one raw command (Fabrics Connect) with up to 4 KiB of data in the capsule, or with room for up
    /// to 4 KiB that the SSD returns, and waits for its response. The command id and, where there is data,
    /// the data pointer are filled in here. Quiet.
    Result<nvme::Completion> execute_from_host(std::uint32_t slot, nvme::Command command,
                                               std::span<const std::byte> in_capsule_data,
                                               std::uint32_t timeout_ms, std::span<std::byte> returned = {});

    /// Makes memory usable by lanes without copying. With GPU lanes it must be pinned host memory. Up to 16
    /// regions at a time. Allowed under a running kernel, except where it reuses the entry of an unregistered
    /// region (after 16 registrations): then quiet.
    Result<void> register_buffer(void* base, std::size_t bytes) { return regions_.add(base, bytes); }
    /// Ends the registration; kBusy while commands name the region, as drives may still write there. Quiet.
    Result<void> unregister_buffer(void* base);

    /// Under a running kernel no consistent snapshot: each word may be of another moment.
    Result<Counters> counters() const { return read_counters(memory_); }
    /// The first refusal or error completion since creation (or clear_first_error).
    Result<std::optional<FirstError>> first_error() const { return read_first_error(memory_); }
    Result<void> clear_first_error();

    /// The map version that an SSD refused last as stale, or 0. Any thread, also under a running kernel.
    [[nodiscard]] nvme::MapVersion refused_map() const;
    /// Clears it; lanes that still wait for a newer map set it again. Any thread.
    void clear_refused_map();

    /// Registers the pool's next growth step if lanes asked for it, and publishes it to them. Any one thread,
    /// also under a running kernel. Returns whether the pool grew; the Error says why it could not.
    Result<bool> grow_pool_if_asked() { return pool_.grow_if_asked(); }
    /// Bytes of the pool that are registered now. Any thread.
    [[nodiscard]] std::uint64_t pool_bytes() const { return pool_.bytes(); }

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
    Result<LeftBuffers> free_left_buffers();

    /// Commands in flight, those in quarantine included; free pool blocks. Quiet.
    Result<Usage> usage();
    /// The channel's state as a few lines of text, for a report: slots and buffers held, commands unanswered,
    /// doorbell records. Any one thread. With GPU lanes also under a running kernel (then no consistent
    /// snapshot); with CPU lanes quiet.
    Result<std::string> describe() const { return gnor::describe(memory_, pool_); }

  private:
    Channel(rdma::Nic& nic, const ChannelOptions& options, const PoolPlan& plan, const ChannelLayout& layout);
    Result<void> set_up();

    ChannelOptions options_;
    ChannelMemory memory_;  // before those that stand in it
    ChannelPool pool_;
    RegisteredRegions regions_;
    ChannelQueues queues_;
};

}  // namespace gnstor::gnor
