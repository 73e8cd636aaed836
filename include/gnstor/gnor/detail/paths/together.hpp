// together.hpp: fast path of a batch: one command for each of a group's members, sent at once. CPU and GPU
// lanes; nothing here waits.
//
// send_at_once() (async.hpp) sends any requests of any group, and on a GPU that generality has a price: its
// structures lie in local memory, and after each acquire every access to them goes to the second-level cache.
// This path serves what batches do most, as single_lane.hpp does for single lanes: everything in registers,
// independent loads issued together, one atomic step per queue for all members that share it.
//
// All or nothing: if a member's request is not one command, or something does not suffice for all members at
// once (slots of one word, credits, entries), what was taken is given back and nothing is sent;
// send_at_once() then shares scarce resources fairly. The order of resources is the same: command slot, send
// credit, send entry, each with a try.
#pragma once

#include <gnstor/gnor/detail/paths/one_command.hpp>
#include <gnstor/gnor/detail/paths/retrying.hpp>

namespace gnstor::gnor {

inline constexpr std::uint32_t kTogetherReplicas = 2;  ///< of a write; with more: send_at_once()

/// What was sent. `begun` is the same for all members.
struct SentTogether {
    bool begun = false;          ///< false: nothing was sent for any member
    std::uint32_t head = kNone;  ///< the member's slot
    std::uint64_t queues = 0;    ///< bit per queue that its command went to
};

/// A member's command to at most `kMost` drives. `sharers`: the members whose i-th drive is the same;
/// `chief`: the lowest of them, which acts for all.
template <std::uint32_t kMost>
struct GroupFlight {
    Chosen<kMost> to;
    simt::LaneSet sharers[kMost];
    bool chief[kMost] = {};
    std::uint64_t first[kMost] = {};  ///< first entry of the chief's run
    rdma::SendTicket ticket[kMost];
    std::uint32_t index = kNone;
    Keys keys;

    GN_HD
    bool goes(std::uint32_t i) const { return i < to.count; }
};

/// Takes slots of one bitmap word for all members with `wanted`. False: too few for all, and none is taken.
template <class Group, class State>
GN_HD GN_INLINE bool take_slots(Group group, State& c, bool wanted, std::uint32_t hint, std::uint32_t words,
                                std::uint32_t& index) {
    const simt::LaneSet open = group.ballot(wanted);
    TakenBits taken;
    if (group.is_leader()) {
        taken = take_some<State::kScope>(c.free_slots(), words, open.count(), spread_over(hint, words));
        if (taken.count() != open.count() && taken.bits != 0) {
            simt::fetch_or<State::kScope, simt::Order::kRelease>(&c.free_slots()[taken.word], taken.bits);
            taken.bits = 0;
        }
    }
    taken.word = group.shfl(taken.word, group.leader());
    taken.bits = group.shfl(taken.bits, group.leader());
    if (taken.bits == 0) return false;
    group.sync();  // what the leader acquired with the slots is ordered before every member's use
    if (wanted) index = taken.at(open.count_below(group.lane()));
    return true;
}

/// Takes credits and send entries for all members' commands. False: too few for all, and none is kept.
template <std::uint32_t kMost, class Group, class State>
GN_HD GN_INLINE bool take_ways(Group group, State& c, GroupFlight<kMost>& flight) {
    std::uint32_t credits[kMost] = {};
    bool lacks = false;
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i) {
        const std::uint32_t wanted = flight.chief[i] ? flight.sharers[i].count() : 0;
        if (wanted != 0) credits[i] = take_credits(c, c.queue(flight.to.slot[i]), wanted);
        lacks = lacks || credits[i] != wanted;
    }
    lacks = group.any(lacks);
    bool reserved[kMost] = {};
    if (!lacks) {
        bool full = false;
        GN_DEVICE_UNROLL
        for (std::uint32_t i = 0; i < kMost; ++i) {
            if (!flight.chief[i]) continue;
            const rdma::SendRun run =
                c.send_queue(flight.to.slot[i]).try_reserve_run(flight.sharers[i].count(), true);
            flight.first[i] = run.first;
            reserved[i] = run.count != 0;
            full = full || !reserved[i];
        }
        lacks = group.any(full);
    }
    group.sync();  // orders what the chiefs acquired with credits and room before all members' use
    if (!lacks) return true;
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i) {
        if (reserved[i]) drop_entries(c, flight.to.slot[i], flight.first[i], flight.sharers[i].count());
        if (credits[i] != 0) give_credits<State::kScope>(c.queue(flight.to.slot[i]), credits[i]);
    }
    return false;
}

/// Fills a member's slot, capsules and send entries.
template <std::uint32_t kMost, class State>
GN_HD GN_INLINE void fill_ways(State& c, const Operation& op, nvme::MapVersion version, const OneCommand& r,
                               GroupFlight<kMost>& flight) {
    CommandSlot& slot = c.slot(flight.index);
    const std::uint32_t before = simt::load_relaxed<State::kScope>(&slot.control);
    const std::uint32_t generation = (generation_of(before) + 1) & 0xFFFFu;
    const auto id = static_cast<std::uint16_t>(flight.index | (generation << c.slot_bits));
    describe(slot, r, version, flight.keys.lkey, flight.keys.rkey);
    simt::store_relaxed<State::kScope>(&slot.merged, static_cast<std::uint32_t>(nvme::Status::kSuccess));
    const CapsuleFields fields = capsule_of(r, version, id, flight.keys.rkey);
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < placement::kMaxReplicas; ++i)
        slot.target[i] =
            i < kMost && flight.goes(i) ? static_cast<std::uint8_t>(flight.to.slot[i % kMost]) : kNoTarget;
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i) {
        if (!flight.goes(i)) continue;
        const QueueLane& queue = c.queue(flight.to.slot[i]);
        fill_capsule(c.send_queue(flight.to.slot[i]), queue.capsules, queue.capsule_lkey, flight.ticket[i],
                     op.context, fields, flight.keys.lkey);
    }
    // Before the entries are published, as the answers may come at once (see fill_entry). One store for all
    // replicas: no other lane uses the slot yet.
    simt::store_released<State::kScope>(
        &slot.control, make_control(generation, SlotState::kOwned, (1u << flight.to.count) - 1));
}

/// Sends `r` of each member with `wanted`, without ringing the bell. All members call. `op` has loaded its
/// map.
template <std::uint32_t kMost, class Group, class State>
GN_HD GN_INLINE SentTogether send_batch(Group group, State& c, const Operation& op, const OneCommand& r,
                                        bool wanted, std::uint32_t hint) {
    constexpr auto kScope = State::kScope;
    SentTogether out;
    // Loaded together, behind the acquire of the map: one round trip to memory.
    const std::uint64_t members = op.map->members, in = op.map->in;
    const std::uint32_t plain = op.map->plain;
    const nvme::MapVersion version = op.map->version;
    const std::uint32_t checks = c.checks, queues = c.queues, depth = c.depth, words = c.slot_words;
    const std::uint64_t pool_base = c.pool_base, pool_bytes = c.pool_bytes;
    GroupFlight<kMost> flight;
    flight.keys = Keys{true, false, c.pool_lkey, c.pool_rkey};
    bool fits = (checks == 0 && plain != 0) || !wanted;
    if (wanted && fits) {
        fits = r.is_one(op.geometry);
        if (fits) flight.to = choose_plain<kMost>(members, in, op.geometry, r);
        fits = fits && flight.to.count != 0;
        if (fits && !lies_in(pool_base, pool_bytes, r.address, r.bytes()))
            flight.keys = find_keys(c, r.address, r.bytes());
        fits = fits && flight.keys.found;
    }
    // A second round trip: broken queues and missing credits, before anything is taken.
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i) {
        flight.sharers[i] = group.match(flight.goes(i) ? flight.to.slot[i] + 1 : 0u);
        flight.chief[i] = flight.goes(i) && flight.sharers[i].lowest() == group.lane();
        if (!flight.goes(i)) continue;
        if (flight.to.slot[i] >= queues) {
            fits = false;
            continue;
        }
        const QueueLane& q = c.queue(flight.to.slot[i]);
        const std::uint32_t broken = simt::load_relaxed<kScope>(&q.broken);
        const std::uint32_t error = simt::load_relaxed<kScope>(&q.send.error);
        const std::uint32_t taken = simt::load_relaxed<kScope>(&q.outstanding);
        fits = fits && (broken | error) == 0 && taken + flight.sharers[i].count() <= depth;
    }
    if (group.any(!fits) || !take_slots(group, c, wanted, hint, words, flight.index)) return out;
    if (!take_ways(group, c, flight)) {
        if (wanted) give_run<kScope>(c.free_slots(), flight.index, 1);
        return out;
    }
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i) {
        const std::uint64_t first = group.shfl(flight.first[i], flight.sharers[i].lowest());
        flight.ticket[i].index = first + flight.sharers[i].count_below(group.lane());
        if (flight.goes(i)) flight.ticket[i].outcome = rdma::SendOutcome::kGranted;
    }
    out.begun = true;
    if (wanted) {
        out.head = flight.index;
        fill_ways(c, op, version, r, flight);
    }
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i) {
        if (!flight.goes(i)) continue;
        c.send_queue(flight.to.slot[i]).mark_ready(flight.ticket[i]);
        out.queues |= std::uint64_t{1} << flight.to.slot[i];
    }
    group.sync();  // all entries of a run are marked before its chief publishes the run
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i)
        if (flight.chief[i])
            c.send_queue(flight.to.slot[i]).advance_published(flight.first[i], flight.sharers[i].count());
    const std::uint32_t sent = group.sum(flight.to.count);
    if (group.is_leader()) {
        count_commands(c, r.opcode, sent);
        c.count(&Counters::fast_path, sent);
    }
    return out;
}

}  // namespace gnstor::gnor
