// batch.hpp: the four steps of batched I/O, each called by a warp: submit, commit, poll, dispatch. CPU and
// GPU lanes.
//
// A Batch lies in memory that a block's lanes share (__shared__ on a GPU) and has one slot per thread and a
// bitmap of the slots in use. In a block of more than kThreads threads two would share a slot: there submit
// refuses every request. submit sends the requests of the lanes whose slots are free, without ringing; commit
// rings each bell once; poll takes completions; dispatch gives each lane the result of its request, runs its
// callback and clears its bit. A request that is not done keeps its slot, and its lane does not submit in the
// next round. Every step is called by all members of the same group of one warp; warps of a block use one
// Batch independently.
//
// The callback's type is part of the batch's type: a functor that lies in the slot and that dispatch calls
// directly, in the lane that submitted the request. There is no indirect call: the compiler sees the body.
// The default is a C function pointer (PointerCallback), one call through that pointer. Callers without a
// callback use the status that dispatch returns.
#pragma once

#include <gnstor/gnor/detail/paths/together.hpp>
#include <gnstor/gnor/volume_ref.hpp>

namespace gnstor {

/// What dispatch returns to a lane.
struct BatchResult {
    bool finished = false;  ///< a request of this lane ended now
    Status status = Status::kSuccess;
};

template <std::uint32_t kThreads, class Handler = PointerCallback>
struct Batch {
    static_assert(kThreads % 32 == 0 && kThreads > 0,
                  "a batch has whole words of slots: a multiple of 32 threads");

    struct Slot {              // used by its own lane only
        std::uint64_t unrung;  ///< queue pairs whose bells commit() must ring, a bit each
        std::uint32_t head;    ///< first slot of the request's chain
        alignas(16) std::byte handler[sizeof(Handler)];
    };
    std::uint32_t pending[kThreads / 32];  ///< atomics: bit per thread with an unfinished request
    Slot slots[kThreads];

    /// Once, by all members, before the first step; a block's warps each do their part.
    template <class Group>
    GN_HD void init(Group group, simt::Lane lane) {
        simt::fetch_and<simt::Scope::kBlock>(&pending[word(lane)], ~bit(lane));
        if (fits(lane)) mine(lane).unrung = 0;
        group.sync();
    }

    /// Whether this lane has an unfinished request.
    GN_HD
    bool is_pending(simt::Lane lane) const {
        return (simt::load_relaxed<simt::Scope::kBlock>(&pending[word(lane)]) & bit(lane)) != 0;
    }

    /// Sends the request of each member that has one (`request` not null; read during the call) and whose
    /// slot is free. A member's result: success: sent; kTooManyPending: its slot, or the channel, is full:
    /// try again after dispatch; else why the request is invalid. Never waits. Buffers must be registered;
    /// opcode kRead or kWrite, the same for all members. kBadArgument to every lane of a block of more than
    /// kThreads threads.
    template <class Group, ChannelView Channel>
    GN_HD Status submit(Group group, simt::Lane lane, const VolumeRef& volume, Channel channel,
                        nvme::IoOpcode opcode, const IoRequest* request, const Handler& handler = Handler{}) {
        static_assert(std::is_trivially_copyable_v<Handler>,
                      "a batch stores the handler as raw bytes: make the handler trivially copyable");
        if (opcode != nvme::IoOpcode::kRead && opcode != nvme::IoOpcode::kWrite) return Status::kBadArgument;
        if (!fits(lane)) return Status::kBadArgument;
        Channel::template check_group<Group>();
        if (const Status unusable = channel.usable(); !nvme::ok(unusable)) return unusable;
        if (!volume.allows(opcode)) return Status::kNotWritable;
        const bool full = is_pending(lane);
        const bool wanted = request != nullptr && !full;
        const simt::LaneSet asking = group.ballot(wanted);
        if (asking.empty()) return request != nullptr ? Status::kTooManyPending : Status::kSuccess;
        const bool changes = VolumeRef::changes(opcode);
        std::uint64_t sequence = 0;  // only for lanes with a request: else no lane would resolve it
        if (changes)
            sequence = volume.take_sequences(group, asking.count()) + asking.count_below(group.lane());
        const gnor::SentTogether sent =
            opcode == nvme::IoOpcode::kRead
                ? together<1>(group, volume, channel, opcode, request, wanted, sequence)
                : together<gnor::kTogetherReplicas>(group, volume, channel, opcode, request, wanted,
                                                    sequence);
        if (sent.begun) {
            if (wanted) keep(lane, sent.head, sent.queues, handler);
            if (wanted && changes) gnor::keep_resolved(channel.state().slot(sent.head), volume.resolved);
            return request != nullptr && full ? Status::kTooManyPending : Status::kSuccess;
        }
        gnor::Cursor cursor = volume.cursor_for(opcode, request, wanted ? 1 : 0);
        cursor.must_be_registered = true;
        cursor.sequence = sequence;
        gnor::Operation op = volume.operation();
        const Token token =
            gnor::send_at_once(group, channel.state(), op, cursor, Channel::hint(group), false);
        if (request != nullptr && full) return Status::kTooManyPending;
        if (!wanted) return Status::kSuccess;
        if (!token.in_flight()) {
            if (changes) volume.resolve(sequence, 1);  // nothing was sent
            return token.status;
        }
        if (changes) gnor::keep_resolved(channel.state().slot(token.head), volume.resolved);
        keep(lane, token.head, gnor::queues_of(channel.state(), token.head), handler);
        return Status::kSuccess;
    }

    /// The same with a pointer to a function, where the batch is of such.
    template <class Group, ChannelView Channel>
    GN_HD Status submit(Group group, simt::Lane lane, const VolumeRef& volume, Channel channel,
                        nvme::IoOpcode opcode, const IoRequest* request, Callback callback, void* argument) {
        static_assert(std::is_same_v<Handler, PointerCallback>,
                      "this batch stores handlers of another type: give it a handler of its own type instead "
                      "of a callback");
        return submit(group, lane, volume, channel, opcode, request, PointerCallback{callback, argument});
    }

    /// Rings the bells of what this group's members submitted, each once; each member takes some of the queue
    /// pairs.
    template <class Group, ChannelView Channel>
    GN_HD void commit(Group group, simt::Lane lane, Channel channel) {
        // submit has reported the reason, and sent nothing
        if (!fits(lane) || !nvme::ok(channel.usable())) return;
        auto& c = channel.state();
        const std::uint64_t own = mine(lane).unrung;
        mine(lane).unrung = 0;
        const std::uint64_t due = group.unite(own);
        if (group.is_leader()) c.count(&gnor::Counters::doorbells, gnor::detail::count_bits(due));
        group.sync();  // orders the members' publishing before the bells: shuffles order nothing
        // Members ring different bells, in parallel.
        for (std::uint32_t n = gnor::detail::count_bits(due), i = group.rank(); i < n; i += group.size())
            c.send_queue(gnor::detail::nth_bit(due, i)).ring_bell();
        group.sync();
    }

    /// Polls the channel's completion queue once; completions may belong to any group.
    template <class Group, ChannelView Channel>
    GN_HD std::uint32_t poll(Group group, Channel channel) {
        return channel.poll(group);
    }

    /// Hands results out: a member whose request is done gets its status, its callback runs, its slot is free
    /// again.
    template <class Group, ChannelView Channel>
    GN_HD BatchResult dispatch(Group group, simt::Lane lane, Channel channel) {
        BatchResult result;
        if (!nvme::ok(channel.usable())) return result;
        auto& c = channel.state();
        if (is_pending(lane)) {
            const Slot slot = mine(lane);
            result.finished = gnor::end_single(c, slot.head);
            if (!result.finished && gnor::chain_state(c, slot.head) != gnor::ChainState::kRunning) {
                result.finished = true;
                result.status = gnor::end_chain(c, slot.head, Status::kQueueError);
            }
            if (result.finished) {
                simt::fetch_and<simt::Scope::kBlock>(&pending[word(lane)], ~bit(lane));
                gnor::invoke<Handler>(slot.handler, result.status);
            }
        }
        group.sync();
        return result;
    }

    /// Gives up unfinished requests: they continue, and their buffers stay in use until they end
    /// (quarantine).
    template <class Group, ChannelView Channel>
    GN_HD void abandon(Group group, simt::Lane lane, Channel channel) {
        if (!nvme::ok(channel.usable())) return;
        commit(group, lane, channel);  // no other lane would ever ring for them
        if (is_pending(lane)) {
            gnor::give_chain_up(channel.state(), mine(lane).head);
            simt::fetch_and<simt::Scope::kBlock>(&pending[word(lane)], ~bit(lane));
        }
        group.sync();
    }

  private:
    /// The fast path, if it applies (together.hpp).
    template <std::uint32_t kMost, class Group, ChannelView Channel>
    GN_HD static gnor::SentTogether together(Group group, const VolumeRef& volume, Channel channel,
                                             nvme::IoOpcode opcode, const IoRequest* request, bool wanted,
                                             std::uint64_t sequence) {
        gnor::OneCommand one{};
        one.opcode = opcode;
        one.sequence = sequence;
        if (wanted) {
            one.first_sector = request->first_sector;
            one.sectors = request->sectors;
            one.block = request->block;
            one.blocks = request->blocks;
            one.address = reinterpret_cast<std::uint64_t>(request->buffer);
        }
        const bool whole = !wanted || request->buffer != nullptr;
        if (volume.current_map == nullptr || group.any(!whole)) return gnor::SentTogether{};
        return gnor::send_batch<kMost>(group, channel.state(), volume.operation(), one, wanted,
                                       Channel::hint(group));
    }
    /// Records a sent request in this lane's slot.
    GN_HD
    void keep(simt::Lane lane, std::uint32_t head, std::uint64_t queues, const Handler& handler) {
        Slot& slot = mine(lane);
        slot.unrung |= queues;
        slot.head = head;
        __builtin_memcpy(slot.handler, &handler, sizeof(handler));
        simt::fetch_or<simt::Scope::kBlock>(&pending[word(lane)], bit(lane));
    }
    /// Whether each thread of the block has a slot of its own; the same for all of them.
    GN_HD
    static bool fits(simt::Lane lane) { return lane.block_threads <= kThreads; }
    GN_HD
    Slot& mine(simt::Lane lane) { return slots[lane.thread % kThreads]; }
    GN_HD
    static std::uint32_t word(simt::Lane lane) { return (lane.thread % kThreads) / 32; }
    GN_HD
    static std::uint32_t bit(simt::Lane lane) { return 1u << (lane.thread % 32); }
};
static_assert(std::is_trivially_default_constructible_v<Batch<32>>,
              "a batch lies in __shared__ memory, which runs no constructors");

}  // namespace gnstor
