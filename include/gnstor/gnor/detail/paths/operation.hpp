// operation.hpp: carries a request out: resources, sending, waiting, retries, deadline. CPU and GPU lanes.
//
// Which path takes a request, and what it falls back to:
//   * read() and write() by a lane with a channel of its own: single_lane.hpp; else run(), below;
//   * Batch::submit() by a warp: together.hpp; else send_at_once() for each lane (async.hpp);
//   * read_many(), write_many() and all other synchronous calls: run();
//   * asynchronous calls: send_at_once() or send_all() (async.hpp), the sending half of run();
//   * a lane that serves many requesters: SteppedRequest (stepped.hpp), which is run() in steps.
// From each of them, a read that no replica could answer as a whole continues in singly.hpp. All take their
// resources by command_slots.hpp, pool.hpp and posting.hpp, and reap by polling.hpp.
//
// run() is the one loop behind every synchronous call. Each member of the group walks its own Cursor and
// keeps up to a window of commands in flight, chained through their slots; what needs all lanes (posting,
// polling, moving bytes) is done together. Resources are taken in the order pool buffer, command slot, send
// credit, each with a try: a lane that gets none polls and finishes what it has in flight, so no lane waits
// for a resource while it holds a later one. A command that an SSD refuses for now is sent again
// (retrying.hpp). A deadline ends the wait, not the commands: those in flight go into quarantine
// (command_slots.hpp).
#pragma once

#include <gnstor/gnor/detail/paths/lane_work.hpp>
#include <gnstor/gnor/detail/paths/singly.hpp>

namespace gnstor::gnor {

/// Commands in flight per lane when few lanes work together, and when many do.
inline constexpr std::uint32_t kFewLanesWindow = 8;
inline constexpr std::uint32_t kWarpWindow = 2;

/// The value of `attempts` to ask the next replica with, after one whose queue pair is in error; a read that
/// went block by block starts over with all of its blocks.
GN_HD
inline std::uint8_t attempts_past_broken(const CommandSlot& slot) {
    return (slot.attempts & kBlockByBlock) != 0 ? std::uint8_t{0}
                                                : static_cast<std::uint8_t>(slot.attempts + 1);
}

/// The oldest command was refused: sends it again, at once or after a pause, or ends it with `status`. False:
/// it waits. Also called for each answer of a read that goes block by block.
template <class State>
GN_HD bool retry_or_fail(State& c, Operation& op, Cursor& cursor, LaneWork& work, nvme::Status status,
                         bool expired) {
    if (work.current != kNone) return false;  // the command being sent goes first
    CommandSlot& slot = c.slot(work.head);
    if ((slot.attempts & kBlockByBlock) != 0)
        return continue_block_by_block(c, op, cursor, work, status, expired);
    const NextAttempt next = next_attempt(slot, op.geometry.replicas, status);
    if (next == NextAttempt::kEnd || expired) {
        // Steps not begun waited behind this command: they report its status.
        if (next != NextAttempt::kEnd && nvme::may_retry(status)) work.stall = status;
        work.pause = RetryPause{};
        fail_command(c, cursor, work.dequeue(c), status);
        return true;
    }
    if (next == NextAttempt::kEachBlock) return continue_block_by_block(c, op, cursor, work, status, expired);
    if (!work.pause.over(c, op, slot, next)) return false;
    work.pause.start();
    op.load_map();
    const std::uint8_t said = attempts_after(slot.attempts, status);
    slot.attempts = next == NextAttempt::kNextReplica ? static_cast<std::uint8_t>(said + 1) : std::uint8_t{0};
    start_again(c, op, cursor, work, work.dequeue(c), status);
    return true;
}

/// Whether a lane has a next step and room for it in its window.
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

/// Takes slot and pool buffer for each member's next step, where it has one and room for it. All members
/// call.
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

/// Sends each member's current command to its drives, as far as there are credits; `begun`: its pool buffer
/// must be filled first. All members call.
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
                c.slot(index).attempts = attempts_past_broken(c.slot(index));
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
        // A command that no replica got is not in flight.
        const auto status = work.posted == 0 ? nvme::Status::kNotSent : nvme::Status::kTimedOut;
        cursor.in_doubt = cursor.in_doubt || work.posted != 0;
        cursor.report(c.slot(work.current).request, status);
        leave_slot(c, work.current);
        work.current = kNone;
    }
    return progress;
}

/// The oldest command waits for a drive whose queue pair is in error. With a pool buffer another replica may
/// be asked; with the user's own buffer not, as the first command may still write there.
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
    work.step.attempts = attempts_past_broken(slot);
    work.has_step = true;
    leave_slot(c, index);
    return true;
}

/// Finishes the oldest command in flight of each member, if that is possible now. All members call.
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
            if (nvme::ok(status) && (slot.attempts & kBlockByBlock) == 0) {
                progress = true;
                work.pause = RetryPause{};
                done = work.dequeue(c);
                moves = slot.pool_first != kNone &&
                        slot.opcode == static_cast<std::uint8_t>(nvme::IoOpcode::kRead);
            } else {
                // Even if later attempts are refused before they begin: only a success makes the replicas
                // alike.
                cursor.in_doubt = cursor.in_doubt || ended_in_doubt<State::kScope>(slot);
                progress = retry_or_fail(c, op, cursor, work, status, expired);
            }
        } else if (expired) {
            progress = true;
            ++work.timeouts;
            fail_unanswered(c, cursor, work.dequeue(c), nvme::Status::kTimedOut);
        } else if (waits_on_broken_queue(c, slot, control)) {
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

/// Carries out the requests of the members' cursors and the commands they have in flight; returns the worst
/// status of all, the same to all members.
template <class Group, class State>
GN_HD GN_NOINLINE nvme::Status run_to_completion(Group group, State& c, Operation& op, Cursor& cursor,
                                                 LaneWork& work, std::uint32_t hint,
                                                 simt::Deadline deadline) {
    std::uint32_t backoff = 0;
    const std::uint32_t window = group.size() >= kFewLanesWindow ? kWarpWindow : kFewLanesWindow;
    for (;;) {
        const bool passed = group.is_leader() && deadline.passed();
        const bool expired = group.shfl(passed, group.leader());
        bool progress = reap_head(group, c, op, cursor, work, expired);
        if (!group.any(work.busy())) break;  // at once: another trip would bring nothing for this group
        const bool had = work.current != kNone;
        begin_next(group, c, op, cursor, work, window, hint, expired);
        const bool begun = !had && work.current != kNone;
        if (!work.has_step && cursor.ended()) work.exhausted = true;
        // A write's pool buffer is filled once, in the round that took it.
        progress = post_current(group, c, op, cursor, work, begun, expired) || progress;
        progress = poll_once(group, c) != 0 || progress;
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
    return run_to_completion(group, c, op, cursor, work, hint, deadline);
}

}  // namespace gnstor::gnor
