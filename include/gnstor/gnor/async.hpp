// async.hpp: requests that are sent now and finished later: tokens and callbacks. CPU and GPU lanes.
//
// A request's commands are a chain of command slots. A token names the first; it must be waited for, polled
// until done, or dropped, by any one lane: until then it holds its slots. A callback request hands its slots
// over at once; the callback runs in whatever lane finds it due, after polling was handed over, and may only
// *try* (no call that waits). Buffers must be registered: nobody is there to move bytes. No retries: the
// token's status is the drives' answer.
#pragma once

#include <gnstor/gnor/operation.hpp>

namespace gnstor {

/// A request in flight. `status` is kSuccess while it is one; anything else: it was not sent, and that is
/// why.
struct Token {
    std::uint32_t head = gnor::kNone;
    std::uint32_t generation = 0;
    nvme::Status status = nvme::Status::kTooManyPending;
    GN_HD
    bool in_flight() const { return nvme::ok(status); }
};

namespace gnor {

GN_HD
inline void abandon_chain(ChannelState& c, std::uint32_t head) {
    while (head != kNone) {
        const std::uint32_t next = c.slot(head).next;
        leave_slot(c, head);
        head = next;
    }
}

/// Sends all that each member's cursor names, or nothing that it would have to answer for. All members call;
/// a member without a request brings a cursor with request_count 0. `helps`: whether it may poll (and wait)
/// until `deadline`.
template <class Group>
GN_HD
Token send_all(Group group, ChannelState& c, Operation& op, Cursor& cursor, std::uint32_t hint, bool helps,
               simt::Deadline deadline, bool ring = true) {
    LaneWork work;
    std::uint32_t backoff = 0;
    bool unsent = true;
    for (;;) {
        const bool had = work.current != kNone;
        begin_next(c, op, cursor, work, kNone, hint, false);
        const bool progress =
            post_current(group, c, op, cursor, work, !had && work.current != kNone, false, ring);
        unsent = work.current != kNone || work.has_step || !work.exhausted;
        if (!group.any(unsent)) break;
        const bool passed = group.is_leader() && (!helps || deadline.passed());
        if (!group.any(progress) && group.shfl(passed, group.leader())) break;
        if (!helps) continue;
        if (poll_trip(group, c) == 0 && !progress) simt::pause(backoff);
    }
    const std::uint32_t sent = sum_of(group, work.sent);
    if (group.is_leader()) count_commands(c, cursor.opcode, sent);
    Token token;
    if (work.current != kNone) leave_slot(c, work.current);
    if (unsent) cursor.result = worst(cursor.result, nvme::Status::kTooManyPending);
    token.status = cursor.result;
    if (!nvme::ok(token.status)) {
        abandon_chain(c, work.head);
        return token;
    }
    token.head = work.head;
    if (work.head != kNone) token.generation = generation_of(load_control(c.slot(work.head)));
    return token;
}

/// Whether the token still names a request that nobody waited for or dropped.
GN_HD
inline bool is_current(ChannelState& c, const Token& token) {
    if (token.head >= c.command_slots) return false;
    const std::uint32_t control = load_control(c.slot(token.head));
    return state_of(control) == SlotState::kOwned && generation_of(control) == token.generation;
}

enum class ChainState : std::uint32_t { kRunning, kDone, kBroken };

GN_HD
inline ChainState chain_state(ChannelState& c, std::uint32_t head) {
    auto state = ChainState::kDone;
    for (std::uint32_t i = head; i != kNone; i = c.slot(i).next) {
        const std::uint32_t control = load_control(c.slot(i));
        if (pending_of(control) == 0) continue;
        if (waits_in_vain(c, c.slot(i), control)) return ChainState::kBroken;
        state = ChainState::kRunning;
    }
    return state;
}

/// Ends a chain: the worst of its answers, kQueueError or kTimedOut for those that are missing.
GN_HD
inline nvme::Status end_chain(ChannelState& c, std::uint32_t head, nvme::Status missing) {
    auto out = nvme::Status::kSuccess;
    for (std::uint32_t i = head; i != kNone;) {
        const std::uint32_t next = c.slot(i).next;
        const bool answered = pending_of(load_control(c.slot(i))) == 0;
        out = worst(out, answered ? outcome_of(c.slot(i)) : missing);
        leave_slot(c, i);
        i = next;
    }
    return out;
}

/// Waits for each member's token (one that is not in flight is done at once). The token is spent, whatever
/// the result.
template <class Group>
GN_HD
nvme::Status wait_for(Group group, ChannelState& c, const Token& token, simt::Deadline deadline) {
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
        if (poll_trip(group, c) == 0)
            simt::pause(backoff);
        else
            backoff = 0;
    }
    return result;
}

/// Hands a sent request over to whoever files its last answer, which then runs `callback`.
GN_HD
inline void attach_callback(ChannelState& c, std::uint32_t head, Callback callback, void* argument) {
    std::uint32_t commands = 0;
    for (std::uint32_t i = head; i != kNone; i = c.slot(i).next) {
        c.slot(i).request = head;
        ++commands;
    }
    CommandSlot& first = c.slot(head);
    first.callback = reinterpret_cast<std::uint64_t>(callback);
    first.argument = reinterpret_cast<std::uint64_t>(argument);
    simt::store_relaxed<simt::Scope::kDevice>(&first.merged, 0u);
    simt::store_relaxed<simt::Scope::kDevice>(&first.remaining, commands);
    for (std::uint32_t i = head; i != kNone;) {
        const std::uint32_t next = c.slot(i).next;  // read first: the slot may be gone right after
        if (!hand_over(c.slot(i), SlotState::kCallback)) mark_ready(c, i);
        i = next;
    }
}

}  // namespace gnor
}  // namespace gnstor
