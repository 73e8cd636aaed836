// singly.hpp: a read that no replica could answer as a whole, continued block by block. CPU and GPU lanes;
// nothing here waits.
//
// docs/array.md, rule 18. A drive answers Doubtful for a whole command because of one of its blocks; another
// replica may have that block, and lack others. So when every replica has been asked without success, the
// command continues in its slot, a block at a time, to one replica at a time (DoubtRound, posting.hpp).
// Invariants
//   * for each block the replicas that are *in* are asked in the order of ranks, until one has the block.
//     `doubtful` has a bit for each that answered Doubtful, all under `map_version`: with another map they
//     are asked again;
//   * only if all of them have their bit, the older version is asked for: of the replica that reported the
//     highest present order (nvme/vendor.hpp), of equals the first. A replica that could not be asked, or
//     answered otherwise, may have the newest version: then the read fails;
//   * a read that returns the older version of a block ends with kOlderVersion, never with success.
// A slow path of its own: reads of whole blocks pay one test of a bit for it.
#pragma once

#include <gnstor/gnor/detail/paths/lane_work.hpp>

namespace gnstor::gnor {

/// The replicas that are *in*, by rank.
GN_HD
inline Targets replicas_in(const Operation& op, std::uint32_t block) {
    Targets in;
    const auto replicas = placement::place(*op.map, op.geometry, block >> op.geometry.chunk_shift);
    for (std::uint32_t i = 0; i < replicas.count; ++i)
        if (op.map->slots[replicas.slot[i]].state == placement::SlotState::kIn)
            in.slot[in.count++] = replicas.slot[i];
    return in;
}

/// Rank of a failure: retryable ones are kept over others, as the block may still be readable, and above all
/// those that need no new map.
GN_HD
constexpr std::uint32_t pause_before(nvme::Status status) {
    if (!nvme::may_retry(status)) return 0;
    return status == nvme::Status::kStaleMap ? 1 : 2;
}

/// Files the answer of the replica that was asked. True: the block is in the buffer.
GN_HD
inline bool file_single_answer(const CommandSlot& slot, DoubtRound& round, nvme::Status status,
                               std::uint64_t present) {
    if (nvme::ok(status)) {
        if ((slot.attempts & kOlderAccepted) != 0) round.older = 1;
        ++round.block;
        return true;
    }
    if (status == nvme::Status::kDoubtful) {
        if (round.doubtful == 0 || present > round.newest) {
            round.newest = present;
            round.best = round.rank;
        }
        round.doubtful = static_cast<std::uint8_t>(round.doubtful | 1u << round.rank);
    } else if (pause_before(status) >= pause_before(round.failed)) {
        round.failed = status;
    }
    ++round.rank;
    return false;
}

/// The replica that is asked next: kNone, if there is none left.
template <class State>
GN_HD std::uint32_t next_single_target(State& c, const Targets& in, DoubtRound& round) {
    for (; round.rank < in.count; ++round.rank) {
        const std::uint32_t slot = in.slot[round.rank];
        if (slot < c.queues && !is_broken(c, slot)) return slot;
        if (!nvme::may_retry(round.failed)) round.failed = nvme::Status::kQueueError;
    }
    return kNone;
}

/// Begins a round: all replicas of one map are asked for the block.
GN_HD inline void start_round(DoubtRound& round, nvme::MapVersion map_version) {
    round.map_version = map_version;
    round.newest = 0;
    round.failed = nvme::Status::kSuccess;
    round.rank = round.doubtful = round.best = 0;
}

/// Which replica is asked next for a block, and how.
struct SingleChoice {
    std::uint32_t target = kNone;  ///< kNone: none is left
    std::uint8_t attempts = kBlockByBlock;
    bool again = false;     ///< all replicas are asked once more, after a pause
    bool waits = false;     ///< that pause is not over
    bool unmapped = false;  ///< no replica is *in*
};

/// Chooses. If all replicas must be asked again, returns `waits` until the pause is over; then loads the map
/// and starts a new round. `starts`: the round begins with this choice.
template <class State>
GN_HD SingleChoice choose_single(State& c, Operation& op, CommandSlot& slot, LaneWork& work,
                                 DoubtRound& round, bool starts) {
    SingleChoice next;
    const Targets in = replicas_in(op, slot.block);
    next.unmapped = in.count == 0;
    const bool refused_older = !starts && (slot.attempts & kOlderAccepted) != 0;
    if (!refused_older) next.target = next_single_target(c, in, round);
    if (next.target == kNone && !refused_older && in.count != 0 && round.doubtful + 1u == 1u << in.count) {
        next.attempts = kBlockByBlock | kOlderAccepted;
        next.target = in.slot[round.best];
        if (is_broken(c, next.target)) {
            next.target = kNone;
            round.failed = nvme::Status::kQueueError;
        }
    }
    if (next.target != kNone || !nvme::may_retry(round.failed)) return next;
    next.again = true;
    const auto when =
        round.failed == nvme::Status::kStaleMap ? NextAttempt::kUnderNewMap : NextAttempt::kAfterPause;
    next.waits = !work.pause.over(c, op, slot, when);
    if (next.waits) return next;
    op.load_map();
    start_round(round, op.map->version);
    next.target = next_single_target(c, replicas_in(op, slot.block), round);
    return next;
}

/// Continues the oldest command, a read that no replica had as a whole, with its next replica or block.
/// `status`: the answer of the replica asked last. False: it waits.
template <class State>
GN_HD GN_NOINLINE bool continue_block_by_block(State& c, Operation& op, Cursor& cursor, LaneWork& work,
                                               nvme::Status status, bool expired) {
    CommandSlot& slot = c.slot(work.head);
    const bool begins = (slot.attempts & kBlockByBlock) == 0;
    DoubtRound round = begins ? DoubtRound{} : load_round(slot);
    bool fresh = begins;  // no replica was asked for this block yet
    const bool took_older = nvme::ok(status) && (slot.attempts & kOlderAccepted) != 0;
    if (!begins) {
        const std::uint64_t low = simt::load_relaxed<State::kScope>(&slot.answer[2]);
        const std::uint64_t high = simt::load_relaxed<State::kScope>(&slot.answer[3]);
        fresh = file_single_answer(slot, round, status, low | high << 32);
    }
    if (fresh && round.block == slot.blocks) {  // all blocks: from here on as any read that succeeded
        if (took_older) c.count(&Counters::older_reads, 1);
        if (round.older != 0) cursor.report(slot.request, nvme::Status::kOlderVersion);
        slot.attempts = 0;
        return true;
    }
    if (expired) {
        if (nvme::may_retry(status)) work.stall = status;
        work.pause = RetryPause{};
        fail_command(c, cursor, work.dequeue(c), nvme::ok(status) ? nvme::Status::kDoubtful : status);
        return true;
    }
    op.load_map();
    const bool starts = fresh || round.map_version != op.map->version;
    if (starts) start_round(round, op.map->version);
    const SingleChoice next = choose_single(c, op, slot, work, round, starts);
    if (next.waits) return false;
    const std::uint32_t index = work.dequeue(c);
    if (next.target == kNone) {
        work.pause = RetryPause{};
        // No failure was recorded: no replica is *in*, or the older version was refused as doubtful.
        if (nvme::ok(round.failed)) round.failed = next.unmapped ? nvme::Status::kQueueError : status;
        fail_command(c, cursor, index, round.failed);
        return true;
    }
    if (next.again)
        work.pause.start();
    else if (fresh)
        work.pause = RetryPause{};
    if (took_older) c.count(&Counters::older_reads, 1);
    store_round(slot, round);
    slot.attempts = next.attempts;
    Targets one;
    one.slot[0] = static_cast<std::uint8_t>(next.target);
    one.count = 1;
    send_again(c, op, work, index, one);
    return true;
}

}  // namespace gnstor::gnor
