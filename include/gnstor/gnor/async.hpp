// async.hpp: requests that are sent now and finished later: tokens and callbacks. CPU and GPU lanes.
//
// A request's commands are a chain of command slots. A token names the first; some lane must wait for it,
// poll it until done, or drop it: until then it holds its slots. A request with a callback hands its slots
// over at once; the callback runs in the lane that finds it due, after that lane has released the poll lock,
// and must not make calls that wait. If a queue pair breaks, the callback gets kQueueError, before any
// reclaim(). Buffers must be registered, as no lane stays to copy bytes. No retries: the token's status is
// the drives' answer.
#pragma once

#include <gnstor/gnor/detail/paths/operation.hpp>

namespace gnstor {

/// A request in flight. `status` is kSuccess, or says why the request was not sent. A token that is neither
/// waited for nor dropped holds its command slots until the host calls drop_tokens().
struct [[nodiscard]] Token {
    std::uint32_t head = gnor::kNone;
    std::uint32_t generation = 0;
    nvme::Status status = nvme::Status::kTooManyPending;
    GN_HD
    bool in_flight() const { return nvme::ok(status); }
};

namespace gnor {

template <class State>
GN_HD void abandon_chain(State& c, std::uint32_t head) {
    while (head != kNone) {
        const std::uint32_t next = c.slot(head).next;
        leave_slot(c, head);
        head = next;
    }
}

/// The queue pairs that a chain's commands went to, a bit each.
template <class State>
GN_HD std::uint64_t queues_of(State& c, std::uint32_t head) {
    std::uint64_t out = 0;
    for (std::uint32_t i = head; i != kNone; i = c.slot(i).next)
        for (const std::uint8_t target : c.slot(i).target)
            if (target != kNoTarget) out |= 1ull << target;
    return out;
}

/// A token of the chain that begins at `head`. `so_far`: worst status of its commands that have left the
/// chain.
template <class State>
GN_HD Token token_for(State& c, std::uint32_t head, nvme::Status so_far = nvme::Status::kSuccess) {
    Token token;
    token.status = nvme::Status::kSuccess;
    token.head = head;
    if (head == kNone) return token;
    token.generation = generation_of(load_control<State::kScope>(c.slot(head)));
    simt::store_relaxed<State::kScope>(&c.slot(head).merged, static_cast<std::uint32_t>(so_far));
    return token;
}

/// A try-lock for taking the slots and credits of requests that have several commands and are sent whole or
/// not at all: without it, two lanes that each took half of what they need would both give it back, every
/// time. Its holder takes or gives back, and releases it: it never waits.
template <simt::Scope S>
class AllOrNothingLock {
  public:
    GN_HD
    explicit AllOrNothingLock(ChannelState& c) : word_(&c.gathering) {}
    GN_HD
    bool try_begin() {
        // Read first, so that a failed attempt writes nothing.
        held_ = simt::load_relaxed<S>(word_) == 0 && simt::exchange<S>(word_, 1u) == 0;
        return held_;
    }
    GN_HD
    void end() {
        if (held_) simt::exchange<S>(word_, 0u);
        held_ = false;
    }

  private:
    std::uint32_t* word_;
    bool held_ = false;
};

/// Takes answered commands out of a request's chain and frees their slots, while the rest of the request
/// waits for slots: so a waiting lane holds slots of unanswered commands only, and lanes that wait for each
/// other's slots cannot deadlock. `so_far`: worst of the answers. Returns whether there were any.
template <class State>
GN_HD bool reap_answered(State& c, LaneWork& work, nvme::Status& so_far) {
    std::uint32_t last = kNone;
    bool any = false;
    for (std::uint32_t i = work.head; i != kNone;) {
        const std::uint32_t next = c.slot(i).next;
        if (pending_of(load_control<State::kScope>(c.slot(i))) != 0) {
            last = i;
        } else {
            so_far = worst(so_far, outcome_of<State::kScope>(c.slot(i)));
            (last == kNone ? work.head : c.slot(last).next) = next;
            --work.in_flight;
            free_slot(c, i);
            any = true;
        }
        i = next;
    }
    work.tail = last;
    return any;
}

/// Sends the lane's whole request; waits for slots and credits, and polls, until `deadline`: then kTimedOut
/// if a part was sent, kNotSent if nothing was. A request of more commands than the channel has slots is
/// refused at once (kBadArgument).
template <class Group, class State>
GN_HD GN_NOINLINE Token send_all(Group me, State& c, Operation& op, Cursor& cursor, std::uint32_t hint,
                                 simt::Deadline deadline) {
    LaneWork work;
    std::uint32_t backoff = 0;
    auto so_far = nvme::Status::kSuccess;
    if (cursor.commands(c) > c.command_slots) return Token{kNone, 0, nvme::Status::kBadArgument};
    for (;;) {
        const bool had = work.current != kNone;
        begin_next(me, c, op, cursor, work, kNone, hint, false);
        const bool begun = !had && work.current != kNone;
        bool progress = post_current(me, c, op, cursor, work, begun, false) || begun;
        if (work.current == kNone && !work.has_step && work.exhausted) break;
        progress = poll_once(me, c) != 0 || progress;
        if (!progress) progress = reap_answered(c, work, so_far);
        if (deadline.passed()) {
            (void)reap_answered(c, work, so_far);
            const bool sent = work.head != kNone || (work.current != kNone && work.posted != 0);
            cursor.result = worst(cursor.result, sent ? nvme::Status::kTimedOut : nvme::Status::kNotSent);
            break;
        }
        if (progress)
            backoff = 0;
        else
            pause_between_trips<State>(backoff);
    }
    count_commands(c, cursor.opcode, work.sent);
    cursor.in_doubt = !nvme::ok(so_far) || (!nvme::ok(cursor.result) && work.sent != 0);
    if (nvme::ok(cursor.result)) return token_for(c, work.head, so_far);
    if (work.current != kNone) leave_slot(c, work.current);
    abandon_chain(c, work.head);
    Token token;
    token.status = cursor.result;
    return token;
}

/// Gives back what was taken for commands that are not sent: their credits and slots.
template <class State>
GN_HD void take_back(State& c, std::uint32_t head) {
    while (head != kNone) {
        const CommandSlot& slot = c.slot(head);
        const std::uint32_t next = slot.next;
        for (std::uint32_t r = 0; r < target_count(slot); ++r)
            give_credits<State::kScope>(c.queue(slot.target[r]), 1);
        leave_slot(c, head);
        head = next;
    }
}

/// Takes slots and credits for the whole request of each member with `turn`, or nothing. Returns the first
/// slot of the chain; see cursor.result. `some`: whether it got any, even if they were given back. All
/// members call.
template <class Group, class State>
GN_HD std::uint32_t take_in_step(Group group, State& c, const Operation& op, Cursor& cursor,
                                 std::uint32_t hint, bool turn, bool& some) {
    std::uint32_t head = kNone, tail = kNone;
    Step step{};
    for (;;) {
        const bool wanted = turn && nvme::ok(cursor.result) && cursor.next(c, step);
        if (!group.any(wanted)) break;
        std::uint32_t index = kNone;
        auto status = nvme::Status::kSuccess;
        Begin outcome = begin_step(group, c, op, wanted, step, hint, index, status);
        const bool begun = wanted && outcome == Begin::kBegun;
        if (!take_all_credits(group, c, begun, index) && begun) {
            free_slot(c, index);
            outcome = Begin::kLater;
        }
        if (!wanted) continue;
        if (outcome != Begin::kBegun) {
            cursor.report(step.request, outcome == Begin::kRefused ? status : nvme::Status::kTooManyPending);
            continue;
        }
        if (head == kNone)
            head = index;
        else
            c.slot(tail).next = index;
        tail = index;
    }
    some = head != kNone;
    if (nvme::ok(cursor.result)) return head;
    take_back(c, head);
    return kNone;
}

/// Whether a lane's request can ever be sent at once: the channel has slots for all of its commands, and
/// credits of every queue. `cursor` is in that request, or before it.
template <class State>
GN_HD GN_NOINLINE bool fits_at_once(State& c, const Operation& op, Cursor cursor) {
    cursor.begin_again();
    const std::uint32_t commands = cursor.commands(c);
    if (commands > c.command_slots) return false;
    if (commands <= c.depth) return true;
    std::uint16_t demand[placement::kMaxSlots] = {};
    for (Step step{}; cursor.next(c, step);) {
        const Targets targets = choose_targets(c, op, step);
        for (std::uint32_t i = 0; i < targets.count; ++i)
            if (++demand[targets.slot[i]] > c.depth) return false;
    }
    return true;
}

/// Takes slots and credits for each member's whole request, or nothing. Returns the first slot of the chain;
/// see cursor.result. All members call. At first all take in step; members that got only a part and gave it
/// back have blocked each other, so they try once more, one after the other. Of groups (and single lanes)
/// with requests of several commands one takes at a time (AllOrNothingLock): the others get kTooManyPending,
/// and no holder of a part ever waits.
template <class Group, class State>
GN_HD std::uint32_t take_everything(Group group, State& c, const Operation& op, Cursor& cursor,
                                    std::uint32_t hint) {
    const bool several = cursor.commands(c) > 1;
    AllOrNothingLock<State::kScope> gathering(c);
    bool allowed = true;
    if (group.any(several)) {
        if (group.is_leader()) allowed = gathering.try_begin();
        allowed = group.shfl(allowed, group.leader());
        group.sync();  // orders what the leader acquired before all members' use
    }
    std::uint32_t head = kNone;
    bool turn = allowed || !several, some = false, first = true;
    if (!turn) cursor.result = nvme::Status::kTooManyPending;
    for (simt::LaneSet rest;; first = false) {
        const std::uint32_t mine = take_in_step(group, c, op, cursor, hint, turn, some);
        if (turn) head = mine;
        rest = first ? group.ballot(some && cursor.result == nvme::Status::kTooManyPending)
                     : rest.without_lowest();
        if (rest.empty() || group.size() == 1) break;
        turn = group.lane() == rest.lowest();
        if (turn) cursor.begin_again();
    }
    group.sync();  // orders what members gave back before the next holder of the lock
    gathering.end();
    if (several && cursor.result == nvme::Status::kTooManyPending && !fits_at_once(c, op, cursor))
        cursor.result = nvme::Status::kBadArgument;
    return head;
}

/// Reserves send entries for every replica of every command of each member's chain, or none. All members
/// call; kNone: a member without a chain.
template <class Group, class State>
GN_HD nvme::Status reserve_chain(Group group, State& c, std::uint32_t head) {
    std::uint32_t at = head, replica = 0;
    auto stuck = nvme::Status::kSuccess;
    while (group.any(at != kNone && nvme::ok(stuck))) {
        const bool wanted = at != kNone && nvme::ok(stuck);
        const PostOutcome outcome = reserve_entry(group, c, wanted, at, replica);
        if (outcome == PostOutcome::kPosted) {
            if (++replica < target_count(c.slot(at))) continue;
            at = c.slot(at).next;
            replica = 0;
        } else if (wanted) {
            stuck =
                outcome == PostOutcome::kBroken ? nvme::Status::kQueueError : nvme::Status::kTooManyPending;
        }
    }
    if (nvme::ok(stuck)) return stuck;
    for (std::uint32_t i = head; i != kNone; i = c.slot(i).next) {
        const std::uint32_t reserved = i == at ? replica : target_count(c.slot(i));
        for (std::uint32_t r = 0; r < reserved; ++r) drop_entry(c, i, r);
        if (i == at) break;
    }
    return stuck;
}

/// Sends each member's whole request, or returns kTooManyPending at once (kBadArgument: it can never fit).
/// All members call; one without a request passes a cursor with request_count 0. All resources of a request
/// are taken before any of it is sent: no replica sees a write that the caller is told was not sent.
template <class Group, class State>
GN_HD GN_NOINLINE Token send_at_once(Group group, State& c, Operation& op, Cursor& cursor, std::uint32_t hint,
                                     bool ring) {
    Token token;
    const std::uint32_t head = take_everything(group, c, op, cursor, hint);
    const nvme::Status stuck = reserve_chain(group, c, head);
    std::uint32_t at = nvme::ok(stuck) ? head : kNone, replica = 0, count = 0;
    // Before anything is sent: after that the answers may come at once.
    if (at != kNone) token = token_for(c, head);
    while (group.any(at != kNone)) {
        post_reserved(group, c, op.context, at != kNone, at, replica, ring);
        if (at == kNone) continue;
        ++count;
        if (++replica < target_count(c.slot(at))) continue;
        at = c.slot(at).next;
        replica = 0;
    }
    const std::uint32_t sent = group.sum(count);
    if (group.is_leader()) count_commands(c, cursor.opcode, sent);
    if (nvme::ok(cursor.result) && nvme::ok(stuck)) return head != kNone ? token : token_for(c, kNone);
    take_back(c, nvme::ok(stuck) ? kNone : head);
    token.status = worst(cursor.result, stuck);
    return token;
}

/// Gives up a request that was sent: no lane will see how it ended, so its sequence counts as in doubt.
template <class State>
GN_HD void give_chain_up(State& c, std::uint32_t head) {
    if (head != kNone) mark_in_doubt(kept_resolved(c.slot(head)), 1);
    abandon_chain(c, head);
}

/// Whether the token's request was neither waited for nor dropped yet.
template <class State>
GN_HD bool is_current(State& c, const Token& token) {
    if (token.head >= c.command_slots) return false;
    const std::uint32_t control = load_control<State::kScope>(c.slot(token.head));
    return state_of(control) == SlotState::kOwned && generation_of(control) == token.generation;
}

enum class ChainState : std::uint32_t { kRunning, kDone, kBroken };

template <class State>
GN_HD ChainState chain_state(State& c, std::uint32_t head) {
    auto state = ChainState::kDone;
    for (std::uint32_t i = head; i != kNone; i = c.slot(i).next) {
        const std::uint32_t control = load_control<State::kScope>(c.slot(i));
        if (pending_of(control) == 0) continue;
        if (waits_on_broken_queue(c, c.slot(i), control)) return ChainState::kBroken;
        state = ChainState::kRunning;
    }
    return state;
}

/// Fast path: ends a chain of one successful command that holds nothing but its slot. False: it is not done,
/// or not such a chain (chain_state, end_chain). All words are loaded together.
template <class State>
GN_HD GN_INLINE bool end_single(State& c, std::uint32_t head) {
    if (head == kNone) return false;
    CommandSlot& slot = c.slot(head);
    const std::uint32_t control = load_control<State::kScope>(slot);
    const std::uint32_t none = slot.next & slot.pool_first & slot.held_run;
    std::uint32_t bad = simt::load_relaxed<State::kScope>(&slot.merged);
    GN_DEVICE_UNROLL
    for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r) {
        const std::uint32_t answer = simt::load_relaxed<State::kScope>(&slot.answer[r]);
        bad |= slot.target[r] != kNoTarget ? answer : 0;
    }
    std::uint64_t* const words = kept_resolved(slot);
    const std::uint64_t sequence = slot.sequence;
    static_assert(static_cast<std::uint32_t>(nvme::Status::kSuccess) == 0,
                  "success must be 0, because the statuses of all answers are combined with OR");
    if (pending_of(control) != 0 || none != kNone || bad != 0) return false;
    mark_resolved(words, sequence, 1);
    simt::store_relaxed<State::kScope>(&slot.control,
                                       make_control(generation_of(control), SlotState::kFree, 0));
    give_run<State::kScope>(c.free_slots(), head, 1);
    return true;
}

/// Ends a chain and returns its worst answer; `missing` (kQueueError or kTimedOut) stands for answers not
/// there.
template <class State>
GN_HD nvme::Status end_chain(State& c, std::uint32_t head, nvme::Status missing) {
    auto out = nvme::Status::kSuccess;
    if (head == kNone) return out;
    out = static_cast<nvme::Status>(simt::load_relaxed<State::kScope>(&c.slot(head).merged));
    std::uint64_t* const words = kept_resolved(c.slot(head));
    const std::uint64_t sequence = c.slot(head).sequence;
    bool in_doubt = false;
    for (std::uint32_t i = head; i != kNone;) {
        const std::uint32_t next = c.slot(i).next;
        const bool answered = pending_of(load_control<State::kScope>(c.slot(i))) == 0;
        const nvme::Status mine = answered ? outcome_of<State::kScope>(c.slot(i)) : missing;
        if (!nvme::ok(mine)) in_doubt = in_doubt || !answered || ended_in_doubt<State::kScope>(c.slot(i));
        out = worst(out, mine);
        leave_slot(c, i);
        i = next;
    }
    note_end(words, sequence, in_doubt);
    return out;
}

/// Waits for each member's token (one that is not in flight is done at once). The token is spent, whatever
/// the result.
template <class Group, class State>
GN_HD GN_NOINLINE nvme::Status wait_for(Group group, State& c, const Token& token, simt::Deadline deadline) {
    std::uint32_t backoff = 0;
    bool waiting = token.in_flight() && token.head != kNone;
    nvme::Status result = token.status;
    if (waiting && !is_current(c, token)) {
        waiting = false;
        result = nvme::Status::kStaleToken;
    }
    while (group.any(waiting)) {
        const bool passed = group.is_leader() && deadline.passed();
        const bool expired = group.shfl(passed, group.leader());
        if (waiting) {
            const ChainState state = chain_state(c, token.head);
            waiting = state == ChainState::kRunning && !expired;
            if (!waiting) {
                const auto missing =
                    state == ChainState::kBroken ? nvme::Status::kQueueError : nvme::Status::kTimedOut;
                result = end_chain(c, token.head, missing);
                if (result == nvme::Status::kTimedOut) c.count(&Counters::timeouts, 1);
            }
        }
        if (!group.any(waiting)) break;
        if (poll_once(group, c) == 0)
            pause_between_trips<State>(backoff);
        else
            backoff = 0;
    }
    return result;
}

/// Attaches a callback to a sent request: `handler` runs in a lane that finds all of its answers filed.
template <class State, class Handler>
GN_HD void attach_callback(State& c, std::uint32_t head, const Handler& handler) {
    check_handler<Handler>();
    HandlerBytes bytes{};
    __builtin_memcpy(bytes.words, &handler, sizeof(handler));
    std::uint32_t commands = 0;
    for (std::uint32_t i = head; i != kNone; i = c.slot(i).next) {
        c.slot(i).request = head;
        ++commands;
    }
    CommandSlot& first = c.slot(head);
    first.handler_word = handler_word<Handler>();
    first.module = module_of(handler);
    first.handler = bytes;
    simt::store_relaxed<State::kScope>(&first.remaining, commands);
    for (std::uint32_t i = head; i != kNone;) {
        const std::uint32_t next = c.slot(i).next;  // read first: the slot may be freed right after
        if (!hand_over<State::kScope>(c.slot(i), SlotState::kCallback)) {
            // Answered before: no other lane changes the word now. It is marked all the same, or
            // Channel::drop_tokens would take the slot for one with a token.
            const std::uint32_t control = load_control<State::kScope>(c.slot(i));
            simt::store_relaxed<State::kScope>(&c.slot(i).control,
                                               make_control(generation_of(control), SlotState::kCallback, 0));
            mark_ready(c, i);
        }
        i = next;
    }
    // A queue pair may have been flushed before. Pairs with the fetch_or of break_queue: one of the two sees
    // the other.
    if (simt::fetch_or<State::kScope>(&c.flushed_queues, 0ull) != 0)
        simt::exchange<State::kScope>(&c.any_flushed, 1u);
}

}  // namespace gnor
}  // namespace gnstor
