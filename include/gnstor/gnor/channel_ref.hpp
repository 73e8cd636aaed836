// channel_ref.hpp: a channel, as a kernel takes it by value. CPU and GPU lanes.
//
// Valid while the host's Channel (src/gnor/channel.hpp) lives. A channel is what lanes do I/O through: a
// queue pair to every drive, a pool of registered buffers, command slots, one completion queue.
//
// The view's type says which lanes use the channel at once (Sharing). ChannelRef: any lane of any block.
// BasicChannelRef<Sharing::kBlock>, <Sharing::kLane>: fewer and cheaper atomics, for channels that were
// opened so (ChannelOptions::sharing); a channel that was opened for another mode answers kWrongSharing and
// does nothing.
#pragma once

#include <gnstor/gnor/async.hpp>
#include <gnstor/simt/launch.hpp>

namespace gnstor {

using nvme::Status;
using simt::Deadline;

template <Sharing kMode, class RunsCallbacks = gnor::AnyCallback>
class BasicChannelRef {
  public:
    using Runs = RunsCallbacks;
    using State = gnor::StateFor<kMode, Runs>;
    static constexpr Sharing kSharing = kMode;

    BasicChannelRef() = default;
    GN_HD
    BasicChannelRef(gnor::ChannelState* state, simt::LanesKind lanes)
        : state_(static_cast<State*>(state)), lanes_(lanes) {}
    /// An empty view, whose calls all return `why`.
    GN_HD
    static BasicChannelRef none(Status why) {
        BasicChannelRef ref;
        ref.without_ = why;
        return ref;
    }

    /// kWrongSharing: the channel was opened for another sharing mode than this view's, or the view is empty
    /// (a ChannelSet without a channel for the lane). kWrongLanes: a channel for CPU lanes used on a GPU, or
    /// the other way round: its memory is not accessed. Lanes cannot tell whether it is for this GPU: the
    /// host checks that when the view is taken (Channel::ref, Client::channels).
    GN_HD
    Status usable() const {
        if (state_ == nullptr) return without_;
        if (lanes_ != simt::these_lanes()) return Status::kWrongLanes;
        return state_->sharing == kMode ? Status::kSuccess : Status::kWrongSharing;
    }

    /// As usable(), without the check of the sharing mode: does not access the channel's memory.
    GN_HD
    bool is_here() const { return state_ != nullptr && lanes_ == simt::these_lanes(); }

    /// Allocates registered memory of the channel's pool, 4 KiB aligned, 1 byte up to its largest level (1
    /// MiB, or the pool where that is smaller). Null: none is free (`status`: kNoBuffer; the host was asked
    /// to grow the pool, if it may) or no run can have that size (kBadArgument). All members of the group
    /// call and share one buffer.
    template <class Group>
    [[nodiscard]] GN_HD void* alloc(Group group, std::uint64_t bytes, Status* status = nullptr) const {
        check_group<Group>();
        Status found = usable();
        std::uint64_t address = 0;
        if (nvme::ok(found) && group.is_leader())
            address = reinterpret_cast<std::uint64_t>(gnor::pool_alloc(*state_, bytes, hint(group), found));
        // What the leader acquired with the run (the last holder's accesses) is ordered before every member's
        // use.
        group.sync();
        address = group.shfl(address, group.leader());
        found = group.shfl(found, group.leader());
        if (status != nullptr) *status = found;
        return reinterpret_cast<void*>(address);
    }
    /// The same, but waits until `deadline` for other lanes to free memory or for the host to register more;
    /// then kNoBuffer. Not from a callback.
    template <class Group>
    [[nodiscard]] GN_HD void* alloc(Group group, std::uint64_t bytes, Deadline deadline,
                                    Status* status = nullptr) const {
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
            if (gnor::poll_once(group, *state_) != 0)
                backoff = 0;
            else
                gnor::pause_between_trips<State>(backoff);
        }
    }
    /// Allocates a separate buffer of `bytes` bytes, the same for all, for each member that `wants` one;
    /// taken for all of them together, so that lanes do not race for the same words. All members call; each
    /// gets its own result.
    template <class Group>
    [[nodiscard]] GN_HD void* alloc_each(Group group, bool wants, std::uint64_t bytes,
                                         Status* status = nullptr) const {
        check_group<Group>();
        const Status unusable = usable();
        if (status != nullptr) *status = unusable;
        if (!nvme::ok(unusable)) return nullptr;
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
    /// Frees a buffer; no command may be in flight on it. kBadArgument: not returned by alloc, or freed
    /// before. kBufferInUse: a command that timed out, broke or was dropped may still touch it; try again
    /// after its answer or reclaim() on the host.
    template <class Group>
    GN_HD Status free(Group group, void* buffer) const {
        check_group<Group>();
        Status status = usable();
        group.sync();  // the members are done with the buffer
        if (nvme::ok(status) && group.is_leader()) status = gnor::pool_free(*state_, buffer);
        return group.shfl(status, group.leader());
    }

    /// Waits for a request that was sent by read_async or write_async. The token is spent. kTimedOut: the
    /// buffer is still in use. All members call, each with a token of its own (default-constructed: none).
    template <class Group>
    GN_HD Status wait(Group group, const Token& token, Deadline deadline) const {
        check_group<Group>();
        if (const Status unusable = usable(); !nvme::ok(unusable)) return unusable;
        return gnor::wait_for(group, *state_, token, deadline);
    }
    /// One lane: whether the request is done; then `status` is its result and the token is spent. Never
    /// waits.
    [[nodiscard]] GN_HD bool poll(simt::Lane lane, const Token& token, Status& status) const {
        status = usable();
        if (!nvme::ok(status)) return true;
        status = token.status;
        if (!token.in_flight() || token.head == gnor::kNone) return true;
        status = Status::kStaleToken;
        if (!gnor::is_current(*state_, token)) return true;
        gnor::poll_once(simt::self(lane), *state_);
        const auto state = gnor::chain_state(*state_, token.head);
        if (state == gnor::ChainState::kRunning) return false;
        status = gnor::end_chain(*state_, token.head, Status::kQueueError);
        return true;
    }
    /// Drops a token: the request continues, its buffer stays in use until it ends, and its result is lost.
    GN_HD
    Status drop(const Token& token) const {
        if (const Status unusable = usable(); !nvme::ok(unusable)) return unusable;
        if (!token.in_flight() || token.head == gnor::kNone) return Status::kSuccess;
        if (!gnor::is_current(*state_, token)) return Status::kStaleToken;
        gnor::give_chain_up(*state_, token.head);
        return Status::kSuccess;
    }
    /// Polls the completion queue once; runs callbacks that are due. Never waits. Not from a callback.
    template <class Group>
    GN_HD std::uint32_t poll(Group group) const {
        check_group<Group>();
        return nvme::ok(usable()) ? gnor::poll_once(group, *state_) : 0;
    }
    /// Whether [buffer, buffer + bytes) lies in registered memory.
    GN_HD
    bool is_registered(const void* buffer, std::uint64_t bytes) const {
        return nvme::ok(usable()) &&
               gnor::find_keys(*state_, reinterpret_cast<std::uint64_t>(buffer), bytes).found;
    }
    /// Where a lane begins to look for slots and buffers: spreads lanes over the bitmaps.
    template <class Group>
    GN_HD static std::uint32_t hint(Group group) {
        return group.lane() + static_cast<std::uint32_t>(simt::now_ns() >> 6);
    }
    GN_HD
    State& state() const { return *state_; }
    /// The same channel for lanes that call handlers of these types directly, without a function pointer
    /// (callbacks.hpp says why). Without types: the view runs no callbacks.
    template <class... Handlers>
    GN_HD BasicChannelRef<kMode, gnor::Callbacks<Handlers...>> with() const {
        return as<kMode, gnor::Callbacks<Handlers...>>();
    }
    /// The same channel as a view of another type.
    template <Sharing kOther, class OtherRuns = gnor::AnyCallback>
    GN_HD BasicChannelRef<kOther, OtherRuns> as() const {
        if (state_ == nullptr) return BasicChannelRef<kOther, OtherRuns>::none(without_);
        return BasicChannelRef<kOther, OtherRuns>(state_, lanes_);
    }
    GN_HD
    gnor::ChannelState* raw() const { return state_; }
    /// A channel for one lane (kLane) accepts only groups of one lane.
    template <class Group>
    GN_HD static constexpr void check_group() {
        static_assert(kMode != Sharing::kLane || std::is_same_v<Group, simt::SelfGroup>,
                      "a channel of one lane can only be used with simt::self(lane): open the channel for a "
                      "block or for the whole grid if several lanes use it");
    }

  private:
    State* state_ = nullptr;
    Status without_ = Status::kWrongSharing;  ///< what the calls of an empty view return
    simt::LanesKind lanes_ = simt::LanesKind::kCpu;
};
using ChannelRef = BasicChannelRef<Sharing::kGrid>;
static_assert(std::is_trivially_copyable_v<ChannelRef>, "kernels take it by value");

/// Several channels, spread over the lanes that use them. `channels` lies in lane-visible memory.
template <Sharing kMode>
struct BasicChannelSet {
    const ChannelRef* channels = nullptr;
    std::uint32_t count = 0;
    simt::LanesKind lanes = simt::LanesKind::kCpu;  ///< others get an empty view (kWrongLanes)
    Status without = Status::kWrongSharing;         ///< what views of an empty set return

    /// The channel of the calling lane: warps share them all (kGrid), each block has one (kBlock), each lane
    /// has one (kLane). With fewer channels than blocks or lanes, two of them would have to share one: then
    /// every lane gets an empty view, whose calls return kWrongSharing.
    GN_HD
    BasicChannelRef<kMode> mine(simt::Lane lane) const {
        if (count == 0) return BasicChannelRef<kMode>::none(without);
        if constexpr (kMode == Sharing::kGrid)
            return (*this)[static_cast<std::uint32_t>(lane.warp_rank() % count)];
        const bool block = kMode == Sharing::kBlock;
        const std::uint64_t users = block ? lane.grid_blocks : lane.grid_size();
        if (users > count) return BasicChannelRef<kMode>{};
        return (*this)[static_cast<std::uint32_t>(block ? lane.block : lane.grid_rank())];
    }
    GN_HD
    BasicChannelRef<kMode> operator[](std::uint32_t i) const {
        if (i >= count) return BasicChannelRef<kMode>::none(without);
        // The array of views lies in those lanes' memory too: others must not read it.
        if (lanes != simt::these_lanes()) return BasicChannelRef<kMode>::none(Status::kWrongLanes);
        return channels[i].template as<kMode>();
    }
    /// The same channels for lanes of another mode; they must have been opened for it.
    template <Sharing kOther>
    GN_HD BasicChannelSet<kOther> shared() const {
        return BasicChannelSet<kOther>{channels, count, lanes, without};
    }
};
using ChannelSet = BasicChannelSet<Sharing::kGrid>;
static_assert(std::is_trivially_copyable_v<ChannelSet>, "kernels take it by value");

/// A view of a channel, of any sharing mode.
template <class T>
concept ChannelView = std::is_same_v<T, BasicChannelRef<T::kSharing, typename T::Runs>>;

}  // namespace gnstor
