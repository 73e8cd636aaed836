// polling.hpp: reaping responses and filing them under their command slots. CPU and GPU lanes; nothing here
// waits.
//
// One group polls at a time (rdma::poll's try-lock). A response's DW3 names the slot and its generation; a
// response that fits no command in flight is counted as stale and dropped. Credits are given back only after
// the receives were posted again, so that a response always finds a receive. Callbacks run after the poll
// lock is released, in a lane that finds them due and whose view knows them (callbacks.hpp).
//
// A queue pair in error delivers no more answers, and its flushed receives come after its last answers. So
// once a trip has seen a flushed receive, a request with a callback ends with kQueueError if only such queue
// pairs' answers are missing, as a wait for a token does. Its slots go into quarantine: its buffers stay in
// use until reclaim() (volume_ref.hpp).
#pragma once

#include <gnstor/gnor/detail/resources/command_slots.hpp>
#include <gnstor/simt/time.hpp>

namespace gnstor::gnor {

static_assert(placement::kMaxSlots <= rdma::ReceiveSet::kMost,
              "a channel has one receive queue for each slot of the array");

template <class State>
GN_HD void mark_ready(State& c, std::uint32_t index) {
    // Releases the filed answers to the lane that runs the callback (run_callbacks).
    simt::fetch_or<State::kScope>(&c.ready_slots()[index / 64], 1ull << (index % 64));
    simt::exchange<State::kScope>(&c.any_ready, 1u);
}

/// The replica of the slot that a response of `queue` with this command id answers, or kNone: no command in
/// flight. `control`: the slot's control word, as loaded. For an answer to a command that was sent, the slot
/// has that command's fields; a response that a drive sends unasked may, on a GPU, be compared with older
/// ones.
template <class State>
GN_HD std::uint32_t match_response(State& c, std::uint32_t queue, std::uint32_t cid, std::uint32_t control) {
    const CommandSlot& slot = c.slot(cid & (c.command_slots - 1));
    const std::uint32_t generation_mask = 0xFFFFu >> c.slot_bits;
    if (state_of(control) == SlotState::kFree) return kNone;
    if ((generation_of(control) & generation_mask) != (cid >> c.slot_bits)) return kNone;
    for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r)
        if (((pending_of(control) >> r) & 1u) != 0 && slot.target[r] == queue) return r;
    return kNone;
}

/// Stores the present order of a Doubtful answer, in words of `answer` that a command to one drive does not
/// use.
template <class State>
GN_HD GN_NOINLINE void keep_present_order(CommandSlot& slot, const std::uint32_t* response) {
    static_assert(placement::kMaxReplicas == 4,
                  "a command to one drive must leave two of the four answer words free");
    if (slot.target[1] != kNoTarget) return;
    simt::store_relaxed<State::kScope>(&slot.answer[2], response[0]);
    simt::store_relaxed<State::kScope>(&slot.answer[3], response[1]);
}

/// Files an answer and clears its pending bit; the lane that clears the last one does what the slot's state
/// requires. False: it answers no command. One compare-and-exchange decides, so that neither a second answer
/// nor a late one can touch a later command. `response`: its words; null where `status` is local.
template <class State>
GN_HD bool settle(State& c, std::uint32_t queue, std::uint32_t cid, nvme::Status status,
                  const std::uint32_t* response = nullptr) {
    const std::uint32_t index = cid & (c.command_slots - 1);
    CommandSlot& slot = c.slot(index);
    std::uint32_t seen = load_control<State::kScope>(slot);
    std::uint32_t replica = kNone;
    for (;;) {
        replica = match_response(c, queue, cid, seen);
        if (replica == kNone) return false;
        simt::store_relaxed<State::kScope>(&slot.answer[replica], static_cast<std::uint32_t>(status));
        if (status == nvme::Status::kDoubtful) keep_present_order<State>(slot, response);
        // Releases the answer: pairs with load_control of the waiter. No acquire: `seen` was loaded with one.
        const std::uint32_t was = simt::compare_exchange<State::kScope, simt::Order::kRelease>(
            &slot.control, seen, seen & ~(1u << replica));
        if (was == seen) break;
        seen = load_control<State::kScope>(slot);
    }
    const bool last = pending_of(seen) == (1u << replica);
    if (!last && state_of(seen) == SlotState::kCallback &&
        simt::load_relaxed<State::kScope>(&c.flushed_queues) != 0)
        // Maybe only broken queue pairs' answers are missing now. Releases the cleared bit to end_flushed.
        simt::exchange<State::kScope>(&c.any_flushed, 1u);
    if (!last) return true;
    if (state_of(seen) == SlotState::kAbandoned) {
        free_slot(c, index);
        c.count(&Counters::quarantined, ~0ull);
    } else if (state_of(seen) == SlotState::kCallback) {
        mark_ready(c, index);
    }
    return true;
}

/// What one member saw in a trip: queues to give credits back to (8 bits each, at most 8), and counts.
struct PollCounts {
    std::uint64_t queues = 0;
    std::uint32_t due = 0;
    std::uint32_t filed = 0;
    std::uint32_t stale = 0;
    std::uint32_t refused = 0;
    std::uint32_t errors = 0;
    std::uint32_t malformed = 0;

    // The counts in one word, so that one sum adds all of them: no count of a trip exceeds kLargestTrip.
    static constexpr std::uint32_t kBits = 6;
    static_assert(rdma::kLargestTrip < 1u << kBits && rdma::kSingleLaneLookahead < 1u << kBits &&
                      5 * kBits <= 32,
                  "each count must fit its own bits");
    GN_HD
    std::uint32_t pack() const {
        return filed | stale << kBits | refused << 2 * kBits | errors << 3 * kBits | malformed << 4 * kBits;
    }
    GN_HD
    static PollCounts unpack(std::uint32_t word) {
        constexpr std::uint32_t kMask = (1u << kBits) - 1;
        PollCounts t;
        t.filed = word & kMask;
        t.stale = word >> kBits & kMask;
        t.refused = word >> 2 * kBits & kMask;
        t.errors = word >> 3 * kBits & kMask;
        t.malformed = word >> 4 * kBits & kMask;
        return t;
    }
};

/// Marks a queue pair whose answers cannot be relied on any more: lanes that wait for one get kQueueError.
template <class State>
GN_HD void break_queue(State& c, std::uint32_t queue, std::uint32_t syndrome) {
    simt::store_relaxed<State::kScope>(&c.queue(queue).broken, 1u);
    // Pairs with the read-modify-write of attach_callback: one of the two sees the other.
    simt::fetch_or<State::kScope>(&c.flushed_queues, 1ull << queue);
    record_error(c, nvme::Status::kQueueError, queue, 0, syndrome);
}

template <class State>
GN_HD void file_arrival(State& c, const rdma::Arrival& arrival, PollCounts& tally) {
    if (arrival.queue == rdma::ReceiveSet::kUnknown) {
        ++tally.stale;
        return;
    }
    if (arrival.is_error()) {
        ++tally.errors;
        return break_queue(c, arrival.queue, arrival.syndrome);
    }
    if (arrival.is_short()) {  // a faulty target; its later answers are filed, if any
        ++tally.malformed;
        return break_queue(c, arrival.queue, mlx5::kBadResponse);
    }
    const std::uint32_t cid = arrival.dw3 & 0xFFFFu;
    const auto status = nvme::from_field(static_cast<std::uint16_t>(arrival.dw3 >> 17));
    std::uint32_t block = 0;
    nvme::MapVersion map_version = 0;
    if (!nvme::ok(status)) {  // before settle(): after it the slot may be another command's
        const CommandSlot& slot = c.slot(cid & (c.command_slots - 1));
        block = slot.block;
        map_version = slot.map_version;
    }
    if (!settle(c, arrival.queue, cid, status, arrival.message)) {
        ++tally.stale;
        return;
    }
    ++tally.filed;
    tally.queues = (tally.queues << 8) | arrival.queue;
    ++tally.due;
    if (nvme::ok(status)) return;
    ++tally.refused;
    if (status == nvme::Status::kStaleMap) note_stale_map(c, map_version);
    record_error(c, status, arrival.queue, block, 0);
}

/// Frees a slot of a callback request, or leaves it in quarantine for reclaim() if answers are missing.
template <class State>
GN_HD void end_callback_slot(State& c, std::uint32_t index) {
    if (state_of(load_control<State::kScope>(c.slot(index))) == SlotState::kEnded)
        leave_slot(c, index);
    else
        free_slot(c, index);
}

/// Merges one command of a callback request into the chain's first slot, which stays until all are merged;
/// the last one runs the callback.
template <class State>
GN_HD void finish_callback(State& c, std::uint32_t index) {
    CommandSlot& slot = c.slot(index);
    const std::uint32_t head_index = slot.request;
    CommandSlot& head = c.slot(head_index);
    const bool ended = state_of(load_control<State::kScope>(slot)) == SlotState::kEnded;
    const nvme::Status mine = ended ? nvme::Status::kQueueError : outcome_of<State::kScope>(slot);
    const bool in_doubt = ended || (!nvme::ok(mine) && ended_in_doubt<State::kScope>(slot));
    std::uint32_t seen = simt::load_relaxed<State::kScope>(&head.merged);
    for (;;) {
        const auto so_far = static_cast<nvme::Status>(seen & ~kMergedInDoubt);
        const std::uint32_t now = static_cast<std::uint32_t>(worst(so_far, mine)) | (seen & kMergedInDoubt) |
                                  (in_doubt ? kMergedInDoubt : 0u);
        if (now == seen) break;
        const std::uint32_t was = simt::compare_exchange<State::kScope>(&head.merged, seen, now);
        if (was == seen) break;
        seen = was;
    }
    if (index != head_index) end_callback_slot(c, index);
    // Orders the merges before the callback: the last to count down sees all of them.
    if (simt::fetch_add<State::kScope>(&head.remaining, ~0u) != 1) return;
    const std::uint64_t word = head.handler_word;
    const HandlerBytes handler = head.handler;
    const std::uint32_t merged = simt::load_relaxed<State::kScope>(&head.merged);
    const auto status = static_cast<nvme::Status>(merged & ~kMergedInDoubt);
    note_end(kept_resolved(head), head.sequence, (merged & kMergedInDoubt) != 0);
    end_callback_slot(c, head_index);
    c.count(&Counters::callbacks, 1);
    State::Runs::run(word, handler, status);
}

/// Whether all missing answers are those of flushed queue pairs.
GN_HD
inline bool waits_for_flushed(const CommandSlot& slot, std::uint32_t control, std::uint64_t flushed) {
    for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r)
        if (((pending_of(control) >> r) & 1u) != 0 && ((flushed >> slot.target[r]) & 1u) == 0) return false;
    return pending_of(control) != 0;
}

/// Makes callback requests ready that wait for flushed queue pairs only. By any lane, outside of polling. It
/// takes the poll lock, so that no lane files an answer meanwhile: a slot with answers missing does not
/// change.
template <class State>
GN_HD GN_NOINLINE void end_flushed(State& c) {
    if (simt::exchange<State::kScope>(&c.any_flushed, 0u) == 0) return;
    if (simt::exchange<State::kScope>(&c.completions.lock, 1u) != 0) {
        simt::exchange<State::kScope>(&c.any_flushed, 1u);  // the lane that polls now will see this
        return;
    }
    const std::uint64_t flushed = simt::load_relaxed<State::kScope>(&c.flushed_queues);
    for (std::uint32_t i = 0; i < c.command_slots; ++i) {
        CommandSlot& slot = c.slot(i);
        const std::uint32_t seen = load_control<State::kScope>(slot);
        if (state_of(seen) != SlotState::kCallback || !waits_for_flushed(slot, seen, flushed)) continue;
        simt::store_relaxed<State::kScope>(
            &slot.control, make_control(generation_of(seen), SlotState::kEnded, pending_of(seen)));
        mark_ready(c, i);
    }
    // Pairs with the exchange of the next holder.
    simt::store_release<State::kScope>(&c.completions.lock, 0u);
}

/// Runs due callbacks that the caller's view knows. By any lane, outside of polling; a callback runs once, in
/// the lane that claimed its bit.
template <class State>
GN_HD GN_NOINLINE void run_due_callbacks(State& c) {
    if (simt::exchange<State::kScope>(&c.any_ready, 0u) == 0) return;
    bool left = false;
    for (std::uint32_t w = 0; w < c.slot_words; ++w) {
        // Acquires what mark_ready released.
        std::uint64_t bits = simt::exchange<State::kScope>(&c.ready_slots()[w], 0ull);
        for (; bits != 0; bits &= bits - 1) {
            const std::uint32_t index = w * 64 + detail::lowest_bit(bits);
            // The chain's first slot stays until all of its commands are merged.
            const CommandSlot& head = c.slot(c.slot(index).request);
            if (head.module == this_module() && State::Runs::knows(head.handler_word)) {
                finish_callback(c, index);
                continue;
            }
            left = true;  // for a lane that knows it: pairs with its exchange, as mark_ready does
            simt::fetch_or<State::kScope>(&c.ready_slots()[w], 1ull << (index % 64));
        }
    }
    if (left) simt::exchange<State::kScope>(&c.any_ready, 1u);
}
template <class State>
GN_HD void run_callbacks(State& c) {
    if constexpr (State::Runs::kAny)
        if (simt::load_relaxed<State::kScope>(&c.any_ready) != 0) run_due_callbacks(c);
}

/// Pauses between two trips that found nothing. A GPU lane alone on its channel looks again at once, as that
/// disturbs no other lane; after kEagerTrips trips (about a microsecond each) it pauses too.
template <class State>
GN_HD void pause_between_trips(std::uint32_t& backoff) {
#if GN_DEVICE_PASS
    constexpr std::uint32_t kEagerTrips = 64;
    if constexpr (State::kScope == simt::Scope::kLane) {
        if (backoff < kEagerTrips) {
            ++backoff;
            return;
        }
        std::uint32_t pauses = backoff - kEagerTrips;
        simt::pause_for_others(pauses);
        backoff = pauses + kEagerTrips;
        return;
    }
#endif
    simt::pause_for_others(backoff);
}

/// Polls the completion queue once, unless another group is polling. All members call. Returns how many
/// completions it consumed. `callbacks`: whether due ones may run here (not from within a callback).
template <class Group, class State>
GN_HD GN_NOINLINE std::uint32_t poll_once(Group group, State& c, bool callbacks = true) {
    PollCounts tally;
    const rdma::ReceiveSet receives{c.receives(), c.queues};
    const auto result =
        rdma::poll<State::kScope>(group, c.completion_queue(), receives,
                                  [&](const rdma::Arrival& arrival) { file_arrival(c, arrival, tally); });
    if (result.taken && result.arrived != 0) {
        for (; tally.due != 0; --tally.due, tally.queues >>= 8)
            // Releases: the receive was posted again; pairs with take_credits.
            simt::fetch_add<State::kScope, simt::Order::kRelease>(
                &c.queue(static_cast<std::uint32_t>(tally.queues & 0xFF)).outstanding, ~0u);
        const PollCounts all = PollCounts::unpack(group.sum(tally.pack()));
        if (group.is_leader()) {
            c.count(&Counters::polls, 1);
            c.count(&Counters::completions, all.filed);
            c.count(&Counters::stale, all.stale);
            c.count(&Counters::refusals, all.refused);
            c.count(&Counters::queue_errors, all.errors);
            c.count(&Counters::malformed, all.malformed);
            // After the trip: every answer that came before a flushed receive is filed.
            if (all.errors + all.malformed != 0) simt::exchange<State::kScope>(&c.any_flushed, 1u);
        }
    }
    if (callbacks) {
        if (simt::load_relaxed<State::kScope>(&c.any_flushed) != 0) end_flushed(c);
        run_callbacks(c);
    }
    return result.arrived;
}

}  // namespace gnstor::gnor
