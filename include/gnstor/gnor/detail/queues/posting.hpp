// posting.hpp: sending a command: send credit, send entry, capsule, bell. CPU and GPU lanes; nothing here
// waits.
//
// The last of the three resources (pool buffer, command slot, send credit). Credits bound the commands sent
// and not answered on a queue pair to `depth`, which is what the drive's queue and the posted receives can
// hold. Between reserving a send entry and publishing it there is neither a wait nor a deadline.
#pragma once

#include <gnstor/gnor/detail/resources/command_slots.hpp>

namespace gnstor::gnor {

template <class State>
GN_HD bool is_broken(State& c, std::uint32_t queue) {
    return simt::load_relaxed<State::kScope>(&c.queue(queue).broken) != 0;
}

/// Stores the doorbell records of receives that a single lane has deferred (single_lane.hpp).
template <class State>
GN_HD GN_NOINLINE void record_deferred_receives(State& c) {
    simt::release_before_stores<simt::Scope::kSystem>();
    rdma::record_consumed(c.completion_queue(), c.completions.consumer);
    simt::release_before_stores<simt::Scope::kSystem>();
    for (std::uint64_t rest = simt::load_relaxed<State::kScope>(&c.deferred_receives); rest != 0;
         rest &= rest - 1)
        rdma::record_receives(c.receives()[detail::lowest_bit(rest)]);
    simt::store_relaxed<State::kScope>(&c.deferred_receives, 0ull);
}

/// Takes up to `wanted` credits of one queue; one lane calls for all that share the queue. A receive is
/// posted for each credit.
template <class State>
GN_HD std::uint32_t take_credits(State& c, QueueLane& queue, std::uint32_t wanted) {
    if constexpr (State::kScope == simt::Scope::kLane)
        if (simt::load_relaxed<State::kScope>(&c.deferred_receives) != 0) record_deferred_receives(c);
    std::uint32_t seen = simt::load_relaxed<State::kScope>(&queue.outstanding);
    while (seen < c.depth) {
        const std::uint32_t got = c.depth - seen < wanted ? c.depth - seen : wanted;
        // Acquires: the receives of these credits were posted again before. Pairs with the release of
        // poll_once.
        const std::uint32_t was = simt::compare_exchange<State::kScope, simt::Order::kAcquire>(
            &queue.outstanding, seen, seen + got);
        if (was == seen) return got;
        seen = was;
    }
    return 0;
}

template <simt::Scope S = simt::Scope::kDevice>
GN_HD void give_credits(QueueLane& queue, std::uint32_t count) {
    simt::fetch_add<S>(&queue.outstanding, 0u - count);
}

/// What every command of one operation has in common.
struct CommandContext {
    nvme::VolumeId volume = 0;
    nvme::ClientId client = 0;
    nvme::Epoch epoch = 0;
    bool fua = false;  ///< writes, zeroes and reads are answered from stable media (VolumeRef::stable)
};

// Two more bits of CommandSlot::attempts (the others: retrying.hpp).
inline constexpr std::uint8_t kBlockByBlock = 0x08;   ///< a read that goes block by block (singly.hpp)
inline constexpr std::uint8_t kOlderAccepted = 0x10;  ///< such a read, which takes its block's older version

/// State of a read that goes block by block (singly.hpp), in its slot's `handler`.
struct DoubtRound {
    std::uint64_t newest = 0;       ///< highest present order in a Doubtful answer
    std::uint32_t map_version = 0;  ///< under which the replicas were asked for this block
    std::uint32_t block = 0;        ///< index in the command: those before it are in the buffer
    nvme::Status failed = nvme::Status::kSuccess;  ///< why a replica could not answer, if one could not
    std::uint8_t rank = 0;                         ///< of the replica being asked, among those that are *in*
    std::uint8_t doubtful = 0;                     ///< a bit for each rank that answered Doubtful
    std::uint8_t best = 0;                         ///< the rank with `newest`
    std::uint8_t older = 0;                        ///< 1: an earlier block was read as its older version
};
static_assert(sizeof(DoubtRound) == sizeof(HandlerBytes), "a DoubtRound is stored in the place of a handler");

GN_HD
inline DoubtRound load_round(const CommandSlot& slot) {
    DoubtRound round;
    __builtin_memcpy(static_cast<void*>(&round), &slot.handler, sizeof(round));
    return round;
}
GN_HD
inline void store_round(CommandSlot& slot, const DoubtRound& round) {
    __builtin_memcpy(&slot.handler, &round, sizeof(round));
}

/// The fields of a command's capsule that are not the same for its whole operation.
struct CapsuleFields {
    nvme::IoOpcode opcode;
    std::uint8_t first_sector, sectors;
    std::uint16_t command_id;
    std::uint32_t block, blocks;
    nvme::MapVersion map_version;
    std::uint64_t sequence;
    std::uint64_t wire;  ///< address of its data, `bytes` bytes, for the NIC
    std::uint32_t bytes, rkey;
    bool accept_older = false;  ///< a read of a block that every replica answered Doubtful
};

/// How many bytes of a command's payload travel in the capsule.
GN_HD
inline std::uint32_t bytes_in_capsule(const CapsuleFields& f) {
    const bool outward = f.opcode == nvme::IoOpcode::kWrite || f.opcode == nvme::IoOpcode::kDatasetManagement;
    return outward && f.bytes <= kInCapsuleBytes ? f.bytes : 0;
}

/// The 64-byte capsule.
GN_HD
inline nvme::Command build_command(const CommandContext& context, const CapsuleFields& f) {
    nvme::IoFields fields;
    fields.volume = context.volume;
    fields.client = context.client;
    fields.block = f.block;
    fields.blocks = f.blocks != 0 ? f.blocks : 1;
    fields.epoch = context.epoch;
    fields.map_version = f.map_version;
    fields.first_sector = f.first_sector;
    fields.sectors = f.sectors;
    fields.sequence = f.sequence;
    fields.accept_older = f.accept_older;
    fields.fua =
        context.fua && (f.opcode == nvme::IoOpcode::kWrite || f.opcode == nvme::IoOpcode::kWriteZeroes ||
                        f.opcode == nvme::IoOpcode::kRead);
    const bool trim = f.opcode == nvme::IoOpcode::kDatasetManagement;
    nvme::Command command = trim ? nvme::encode_trim(fields, 1) : nvme::encode_io(f.opcode, fields);
    command.command_id = f.command_id;
    const std::uint32_t in_capsule = bytes_in_capsule(f);
    command.data = in_capsule != 0 ? nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0, in_capsule)
                                   : nvme::SglDescriptor::keyed(f.wire, f.bytes, f.bytes != 0 ? f.rkey : 0);
    return command;
}

/// Restricts a read that goes block by block to its current block. Inlined, so that the fields stay in
/// registers.
GN_HD
GN_INLINE void name_one_block(const CommandSlot& slot, CapsuleFields& f) {
    f.accept_older = (slot.attempts & kOlderAccepted) != 0;
    if (slot.blocks == 1) return;  // one block, or a part of it: nothing to restrict
    std::uint32_t block = 0;
    __builtin_memcpy(&block, reinterpret_cast<const std::byte*>(&slot.handler) + offsetof(DoubtRound, block),
                     sizeof(block));
    f.block += block;
    f.blocks = 1;
    f.wire += std::uint64_t{block} * nvme::kBlockBytes;
    f.bytes = nvme::kBlockBytes;
}

/// The capsule fields of the command in a slot.
template <class State>
GN_HD CapsuleFields capsule_of(State& c, std::uint32_t index) {
    const CommandSlot& slot = c.slot(index);
    CapsuleFields f;
    f.opcode = static_cast<nvme::IoOpcode>(slot.opcode);
    f.first_sector = slot.first_sector;
    f.sectors = slot.sectors;
    f.command_id = command_id(c, index);
    f.block = slot.block;
    f.blocks = slot.blocks;
    f.map_version = slot.map_version;
    f.sequence = slot.sequence;
    f.wire = wire_of(c, slot);
    f.bytes = payload_bytes(slot);
    f.rkey = slot.rkey;
    if ((slot.attempts & kBlockByBlock) != 0) name_one_block(slot, f);
    return f;
}

/// 64 bytes in four stores.
GN_HD
inline void store_capsule(nvme::Command* to, const nvme::Command& from) {
#if GN_DEVICE_PASS
    alignas(16) nvme::Command local = from;
    const auto* words = reinterpret_cast<const uint4*>(&local);
    for (int i = 0; i < 4; ++i) reinterpret_cast<uint4*>(to)[i] = words[i];
#else
    __builtin_memcpy(to, &from, sizeof(from));
#endif
}

/// Fills send entry and capsule of a granted ticket.
template <simt::Scope S>
GN_HD void fill_capsule(const rdma::BasicSendQueueRef<S>& send, nvme::Command* capsules,
                        std::uint32_t capsule_lkey, rdma::SendTicket& ticket, const CommandContext& context,
                        const CapsuleFields& fields, std::uint32_t lkey) {
    nvme::Command* const capsule = capsules + send.slot(ticket.index);
    store_capsule(capsule, build_command(context, fields));
    const std::uint32_t in_capsule = bytes_in_capsule(fields);
    const auto head =
        mlx5::make_data(reinterpret_cast<std::uint64_t>(capsule), sizeof(nvme::Command), capsule_lkey);
    if (in_capsule != 0)
        send.fill_send(ticket, head, mlx5::make_data(fields.wire, in_capsule, lkey));
    else
        send.fill_send(ticket, head);
}

/// The same for a slot's command, and marks the replica as pending.
template <class State>
GN_HD void fill_entry(State& c, const rdma::BasicSendQueueRef<State::kScope>& send, rdma::SendTicket& ticket,
                      const CommandContext& context, std::uint32_t index, std::uint32_t replica) {
    CommandSlot& slot = c.slot(index);
    const QueueLane& queue = c.queue(slot.target[replica]);
    fill_capsule(send, queue.capsules, queue.capsule_lkey, ticket, context, capsule_of(c, index), slot.lkey);
    // Before the entry is published, as the answer may come at once. The release of publishing orders this
    // and the slot's fields, by way of the NIC, before the lane that finds the answer (poller.hpp).
    simt::fetch_or<State::kScope, simt::kReleasedLater>(&slot.control, 1u << replica);
}

enum class PostOutcome : std::uint32_t { kIdle, kPosted, kNoCredit, kBroken };

/// Takes a credit of queue `q` for each member with `wanted`, with one atomic step per queue. All members
/// call.
template <class Group, class State>
GN_HD bool take_credit(Group group, State& c, bool wanted, std::uint32_t q) {
    const simt::LaneSet sharers = group.match(wanted ? q + 1 : 0u);
    const bool chief = sharers.lowest() == group.lane();
    std::uint32_t credits = 0;
    if (wanted && chief) credits = take_credits(c, c.queue(q), sharers.count());
    credits = group.shfl(credits, sharers.lowest());
    return wanted && sharers.count_below(group.lane()) < credits;
}

/// The queues of one member's command, and how many credits of each are available to it.
struct CreditNeeds {
    std::uint32_t count = 0;
    std::uint8_t queue[placement::kMaxReplicas] = {};
    std::uint32_t room[placement::kMaxReplicas] = {};

    GN_HD
    bool has(std::uint32_t q) const {
        bool found = false;
        for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r)
            found = found || (r < count && queue[r] == q);
        return found;
    }
    GN_HD
    void set_room(std::uint32_t q, std::uint32_t credits) {
        for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r)
            if (r < count && queue[r] == q) room[r] = credits;
    }
    /// Queues in the order of their numbers.
    GN_HD
    void sort() {
        for (std::uint32_t end = placement::kMaxReplicas; end > 1; --end)
            for (std::uint32_t r = 0; r + 1 < end; ++r) {
                const std::uint8_t one = queue[r], two = queue[r + 1];
                const bool wrong = r + 1 < count && one > two;
                queue[r] = wrong ? two : one;
                queue[r + 1] = wrong ? one : two;
            }
    }
    GN_HD
    bool fits() const {
        bool all = count != 0;
        for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r) all = all && (r >= count || room[r] != 0);
        return all;
    }
};

/// Takes one credit of each queue, or none. One lane for itself. All lanes take queues in ascending order: of
/// those that compete at the same moment, the one that gets the highest queue has all it needs. If each began
/// with its first replica, lanes in lockstep could each get half of what they need, every time.
template <class State>
GN_HD bool take_in_queue_order(State& c, CreditNeeds needs) {
    needs.sort();
    for (std::uint32_t r = 0; r < needs.count; ++r) {
        if (take_credits(c, c.queue(needs.queue[r]), 1) == 1) continue;
        while (r-- > 0) give_credits<State::kScope>(c.queue(needs.queue[r]), 1);
        return false;
    }
    return needs.count != 0;
}

/// The same for each member that needs any. All members call; the group has at least as many members as the
/// channel has queues. Each queue's credits are taken by one member, for all; then the members are served one
/// after the other. If each member took its first replica's credit and then tried for its second, a warp
/// could use up all credits on first replicas, every time.
template <class Group, class State>
GN_HD bool take_together(Group group, State& c, CreditNeeds needs) {
    std::uint32_t demand = 0;
    for (std::uint32_t q = 0; q < c.queues; ++q) {
        const std::uint32_t n = group.ballot(needs.has(q)).count();
        if (group.rank() == q) demand = n;
    }
    const std::uint32_t taken = demand != 0 ? take_credits(c, c.queue(group.rank()), demand) : 0;
    group.sync();  // orders what was acquired with the credits before all members' use
    auto keepers = group.ballot(true);
    for (std::uint32_t q = 0; q < c.queues; ++q, keepers = keepers.without_lowest())
        needs.set_room(q, group.shfl(taken, keepers.lowest()));
    bool served = false;
    for (auto rest = group.ballot(needs.count != 0); !rest.empty(); rest = rest.without_lowest()) {
        const bool turn = group.lane() == rest.lowest();
        if (turn) served = needs.fits();
        std::uint32_t theirs = 0;
        for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r)
            theirs |= std::uint32_t{r < needs.count && served ? needs.queue[r] : kNoTarget} << (8 * r);
        theirs = group.shfl(theirs, rest.lowest());
        for (; (theirs & 0xFFu) != kNoTarget && theirs != 0xFFFFFFFFu; theirs = (theirs >> 8) | 0xFF000000u)
            for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r)
                if (r < needs.count && needs.queue[r] == (theirs & 0xFFu)) --needs.room[r];
    }
    std::uint32_t used = 0;
    for (std::uint32_t q = 0; q < c.queues; ++q) {
        const std::uint32_t n = group.ballot(served && needs.has(q)).count();
        if (group.rank() == q) used = n;
    }
    if (taken > used) give_credits<State::kScope>(c.queue(group.rank()), taken - used);
    return served;
}

/// Takes for each member with `wanted` one credit of each of its command's queues, or none: for callers that
/// do not wait for the rest. All members call.
template <class Group, class State>
GN_HD bool take_all_credits(Group group, State& c, bool wanted, std::uint32_t index) {
    CreditNeeds needs;
    while (wanted && needs.count < placement::kMaxReplicas &&
           c.slot(index).target[needs.count] != kNoTarget) {
        needs.queue[needs.count] = c.slot(index).target[needs.count];
        ++needs.count;
    }
    if (!group.any(needs.count > 1)) return take_credit(group, c, wanted, needs.queue[0]);
    return group.size() < c.queues ? take_in_queue_order(c, needs) : take_together(group, c, needs);
}

/// Counts the bells that were rung for the members' tickets: one per queue.
template <class Group, class State>
GN_HD void count_bells(Group group, State& c, bool rang, std::uint32_t q) {
    const simt::LaneSet rung = group.match(rang ? q + 1 : 0u);
    const auto bells = group.ballot(rang && rung.lowest() == group.lane()).count();
    if (group.is_leader()) c.count(&Counters::doorbells, bells);
}

/// Posts the command of each member with `wanted` to one of its replicas. All members call. Credits, entries
/// and bell take one step per queue.
template <class Group, class State>
GN_HD PostOutcome post(Group group, State& c, const CommandContext& context, bool wanted, std::uint32_t index,
                       std::uint32_t replica) {
    const std::uint32_t q = wanted ? c.slot(index).target[replica] : 0;
    const bool broken = wanted && is_broken(c, q);
    const bool credit = take_credit(group, c, wanted && !broken, q);
    const auto send = c.send_queue(q);
    rdma::SendTicket ticket = rdma::try_reserve(group, send, credit);
    if (credit && !ticket.granted()) give_credits<State::kScope>(c.queue(q), 1);
    const bool broke = credit && ticket.outcome == rdma::SendOutcome::kBroken;
    if (broke) simt::store_relaxed<State::kScope>(&c.queue(q).broken, 1u);
    PostOutcome outcome = wanted ? PostOutcome::kNoCredit : PostOutcome::kIdle;
    if (broken || broke) outcome = PostOutcome::kBroken;
    if (ticket.granted()) {
        fill_entry(c, send, ticket, context, index, replica);
        outcome = PostOutcome::kPosted;
    }
    rdma::publish_and_ring(group, send, ticket);
    count_bells(group, c, ticket.granted(), q);
    return outcome;
}

// Posting in two steps, for requests that are sent whole or not at all: the entries of all their replicas are
// reserved first (their credits are held already), then filled. Nothing is waited for in between: only more
// entries are reserved.

/// Reserves a send entry for one replica of the command of each member with `wanted`. kPosted: its index is
/// in the slot's `answer`, which no other lane reads until the entry is filled. All members call.
template <class Group, class State>
GN_HD PostOutcome reserve_entry(Group group, State& c, bool wanted, std::uint32_t index,
                                std::uint32_t replica) {
    const std::uint32_t q = wanted ? c.slot(index).target[replica] : 0;
    const bool broken = wanted && is_broken(c, q);
    const rdma::SendTicket ticket = rdma::try_reserve(group, c.send_queue(q), wanted && !broken);
    const bool broke = wanted && !broken && ticket.outcome == rdma::SendOutcome::kBroken;
    if (broke) simt::store_relaxed<State::kScope>(&c.queue(q).broken, 1u);
    if (broken || broke) return PostOutcome::kBroken;
    if (!wanted) return PostOutcome::kIdle;
    if (!ticket.granted()) return PostOutcome::kNoCredit;
    simt::store_relaxed<State::kScope>(&c.slot(index).answer[replica],
                                       static_cast<std::uint32_t>(ticket.index));
    return PostOutcome::kPosted;
}

/// The ticket of the entry that reserve_entry reserved.
template <class State>
GN_HD rdma::SendTicket noted_ticket(State& c, const rdma::BasicSendQueueRef<State::kScope>& send,
                                    std::uint32_t index, std::uint32_t replica) {
    rdma::SendTicket ticket;
    ticket.index = send.widen(simt::load_relaxed<State::kScope>(&c.slot(index).answer[replica]));
    ticket.outcome = rdma::SendOutcome::kGranted;
    return ticket;
}

/// Fills and publishes, for each member with `wanted`, the entry that it reserved. Never fails: on a queue
/// pair that broke meanwhile the command gets no answer, and its waiter gets kQueueError. All members call.
template <class Group, class State>
GN_HD void post_reserved(Group group, State& c, const CommandContext& context, bool wanted,
                         std::uint32_t index, std::uint32_t replica, bool ring) {
    const std::uint32_t q = wanted ? c.slot(index).target[replica] : 0;
    const auto send = c.send_queue(q);
    rdma::SendTicket ticket;
    if (wanted) {
        ticket = noted_ticket(c, send, index, replica);
        fill_entry(c, send, ticket, context, index, replica);
    }
    rdma::publish_and_ring(group, send, ticket, ring);
    if (ring) count_bells(group, c, wanted, q);
}

/// Gives up a reserved entry: it is sent as a NOP at once, as later entries wait for it. One lane.
template <class State>
GN_HD void drop_entry(State& c, std::uint32_t index, std::uint32_t replica) {
    const auto send = c.send_queue(c.slot(index).target[replica]);
    rdma::SendTicket ticket = noted_ticket(c, send, index, replica);
    send.fill_nop(ticket);
    send.publish(ticket);
    send.ring_bell();
}

/// The same for a run of reserved entries. One lane.
template <class State>
GN_HD GN_NOINLINE void drop_entries(State& c, std::uint32_t queue, std::uint64_t first, std::uint32_t count) {
    const auto send = c.send_queue(queue);
    for (std::uint32_t i = 0; i < count; ++i) {
        rdma::SendTicket ticket{first + i, rdma::SendOutcome::kGranted, 0};
        send.fill_nop(ticket);
        send.publish(ticket);
    }
    send.ring_bell();
}

/// Counts `n` sent commands under their opcode.
template <class State>
GN_HD void count_commands(State& c, nvme::IoOpcode opcode, std::uint32_t n) {
    switch (opcode) {
        case nvme::IoOpcode::kRead:
            return c.count(&Counters::reads, n);
        case nvme::IoOpcode::kWrite:
            return c.count(&Counters::writes, n);
        case nvme::IoOpcode::kFlush:
            return c.count(&Counters::flushes, n);
        case nvme::IoOpcode::kDatasetManagement:
            return c.count(&Counters::trims, n);
        case nvme::IoOpcode::kWriteZeroes:
            return c.count(&Counters::zeroes, n);
    }
    c.count(&Counters::others, n);
}

}  // namespace gnstor::gnor
