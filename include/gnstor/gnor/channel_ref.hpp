// channel_ref.hpp: a channel, as a kernel takes it by value. CPU and GPU lanes; any lane of any block at
// once.
//
// Valid while the host's Channel (src/gnor/channel.hpp) lives. A channel is what lanes do I/O through: a
// queue pair to every drive, a pool of registered buffers, command slots, one completion queue.
#pragma once

#include <gnstor/gnor/async.hpp>

namespace gnstor {

using gnor::Callback;
using nvme::Status;
using simt::Deadline;

class ChannelRef {
  public:
    ChannelRef() = default;
    GN_HD
    explicit ChannelRef(gnor::ChannelState* state) : state_(state) {}

    /// Registered memory of the channel's pool, 4 KiB aligned, 1 byte up to its largest level (1 MiB, or the
    /// pool where that is smaller); null when there is none (`status`: kNoBuffer; the host was asked to let
    /// the pool grow, if it may) or no run can have that size (kBadArgument). With a group of several lanes
    /// they all call and share one buffer.
    template <class Group>
    GN_HD void* alloc(Group group, std::uint64_t bytes, Status* status = nullptr) const {
        auto found = Status::kSuccess;
        std::uint64_t address = 0;
        if (group.is_leader())
            address = reinterpret_cast<std::uint64_t>(gnor::pool_alloc(*state_, bytes, hint(group), found));
        // What the leader acquired with the run (the last holder's accesses) is ordered before every member's
        // use.
        group.sync();
        address = group.shfl(address, group.leader());
        found = group.shfl(found, group.leader());
        if (status != nullptr) *status = found;
        return reinterpret_cast<void*>(address);
    }
    /// The same, and waits until `deadline` for others to give memory back or the host to register more;
    /// kNoBuffer then. Not from a callback.
    template <class Group>
    GN_HD void* alloc(Group group, std::uint64_t bytes, Deadline deadline, Status* status = nullptr) const {
        std::uint32_t backoff = 0;
        for (;;) {
            auto found = Status::kSuccess;
            void* const buffer = alloc(group, bytes, &found);
            const bool over = group.is_leader() && deadline.passed();
            if (found != Status::kNoBuffer || group.shfl(over, group.leader())) {
                if (status != nullptr) *status = found;
                return buffer;
            }
            // Commands that end give pool buffers back.
            if (gnor::poll_trip(group, *state_) == 0) simt::pause(backoff);
        }
    }
    /// A buffer of its own for each member that `wants` one, of `bytes` bytes, the same for all; taken for
    /// all of them together, so that lanes do not race for the same words. All members call; the results are
    /// a member's own.
    template <class Group>
    GN_HD void* alloc_each(Group group, bool wants, std::uint64_t bytes, Status* status = nullptr) const {
        const std::uint32_t blocks = gnor::pool_blocks_for(*state_, bytes);
        auto found = blocks == 0 && wants ? Status::kBadArgument : Status::kSuccess;
        void* buffer = nullptr;
        if (blocks != 0) {
            const std::uint32_t first = gnor::take_pool_each(group, *state_, wants, blocks, hint(group));
            if (first != gnor::kNone) buffer = gnor::lend_run(*state_, first, blocks);
            if (wants && first == gnor::kNone) found = Status::kNoBuffer;
        }
        if (status != nullptr) *status = found;
        return buffer;
    }
    /// Gives it back; no command may be in flight on it. kBadArgument: not what alloc gave, or given back
    /// before. kBufferInUse: a command that timed out, broke or was dropped may still touch it; try again
    /// after its answer or reclaim() on the host.
    template <class Group>
    GN_HD Status free(Group group, void* buffer) const {
        auto status = Status::kSuccess;
        group.sync();  // the members are done with the buffer
        if (group.is_leader()) status = gnor::pool_free(*state_, buffer);
        return group.shfl(status, group.leader());
    }

    /// Waits for a request that was sent by read_async or write_async. The token is spent. kTimedOut: the
    /// buffer is still in use. All members call, each with a token of its own (a default one: none).
    template <class Group>
    GN_HD Status wait(Group group, const Token& token, Deadline deadline) const {
        return gnor::wait_for(group, *state_, token, deadline);
    }
    /// One lane: whether the request is done; then `status` is its result and the token is spent. Never
    /// waits.
    GN_HD
    bool poll(simt::Lane lane, const Token& token, Status& status) const {
        status = token.status;
        if (!token.in_flight() || token.head == gnor::kNone) return true;
        status = Status::kStaleToken;
        if (!gnor::is_current(*state_, token)) return true;
        gnor::poll_trip(simt::self(lane), *state_);
        const auto state = gnor::chain_state(*state_, token.head);
        if (state == gnor::ChainState::kRunning) return false;
        status = gnor::end_chain(*state_, token.head, Status::kQueueError);
        return true;
    }
    /// Gives a token up: the request goes on, its buffer stays in use until it ends, and nobody learns its
    /// result.
    GN_HD
    Status drop(const Token& token) const {
        if (!token.in_flight() || token.head == gnor::kNone) return Status::kSuccess;
        if (!gnor::is_current(*state_, token)) return Status::kStaleToken;
        gnor::abandon_chain(*state_, token.head);
        return Status::kSuccess;
    }
    /// One trip to the completion queue; runs callbacks that are due. Never waits. Not from a callback.
    template <class Group>
    GN_HD std::uint32_t poll(Group group) const {
        return gnor::poll_trip(group, *state_);
    }
    /// Whether [buffer, buffer + bytes) lies in registered memory.
    GN_HD
    bool is_registered(const void* buffer, std::uint64_t bytes) const {
        return gnor::find_keys(*state_, reinterpret_cast<std::uint64_t>(buffer), bytes).found;
    }
    /// Where a lane begins to look for slots and buffers: spreads lanes over the bitmaps.
    template <class Group>
    GN_HD static std::uint32_t hint(Group group) {
        return group.lane() + static_cast<std::uint32_t>(simt::now_ns() >> 6);
    }
    GN_HD
    gnor::ChannelState& state() const { return *state_; }

  private:
    gnor::ChannelState* state_ = nullptr;
};
static_assert(std::is_trivially_copyable_v<ChannelRef>, "kernels take it by value");

/// Several channels; warps are spread over them. `channels` lies in lane-visible memory.
struct ChannelSet {
    const ChannelRef* channels = nullptr;
    std::uint32_t count = 0;

    /// The channel of the lane's warp: the same for all lanes of a warp.
    GN_HD
    ChannelRef mine(simt::Lane lane) const { return channels[lane.warp_rank() % count]; }
    GN_HD
    ChannelRef operator[](std::uint32_t i) const { return channels[i]; }
};
static_assert(std::is_trivially_copyable_v<ChannelSet>, "kernels take it by value");

}  // namespace gnstor
