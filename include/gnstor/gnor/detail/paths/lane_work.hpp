// lane_work.hpp: one lane's share of an operation: targets and resources of its next command, and its
// commands in flight. CPU and GPU lanes; nothing here waits.
//
// The parts of operation.hpp's loop, and of the two ways to send a command again (retries there, singly.hpp).
// Resources are taken in the order pool buffer, command slot, send credit, each with a try.
#pragma once

#include <gnstor/gnor/detail/paths/cursor.hpp>
#include <gnstor/gnor/detail/paths/moving.hpp>
#include <gnstor/gnor/detail/paths/retrying.hpp>
#include <gnstor/gnor/detail/queues/polling.hpp>
#include <gnstor/gnor/detail/queues/posting.hpp>
#include <gnstor/simt/group.hpp>
#include <gnstor/simt/time.hpp>

namespace gnstor::gnor {

enum class Begin : std::uint32_t { kBegun, kLater, kRefused };

/// The slots of the array that a step goes to. `count` 0: none, see `status`.
struct Targets {
    std::uint8_t slot[placement::kMaxReplicas];
    std::uint32_t count = 0;
    nvme::Status status = nvme::Status::kSuccess;
};

/// A read goes to one replica that is *in*: the first by rank that is not broken, after those already asked.
/// All else goes to every replica that is not out, or to none if one of them cannot be reached.
template <class State>
GN_HD Targets choose_targets(State& c, const Operation& op, const Step& step) {
    Targets t;
    if (step.fixed_target != kNone) {
        const bool has_drive = step.fixed_target < op.map->slot_count &&
                               placement::is_written(op.map->slots[step.fixed_target].state);
        if (!has_drive) return t;  // nothing to flush
        t.slot[t.count++] = static_cast<std::uint8_t>(step.fixed_target);
    } else {
        const auto replicas = placement::place(*op.map, op.geometry, step.block >> op.geometry.chunk_shift);
        const bool read = step.opcode == nvme::IoOpcode::kRead;
        for (std::uint32_t i = 0; i < replicas.count; ++i)
            if (const auto state = op.map->slots[replicas.slot[i]].state;
                read ? state == placement::SlotState::kIn : placement::is_written(state))
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

/// Takes a run of the pool for each member with `blocks` > 0, or kNone. All members call.
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
    // With checks the buffer is held from here on: free() returns kBufferInUse.
    if (c.checks != 0 && !bounced && step.bytes != 0) slot.held_run = hold_run(c, slot.buffer);
    if (step.opcode == nvme::IoOpcode::kDatasetManagement)
        *reinterpret_cast<nvme::DsmRange*>(wire_of(c, slot)) = nvme::DsmRange{0, step.blocks, step.block};
    return Begin::kBegun;
}

/// The step that a slot was filled from, so that the command can be sent again to other drives.
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
    std::uint32_t posted = 0;       ///< to how many of its targets it was posted
    std::uint32_t targets = 0;
    std::uint32_t head = kNone, tail = kNone, in_flight = 0;
    bool has_step = false;  ///< `step` is waiting for resources
    bool exhausted = false;
    RetryPause pause;  ///< of the oldest command
    Step step{};
    nvme::Status stall = nvme::Status::kNotSent;  ///< what to report if `step` never gets its resources
    std::uint32_t sent = 0, timeouts = 0, bounced = 0;

    /// Takes over the only command of a request, which is in flight in this slot.
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
GN_HD bool waits_on_broken_queue(State& c, const CommandSlot& slot, std::uint32_t control) {
    for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r)
        if (((pending_of(control) >> r) & 1u) != 0 && is_broken(c, slot.target[r])) return true;
    return false;
}

/// Ends a failed command without another attempt. Slot `index` is free or in quarantine afterwards.
template <class State>
GN_HD void fail_command(State& c, Cursor& cursor, std::uint32_t index, nvme::Status status) {
    cursor.report(c.slot(index).request, status);
    leave_slot(c, index);
}

/// Sends a command again from the same slot, to these drives: it becomes `current`.
template <class State>
GN_HD void send_again(State& c, const Operation& op, LaneWork& work, std::uint32_t index,
                      const Targets& targets) {
    CommandSlot& slot = c.slot(index);
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

/// fail_command for a command with an answer missing.
template <class State>
GN_HD void fail_unanswered(State& c, Cursor& cursor, std::uint32_t index, nvme::Status status) {
    cursor.in_doubt = true;
    fail_command(c, cursor, index, status);
}

/// Sends a command with all answers again, from the same slot with the same pool buffer and sequence: it
/// becomes `current`. If no drive is left to ask, the command ends; `refused`: its last answer.
template <class State>
GN_HD GN_NOINLINE void start_again(State& c, const Operation& op, Cursor& cursor, LaneWork& work,
                                   std::uint32_t index, nvme::Status refused) {
    CommandSlot& slot = c.slot(index);
    const Targets targets = choose_targets(c, op, step_of(slot));
    if (targets.count == 0) {  // success: a flush of a slot that is empty in the newer map
        const bool done = nvme::ok(targets.status);
        fail_command(c, cursor, index, done ? nvme::Status::kSuccess : worst(refused, targets.status));
        return;
    }
    send_again(c, op, work, index, targets);
}

}  // namespace gnstor::gnor
