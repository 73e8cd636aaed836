// single_lane.hpp: fast path: one read or write of one command, by a lane that has its channel to itself. CPU
// and GPU lanes.
//
// run() (operation.hpp) carries out any request of any group, and for a single lane on a GPU that generality
// has a price: its structures lie in local memory, and after each acquire every access to them goes to the
// second-level cache. This path serves what single lanes do most, with everything in registers:
//   * independent loads are issued together;
//   * the two fences of a bell serve all replicas, and the doorbell records for the previous call's
//     completions as well: these are deferred until then (ChannelState::deferred_receives);
//   * a command that ends as expected writes nothing into its slot, except that the slot's generation is used
//     up.
// Everything else is left to run(): before anything was sent (kNotBegun), or with the command in its slot, in
// flight (kUnderWay).
//
// Invariants
//   * a receive is posted for each credit. The NIC is told of a deferred one after the bell's fence, so
//     possibly later than the bell: a queue with a deferred receive is used only while one more receive is
//     posted than commands are out, and never has two, as a call stores the deferred records of its own
//     queues first. All other paths take credits by take_credits, which stores all deferred records first;
//   * the completion queue does not overrun: its consumer record is stored a fence before any receive record;
//   * a command id that was sent is not sent again while its answer may come: success leaves the slot free
//     with its generation incremented.
#pragma once

#include <gnstor/gnor/detail/paths/one_command.hpp>
#include <gnstor/gnor/detail/paths/retrying.hpp>
#include <gnstor/gnor/detail/queues/polling.hpp>
#include <gnstor/gnor/detail/queues/posting.hpp>
#include <gnstor/simt/time.hpp>

namespace gnstor::gnor {

/// Polls of the completion queue before run() takes over.
inline constexpr std::uint32_t kSingleLaneLooks = 64;
inline constexpr std::uint32_t kSingleLaneReplicas = 2;  ///< replicas of a write; with more, run() sends it

/// The stages of a single lane's request, for code that measures them. In this order; kLooked once for each
/// poll that finds nothing.
enum class SingleLaneStep : std::uint32_t {
    kChosen,    ///< drives, keys, slot
    kFilled,    ///< capsules and send entries
    kRecorded,  ///< fence, records
    kRung,      ///< fence, bells, deferred receive records
    kLooked,    ///< polled, found nothing
    kArrived,   ///< an answer, consumed
};
struct NoSingleLaneProbe {
    GN_HD
    void operator()(SingleLaneStep) const {}
};

/// A command's path to one drive, in registers: after each fence the compiler would have to reload what lies
/// in lane memory.
template <simt::Scope S>
struct SingleLanePath {
    std::uint32_t number = 0;  ///< the array's slot
    std::uint32_t capsule_lkey = 0;
    nvme::Command* capsules = nullptr;
    rdma::BasicSendQueueRef<S> send{};
    rdma::SendTicket ticket{};
    std::uint64_t posted = 0;  ///< receives posted so far
};

/// A deferred doorbell record of a receive queue.
struct DeferredReceiveRecord {
    std::uint32_t* at = nullptr;
    std::uint32_t value = 0;
};

/// A command that was sent without filling its slot, to at most `kMost` drives.
template <class State, std::uint32_t kMost>
struct SingleLaneFlight {
    SingleLanePath<State::kScope> path[kMost];
    std::uint32_t count = 0;
    std::uint32_t index = kNone;  ///< the slot that its id names
    std::uint32_t control = 0;    ///< the slot's control word, with the pending bits
    std::uint32_t slot_bits = 0;
    std::uint32_t lkey = 0, rkey = 0;
    rdma::CompletionQueueRef completions{};
    std::uint64_t consumed = 0;

    GN_HD
    std::uint16_t command_id() const {
        return static_cast<std::uint16_t>(index | (generation_of(control) << slot_bits));
    }
    GN_HD
    bool is_pending(std::uint32_t i) const { return ((pending_of(control) >> i) & 1) != 0; }
};

/// Loads what one path needs. Returns whether a command can be sent there now and its answer will find a
/// receive.
template <class State>
GN_HD GN_INLINE bool open_path(State& c, SingleLanePath<State::kScope>& path, std::uint32_t depth,
                               std::uint64_t owed) {
    constexpr auto kScope = State::kScope;
    QueueLane& q = c.queue(path.number);
    const std::uint32_t broken = simt::load_relaxed<kScope>(&q.broken);
    const std::uint32_t out = simt::load_relaxed<kScope>(&q.outstanding);
    const std::uint32_t error = simt::load_relaxed<kScope>(&q.send.error);
    const std::uint64_t reserved = simt::load_relaxed<kScope>(&q.send.reserved);
    const std::uint64_t rung = simt::load_relaxed<kScope>(&q.send.rung);
    std::uint64_t completed = simt::load_relaxed<kScope>(&q.send.completed);
    path.send = c.send_queue(path.number);
    path.capsules = q.capsules;
    path.capsule_lkey = q.capsule_lkey;
    path.posted = q.receive.posted;
    const std::uint32_t spare = ((owed >> path.number) & 1) != 0 ? 1 : 0;
    if ((broken | error) != 0 || reserved != rung || out + spare >= depth) return false;
    if (reserved - completed >= path.send.entries()) {
        completed = path.send.refresh_completed();
        if (path.send.broken()) return false;
    }
    path.ticket.index = reserved;
    path.ticket.outcome = rdma::SendOutcome::kGranted;
    return reserved - completed < path.send.entries();
}

/// Writes send entries, doorbell records and bells of all paths.
template <class State, std::uint32_t kMost, class Probe>
GN_HD GN_INLINE void send_single_lane(State& c, const CommandContext& context, nvme::MapVersion version,
                                      const OneCommand& r, SingleLaneFlight<State, kMost>& flight,
                                      std::uint64_t owed, Probe& probe) {
    const CapsuleFields fields = capsule_of(r, version, flight.command_id(), flight.rkey);
    DeferredReceiveRecord record[kMost];
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i) {
        if (owed == 0) continue;
        // First the deferred records of the queues in use: so none of them ever has more than one.
        const std::uint64_t own = i < flight.count ? owed & (std::uint64_t{1} << flight.path[i].number) : 0;
        const std::uint32_t queue = detail::lowest_bit(own != 0 ? own : owed);
        owed &= ~(std::uint64_t{1} << queue);
        record[i].at = c.queue(queue).doorbell_record + mlx5::kReceiveRecord;
        record[i].value = be32(static_cast<std::uint32_t>(c.queue(queue).receive.posted) & mlx5::kIndexMask);
    }
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i) {
        if (i >= flight.count) continue;
        auto& path = flight.path[i];
        simt::store_relaxed<State::kScope>(&path.send.state->reserved, path.ticket.index + 1);
        fill_capsule(path.send, path.capsules, path.capsule_lkey, path.ticket, context, fields, flight.lkey);
    }
    probe(SingleLaneStep::kFilled);
    simt::release_before_stores<simt::Scope::kSystem>();
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i)
        if (i < flight.count) flight.path[i].send.store_doorbell_single_lane(flight.path[i].ticket);
    rdma::record_consumed(flight.completions, flight.consumed);
    probe(SingleLaneStep::kRecorded);
    simt::release_before_stores<simt::Scope::kSystem>();
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i)
        if (i < flight.count) flight.path[i].send.ring_bell_single_lane(flight.path[i].ticket);
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i)
        if (record[i].at != nullptr)
            simt::store_released<simt::Scope::kSystem>(record[i].at, record[i].value);
    // More than there are paths, as for a read after a write to two replicas: they wait for the next call.
    simt::store_relaxed<State::kScope>(&c.deferred_receives, owed);
    probe(SingleLaneStep::kRung);
}

/// Fills the slot of a command that was sent without, as begin_step and post would have. By value: an object
/// whose address is passed lies in local memory from the start, and every load that is stored there is waited
/// for separately.
template <class State, std::uint32_t kMost>
GN_HD GN_NOINLINE void put_into_slot(State& c, nvme::MapVersion version, OneCommand r,
                                     SingleLaneFlight<State, kMost> flight) {
    constexpr auto kScope = State::kScope;
    simt::fetch_and<kScope>(&c.free_slots()[flight.index / 64], ~(1ull << (flight.index % 64)));
    CommandSlot& slot = c.slot(flight.index);
    for (std::uint32_t i = 0; i < placement::kMaxReplicas; ++i) {
        const bool used = i < flight.count;
        slot.target[i] = used ? static_cast<std::uint8_t>(flight.path[i % kMost].number) : kNoTarget;
        // A replica that is not pending has answered with success.
        simt::store_relaxed<kScope>(&slot.answer[i], static_cast<std::uint32_t>(nvme::Status::kSuccess));
        if (flight.is_pending(i)) simt::fetch_add<kScope>(&c.queue(slot.target[i]).outstanding, 1u);
    }
    describe(slot, r, version, flight.lkey, flight.rkey);
    simt::store_relaxed<kScope>(&slot.control, flight.control);
}

/// Waits for the answers. False: something else came, or nothing did; `flight.control` has what is still
/// pending.
template <class State, std::uint32_t kMost, class Probe>
GN_HD GN_INLINE bool reap_single_lane(State& c, SingleLaneFlight<State, kMost>& flight,
                                      simt::Deadline deadline, Probe& probe) {
    constexpr auto kScope = State::kScope;
    const std::uint32_t expected = flight.command_id();
    std::uint64_t owed = simt::load_relaxed<kScope>(&c.deferred_receives);
    bool as_expected = true;
    std::uint32_t looks = 0, backoff = 0;
    while (as_expected && pending_of(flight.control) != 0) {
        const rdma::InlineMessage seen = rdma::peek_single_lane(flight.completions, flight.consumed);
        if (seen.look == rdma::Look::kNothing) {
            as_expected = ++looks < kSingleLaneLooks && !deadline.passed();
            if (as_expected) pause_between_trips<State>(backoff);
            probe(SingleLaneStep::kLooked);
            continue;
        }
        // The id and, above the phase bit, status 0: success.
        const bool answers =
            seen.look == rdma::Look::kMessage && (seen.dw3 & 0xFFFFu) == expected && (seen.dw3 >> 17) == 0;
        as_expected = false;
        GN_DEVICE_UNROLL
        for (std::uint32_t i = 0; i < kMost; ++i) {
            auto& path = flight.path[i];
            if (!answers || as_expected || !flight.is_pending(i) || path.send.qpn != seen.qpn) continue;
            as_expected = true;
            rdma::consume_single_lane(flight.completions, flight.consumed++);
            c.queue(path.number).receive.posted = ++path.posted;
            owed |= std::uint64_t{1} << path.number;
            flight.control &= ~(1u << i);
        }
        probe(SingleLaneStep::kArrived);
    }
    simt::store_relaxed<kScope>(&c.deferred_receives, owed);
    return pending_of(flight.control) == 0;
}

enum class SingleLaneOutcome : std::uint32_t { kNotBegun, kUnderWay, kDone };

/// One lane; kNotBegun also if the channel was not opened for one lane. kDone: success. kUnderWay: the
/// command is in slot `index`, for run() to end. `op` has loaded its map.
template <std::uint32_t kMost, class State, class Probe = NoSingleLaneProbe>
GN_HD GN_INLINE SingleLaneOutcome try_single_lane(State& c, const Operation& op, const OneCommand& r,
                                                  simt::Deadline deadline, std::uint32_t& index,
                                                  Probe probe = {}) {
    static_assert(State::kScope == simt::Scope::kLane,
                  "this path is only for a channel of one lane, which no other lane uses at the same time");
    constexpr auto kScope = State::kScope;
    // Loaded together, behind the acquire of the map: one round trip to memory.
    const std::uint64_t members = op.map->members, in = op.map->in;
    const std::uint32_t plain = op.map->plain;
    const nvme::MapVersion version = op.map->version;
    const Sharing sharing = c.sharing;
    const std::uint32_t checks = c.checks, queues = c.queues, depth = c.depth, slot_words = c.slot_words;
    const std::uint32_t any_ready = simt::load_relaxed<kScope>(&c.any_ready);
    const std::uint32_t any_flushed = simt::load_relaxed<kScope>(&c.any_flushed);
    const std::uint64_t owed = simt::load_relaxed<kScope>(&c.deferred_receives);
    const std::uint64_t pool_base = c.pool_base, pool_bytes = c.pool_bytes;
    SingleLaneFlight<State, kMost> flight;
    flight.lkey = c.pool_lkey;
    flight.rkey = c.pool_rkey;
    flight.slot_bits = c.slot_bits;
    flight.completions = c.completion_queue();
    flight.consumed = c.completions.consumer;
    std::uint64_t free = simt::load_relaxed<kScope>(&c.free_slots()[0]);
    std::uint32_t before = simt::load_relaxed<kScope>(&c.slot(0).control);  // usually slot 0 is the one used
    // No branch on the first of these loads: the compiler would move later loads behind it, which costs
    // another round trip. Instead an empty set of drives is passed, of which none is chosen.
    const bool may = sharing == Sharing::kLane && (checks | any_ready | any_flushed) == 0 && plain != 0;
    const Chosen<kMost> chosen =
        choose_plain<kMost>(may && r.is_one(op.geometry) ? members : 0, in, op.geometry, r);
    if (chosen.count == 0) return SingleLaneOutcome::kNotBegun;
    flight.count = chosen.count;
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i) flight.path[i].number = chosen.slot[i];
    if (!lies_in(pool_base, pool_bytes, r.address, r.bytes())) {
        const Keys keys = find_keys(c, r.address, r.bytes());
        if (!keys.found) return SingleLaneOutcome::kNotBegun;
        flight.lkey = keys.lkey;
        flight.rkey = keys.rkey;
    }
    bool open = true;
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < kMost; ++i)
        if (i < flight.count)
            open = flight.path[i].number < queues && open_path(c, flight.path[i], depth, owed) && open;
    std::uint32_t word = 0;
    while (free == 0 && ++word < slot_words) free = simt::load_relaxed<kScope>(&c.free_slots()[word]);
    if (!open || free == 0 || deadline.passed()) return SingleLaneOutcome::kNotBegun;
    flight.index = word * 64 + detail::lowest_bit(free);
    CommandSlot& slot = c.slot(flight.index);
    if (flight.index != 0) before = simt::load_relaxed<kScope>(&slot.control);
    const std::uint32_t generation = (generation_of(before) + 1) & 0xFFFFu;
    const std::uint32_t count = flight.count;
    flight.control = make_control(generation, SlotState::kOwned, (1u << count) - 1);
    probe(SingleLaneStep::kChosen);
    send_single_lane(c, op.context, version, r, flight, owed, probe);
    index = flight.index;
    count_commands(c, r.opcode, count);
    c.count(&Counters::doorbells, count);
    // Loaded while the NIC is at work, stored afterwards.
    const std::uint64_t polls = c.counters.polls, completions = c.counters.completions,
                        fast_path = c.counters.fast_path;
    const bool done = reap_single_lane(c, flight, deadline, probe);
    const std::uint32_t answered = count - detail::count_bits(pending_of(flight.control));
    simt::store_relaxed<kScope>(&c.counters.polls, polls + answered);
    simt::store_relaxed<kScope>(&c.counters.completions, completions + answered);
    simt::store_relaxed<kScope>(&c.counters.fast_path, fast_path + answered);
    if (done)
        simt::store_relaxed<kScope>(&slot.control, make_control(generation, SlotState::kFree, 0));
    else
        put_into_slot(c, version, r, flight);
    return done ? SingleLaneOutcome::kDone : SingleLaneOutcome::kUnderWay;
}

}  // namespace gnstor::gnor
