// operation.hpp: carries a request out: resources, sending, waiting, retries, deadline. CPU and GPU lanes.
//
// run() is the one loop behind every synchronous call. Each member of the group walks its own Cursor and
// keeps up to a window of commands in flight, chained through their slots; what needs all lanes (posting,
// polling, moving bytes) is done together. Resources are taken in the order pool buffer, command slot, send
// credit, each with a try: a lane that gets none goes round, polls, and finishes what it has in flight, so
// nothing is waited for while something later is held. What an SSD refuses for now is sent again
// (retrying.hpp). A deadline ends the waiting, not the commands: those in flight go into quarantine
// (command_slots.hpp).
#pragma once

#include <gnstor/gnor/moving.hpp>
#include <gnstor/gnor/polling.hpp>
#include <gnstor/gnor/posting.hpp>
#include <gnstor/gnor/request.hpp>
#include <gnstor/gnor/retrying.hpp>
#include <gnstor/simt/group.hpp>
#include <gnstor/simt/time.hpp>

namespace gnstor::gnor {

inline constexpr std::uint32_t kLoneWindow = 8;  ///< commands in flight a lane when few lanes work together
inline constexpr std::uint32_t kWarpWindow = 2;  ///< and when many do

enum class Begin : std::uint32_t { kBegun, kLater, kRefused };

/// The drives that a step goes to, into `slot`-like arrays. Returns how many; 0: none, see `status`.
struct Targets {
    std::uint8_t slot[placement::kMaxReplicas];
    std::uint32_t count = 0;
    nvme::Status status = nvme::Status::kSuccess;
};

GN_HD
inline bool serves(const placement::ArrayMap& map, std::uint32_t slot) {
    const auto state = map.slots[slot].state;
    return slot < map.slot_count && state != placement::SlotState::kEmpty &&
           state != placement::SlotState::kDown;
}

/// Reads go to one replica that is *in*, the first by rank that is not broken, beginning behind those that
/// were asked; all else goes to every replica, and to none if one of them cannot be reached.
template <class State>
GN_HD Targets choose_targets(State& c, const Operation& op, const Step& step) {
    Targets t;
    if (step.fixed_target != kNone) {
        if (!serves(*op.map, step.fixed_target)) return t;  // nobody there: nothing to flush
        t.slot[t.count++] = static_cast<std::uint8_t>(step.fixed_target);
    } else {
        const auto replicas = placement::place(*op.map, op.geometry, step.block >> op.geometry.chunk_shift);
        const bool read = step.opcode == nvme::IoOpcode::kRead;
        for (std::uint32_t i = 0; i < replicas.count; ++i)
            if (!read || op.map->slots[replicas.slot[i]].state == placement::SlotState::kIn)
                t.slot[t.count++] = replicas.slot[i];
        t.status = t.count == 0 ? nvme::Status::kQueueError : nvme::Status::kSuccess;
        if (read && t.count != 0) {
            std::uint32_t pick = kNone;
            for (std::uint32_t i = 0; i < t.count && pick == kNone; ++i) {
                const std::uint32_t s = t.slot[((step.attempts & kAskedMask) + i) % t.count];
                if (s < c.queues && !is_broken(c, s)) pick = s;
            }
            t.count = 1;
            t.slot[0] = static_cast<std::uint8_t>(pick == kNone ? t.slot[0] : pick);
        }
    }
    for (std::uint32_t i = 0; i < t.count; ++i)
        if (t.slot[i] >= c.queues || is_broken(c, t.slot[i])) t.status = nvme::Status::kQueueError;
    if (!nvme::ok(t.status)) t.count = 0;
    return t;
}

/// Whether every replica of a chunk that is *in* can be asked now. One that cannot may hold a newer version
/// than those in doubt.
template <class State>
GN_HD bool can_ask_all(State& c, const Operation& op, const CommandSlot& slot) {
    const auto replicas = placement::place(*op.map, op.geometry, slot.block >> op.geometry.chunk_shift);
    for (std::uint32_t i = 0; i < replicas.count; ++i) {
        const std::uint32_t s = replicas.slot[i];
        if (op.map->slots[s].state != placement::SlotState::kIn) continue;
        if (s >= c.queues || is_broken(c, s)) return false;
    }
    return true;
}

/// A run of the pool for each member with `blocks` > 0, or kNone. All members call.
template <class Group, class State>
GN_HD std::uint32_t take_bounce_run(Group group, State& c, std::uint32_t blocks, std::uint32_t hint) {
    const auto open = group.ballot(blocks != 0);
    if (open.empty()) return kNone;
    const std::uint32_t first = group.shfl(blocks, open.lowest());
    if (!group.any(blocks != 0 && blocks != first)) return take_pool_each(group, c, blocks != 0, first, hint);
    return blocks != 0 ? take_pool_run(c, blocks, hint) : kNone;
}

/// Takes pool buffer and command slot for the step of each member with `wanted`. kRefused: `status` says why
/// (success: there is nothing to do). All members call.
template <class Group, class State>
GN_HD Begin begin_step(Group group, State& c, const Operation& op, bool wanted, const Step& step,
                       std::uint32_t hint, std::uint32_t& index, nvme::Status& status) {
    Targets targets;
    if (wanted) targets = choose_targets(c, op, step);
    const bool goes = targets.count != 0;
    const bool bounced = goes && step.bytes != 0 && !step.registered;
    const std::uint32_t pool_blocks = bounced ? pool_blocks_of(step.bytes) : 0;
    const std::uint32_t pool_first = take_bounce_run(group, c, pool_blocks, hint);
    const bool has_buffer = goes && (!bounced || pool_first != kNone);
    index = take_slot(group, c, has_buffer, hint);
    status = targets.status;
    if (!goes) return Begin::kRefused;
    status = has_buffer ? nvme::Status::kNotSent : nvme::Status::kNoBuffer;
    if (index == kNone) {
        if (bounced && has_buffer) give_pool_run(c, pool_first, pool_blocks);
        return Begin::kLater;
    }
    CommandSlot& slot = c.slot(index);
    for (std::uint32_t i = 0; i < targets.count; ++i) slot.target[i] = targets.slot[i];
    slot.opcode = static_cast<std::uint8_t>(step.opcode);
    slot.first_sector = step.first_sector;
    slot.sectors = step.sectors;
    slot.attempts = step.attempts;
    slot.map_version = op.map->version;
    slot.block = step.block;
    slot.blocks = step.blocks;
    slot.pool_first = pool_first;
    const Keys keys =
        bounced ? pool_keys(c, pool_step_of(c, pool_first)) : Keys{true, false, step.lkey, step.rkey};
    slot.lkey = keys.lkey;
    slot.rkey = keys.rkey;
    slot.buffer = step.buffer;
    slot.sequence = step.sequence;
    slot.request = step.request;
    // Where it is asked for, the buffer is held from here on: free() finds it in use.
    if (c.checks != 0 && !bounced && step.bytes != 0) slot.held_run = hold_run(c, slot.buffer);
    if (step.opcode == nvme::IoOpcode::kDatasetManagement)
        *reinterpret_cast<nvme::DsmRange*>(wire_of(c, slot)) = nvme::DsmRange{0, step.blocks, step.block};
    return Begin::kBegun;
}

/// The step that a slot was begun for, so that it can be begun again elsewhere.
GN_HD
inline Step step_of(const CommandSlot& slot) {
    Step step{};
    step.opcode = static_cast<nvme::IoOpcode>(slot.opcode);
    step.first_sector = slot.first_sector;
    step.sectors = slot.sectors;
    step.attempts = slot.attempts;
    step.block = slot.block;
    step.blocks = slot.blocks;
    step.bytes = payload_bytes(slot);
    step.request = slot.request;
    step.fixed_target =
        slot.opcode == static_cast<std::uint8_t>(nvme::IoOpcode::kFlush) ? slot.target[0] : kNone;
    step.buffer = slot.buffer;
    step.sequence = slot.sequence;
    step.registered = slot.pool_first == kNone;
    step.lkey = slot.lkey;
    step.rkey = slot.rkey;
    return step;
}

/// One lane's part of run(): what it is about to send and what it has in flight.
struct LaneWork {
    std::uint32_t current = kNone;  ///< slot that is being posted
    std::uint32_t posted = 0;       ///< to how many of its targets
    std::uint32_t targets = 0;
    std::uint32_t head = kNone, tail = kNone, in_flight = 0;
    bool has_step = false;  ///< `step` is waiting for resources
    bool exhausted = false;
    RetryPause pause;  ///< of the oldest command
    Step step{};
    nvme::Status stall = nvme::Status::kNotSent;  ///< what to report if `step` never gets its resources
    std::uint32_t sent = 0, timeouts = 0, bounced = 0;

    /// What a request is left with whose only command is under way.
    GN_HD
    void adopt(std::uint32_t index) {
        head = tail = index;
        in_flight = 1;
        exhausted = true;
    }
    GN_HD
    bool busy() const { return current != kNone || head != kNone || has_step || !exhausted; }
    GN_HD
    void enqueue(ChannelState& c) {
        if (head == kNone)
            head = current;
        else
            c.slot(tail).next = current;
        tail = current;
        current = kNone;
        ++in_flight;
    }
    GN_HD
    std::uint32_t dequeue(ChannelState& c) {
        const std::uint32_t index = head;
        head = c.slot(index).next;
        --in_flight;
        return index;
    }
};

/// Whether an answer is missing from a drive whose queue pair is in error.
template <class State>
GN_HD bool waits_in_vain(State& c, const CommandSlot& slot, std::uint32_t control) {
    for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r)
        if (((pending_of(control) >> r) & 1u) != 0 && is_broken(c, slot.target[r])) return true;
    return false;
}

/// Ends a command that did not work, without another attempt. `index` is free or in quarantine afterwards.
template <class State>
GN_HD void fail_command(State& c, Cursor& cursor, std::uint32_t index, nvme::Status status) {
    cursor.report(c.slot(index).request, status);
    leave_slot(c, index);
}

/// The same, where an answer is missing.
template <class State>
GN_HD void fail_unanswered(State& c, Cursor& cursor, std::uint32_t index, nvme::Status status) {
    cursor.in_doubt = true;
    fail_command(c, cursor, index, status);
}

/// Another attempt with the same slot, pool buffer and sequence, for a command of which nothing is
/// unanswered: it becomes current. Otherwise no drive is left to ask, and it ends with what that means after
/// `refused`.
template <class State>
GN_HD GN_NOINLINE void start_again(State& c, const Operation& op, Cursor& cursor, LaneWork& work,
                                   std::uint32_t index, nvme::Status refused) {
    CommandSlot& slot = c.slot(index);
    const Targets targets = choose_targets(c, op, step_of(slot));
    if (targets.count == 0) {  // success: a flush of a slot that the newer map has nobody in
        const bool done = nvme::ok(targets.status);
        fail_command(c, cursor, index, done ? nvme::Status::kSuccess : worst(refused, targets.status));
        return;
    }
    slot.map_version = op.map->version;
    for (std::uint32_t i = 0; i < placement::kMaxReplicas; ++i)
        slot.target[i] = i < targets.count ? targets.slot[i] : kNoTarget;
    // A new generation, so that no answer to the earlier attempt can be taken for one to this.
    const std::uint32_t generation = generation_of(simt::load_relaxed<State::kScope>(&slot.control)) + 1;
    simt::store_relaxed<State::kScope>(&slot.control,
                                       make_control(generation & 0xFFFFu, SlotState::kOwned, 0));
    slot.next = kNone;
    work.current = index;
    work.posted = 0;
    work.targets = targets.count;
}

/// The oldest command was refused: another attempt takes its place, at once or after a pause, or it ends with
/// that. False: it waits.
template <class State>
GN_HD bool retry_or_fail(State& c, Operation& op, Cursor& cursor, LaneWork& work, nvme::Status status,
                         bool expired) {
    if (work.current != kNone) return false;  // what is being sent goes first
    CommandSlot& slot = c.slot(work.head);
    NextAttempt next = next_attempt(slot, op.geometry.replicas, status);
    if (next == NextAttempt::kAcceptOlder && !can_ask_all(c, op, slot)) next = NextAttempt::kEnd;
    if (next == NextAttempt::kEnd || expired) {
        // What was not begun waited behind this one.
        if (next != NextAttempt::kEnd && nvme::may_retry(status)) work.stall = status;
        work.pause = RetryPause{};
        fail_command(c, cursor, work.dequeue(c), status);
        return true;
    }
    if (!work.pause.over(c, op, slot, next)) return false;
    work.pause.start();
    op.load_map();
    const std::uint8_t said = attempts_after(slot.attempts, status);
    slot.attempts = next == NextAttempt::kNextReplica   ? static_cast<std::uint8_t>(said + 1)
                    : next == NextAttempt::kAcceptOlder ? kOlderAccepted
                                                        : std::uint8_t{0};
    start_again(c, op, cursor, work, work.dequeue(c), status);
    return true;
}

/// Whether a lane has a step and room for it.
template <class State>
GN_HD bool wants_to_begin(State& c, Cursor& cursor, LaneWork& work, std::uint32_t window, bool expired) {
    if (expired) {
        if (work.has_step) cursor.report(work.step.request, work.stall);
        if (work.has_step || !work.exhausted) ++work.timeouts;
        work.has_step = false;
        if (!work.exhausted) cursor.give_up(c, work.stall);
        work.exhausted = true;
        return false;
    }
    if (work.current != kNone || work.in_flight >= window) return false;
    if (!work.has_step && !work.exhausted) {
        work.has_step = cursor.next(c, work.step);
        work.exhausted = !work.has_step;
    }
    return work.has_step;
}

/// Takes what each member has next, when it has room for it. All members call.
template <class Group, class State>
GN_HD void begin_next(Group group, State& c, const Operation& op, Cursor& cursor, LaneWork& work,
                      std::uint32_t window, std::uint32_t hint, bool expired) {
    const bool wanted = wants_to_begin(c, cursor, work, window, expired);
    if (!group.any(wanted)) return;
    nvme::Status status = nvme::Status::kSuccess;
    std::uint32_t index = kNone;
    const Begin outcome = begin_step(group, c, op, wanted, work.step, hint, index, status);
    if (!wanted) return;
    if (outcome == Begin::kLater) {
        work.stall = status;
        return;
    }
    work.has_step = false;
    if (outcome == Begin::kRefused) return cursor.report(work.step.request, status);
    work.current = index;
    work.posted = 0;
    work.targets = target_count(c.slot(index));
}

/// Sends what is current to its drives, as far as there are credits; `begun`: its pool buffer is still to be
/// filled. All members call.
template <class Group, class State>
GN_HD bool post_current(Group group, State& c, Operation& op, Cursor& cursor, LaneWork& work, bool begun,
                        bool expired) {
    bool progress = false;
    const bool moves = begun && c.slot(work.current).pool_first != kNone &&
                       c.slot(work.current).opcode == static_cast<std::uint8_t>(nvme::IoOpcode::kWrite);
    const CommandSlot* fresh = moves ? &c.slot(work.current) : nullptr;
    const std::uint32_t bytes = moves ? payload_bytes(*fresh) : 0;
    work.bounced += bytes;
    move_each(group, moves, moves ? wire_of(c, *fresh) : 0, moves ? fresh->buffer : 0, bytes);
    for (bool more = true; more;) {
        const bool wanted = work.current != kNone && !expired;
        const PostOutcome outcome = post(group, c, op.context, wanted, work.current, work.posted);
        if (outcome == PostOutcome::kPosted) {
            progress = true;
            ++work.sent;
            if (++work.posted == work.targets) work.enqueue(c);
        } else if (outcome == PostOutcome::kBroken) {
            const std::uint32_t index = work.current;
            work.current = kNone;
            const auto next = next_attempt(c.slot(index), op.geometry.replicas, nvme::Status::kQueueError);
            if (work.posted == 0 && next == NextAttempt::kNextReplica) {
                ++c.slot(index).attempts;
                start_again(c, op, cursor, work, index, nvme::Status::kQueueError);
            } else {
                cursor.in_doubt = cursor.in_doubt || work.posted != 0;
                fail_command(c, cursor, index, nvme::Status::kQueueError);
            }
        }
        more = group.any(outcome == PostOutcome::kPosted && work.current != kNone);
    }
    if (expired && work.current != kNone) {
        ++work.timeouts;
        // What no replica got is not under way.
        const auto status = work.posted == 0 ? nvme::Status::kNotSent : nvme::Status::kTimedOut;
        cursor.in_doubt = cursor.in_doubt || work.posted != 0;
        cursor.report(c.slot(work.current).request, status);
        leave_slot(c, work.current);
        work.current = kNone;
    }
    return progress;
}

/// The oldest command waits for a drive whose queue pair is in error. The user's own buffer may still be
/// written by it, so no second command into that; with a pool buffer another replica may be asked.
template <class State>
GN_HD bool abandon_broken(State& c, Operation& op, Cursor& cursor, LaneWork& work) {
    const CommandSlot& slot = c.slot(work.head);
    const bool again =
        slot.pool_first != kNone &&
        next_attempt(slot, op.geometry.replicas, nvme::Status::kQueueError) == NextAttempt::kNextReplica;
    if (again && work.has_step) return false;
    const std::uint32_t index = work.dequeue(c);
    if (!again) {
        fail_unanswered(c, cursor, index, nvme::Status::kQueueError);
        return true;
    }
    work.step = step_of(slot);
    work.step.registered = false;
    ++work.step.attempts;
    work.has_step = true;
    leave_slot(c, index);
    return true;
}

/// Looks at the oldest command in flight of each member and finishes it if it can be. All members call.
template <class Group, class State>
GN_HD bool reap_head(Group group, State& c, Operation& op, Cursor& cursor, LaneWork& work, bool expired) {
    std::uint32_t done = kNone;
    bool moves = false;
    bool progress = false;
    if (work.head != kNone) {
        CommandSlot& slot = c.slot(work.head);
        const std::uint32_t control = load_control<State::kScope>(slot);
        if (pending_of(control) == 0) {
            const nvme::Status status = outcome_of<State::kScope>(slot);
            if (nvme::ok(status)) {
                progress = true;
                work.pause = RetryPause{};
                done = work.dequeue(c);
                moves = slot.pool_first != kNone &&
                        slot.opcode == static_cast<std::uint8_t>(nvme::IoOpcode::kRead);
            } else {
                // Whatever later attempts are told: only their success makes the replicas alike.
                cursor.in_doubt = cursor.in_doubt || ended_in_doubt<State::kScope>(slot);
                progress = retry_or_fail(c, op, cursor, work, status, expired);
            }
        } else if (expired) {
            progress = true;
            ++work.timeouts;
            fail_unanswered(c, cursor, work.dequeue(c), nvme::Status::kTimedOut);
        } else if (waits_in_vain(c, slot, control)) {
            progress = abandon_broken(c, op, cursor, work);
        }
    }
    const CommandSlot* slot = moves ? &c.slot(done) : nullptr;
    const std::uint32_t bytes = moves ? payload_bytes(*slot) : 0;
    work.bounced += bytes;
    move_each(group, moves, moves ? slot->buffer : 0, moves ? wire_of(c, *slot) : 0, bytes);
    if (done != kNone) free_slot(c, done);
    return progress;
}

/// Carries out what the members' cursors name, and what they have under way; returns the worst status of all,
/// the same to all members.
template <class Group, class State>
GN_HD GN_NOINLINE nvme::Status go_on(Group group, State& c, Operation& op, Cursor& cursor, LaneWork& work,
                                     std::uint32_t hint, simt::Deadline deadline) {
    std::uint32_t backoff = 0;
    const std::uint32_t window = group.size() >= kLoneWindow ? kWarpWindow : kLoneWindow;
    for (;;) {
        const bool passed = group.is_leader() && deadline.passed();
        const bool expired = group.shfl(passed, group.leader());
        bool progress = reap_head(group, c, op, cursor, work, expired);
        if (!group.any(work.busy())) break;  // at once: a further trip would bring nothing of its own
        const bool had = work.current != kNone;
        begin_next(group, c, op, cursor, work, window, hint, expired);
        const bool begun = !had && work.current != kNone;
        if (!work.has_step && cursor.ended()) work.exhausted = true;
        // A lane's buffer is filled once, in the round in which it was begun.
        progress = post_current(group, c, op, cursor, work, begun, expired) || progress;
        progress = poll_trip(group, c) != 0 || progress;
        if (group.any(progress))
            backoff = 0;
        else
            pause_between_trips<State>(backoff);
    }
    group.sync();  // what any member acquired with the answers is ordered before every member's use
    const std::uint32_t sent = group.sum(work.sent);
    const std::uint32_t timeouts = group.sum(work.timeouts);
    const std::uint32_t bounced = group.sum(work.bounced);
    if (group.is_leader()) {
        count_commands(c, cursor.opcode, sent);
        c.count(&Counters::timeouts, timeouts);
        c.count(&Counters::bounce_bytes, bounced);
    }
    return worst_of(group, cursor.result);
}

template <class Group, class State>
GN_HD nvme::Status run(Group group, State& c, Operation& op, Cursor& cursor, std::uint32_t hint,
                       simt::Deadline deadline) {
    LaneWork work;
    return go_on(group, c, op, cursor, work, hint, deadline);
}

}  // namespace gnstor::gnor
