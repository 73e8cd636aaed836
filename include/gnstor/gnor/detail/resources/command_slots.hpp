// command_slots.hpp: taking, abandoning and freeing command slots. CPU and GPU lanes; nothing here waits.
//
// A slot is taken from a bitmap, and its generation goes up each time; slot (low bits) and generation make
// the command id. The control word decides every race: between a deadline and the last answer, the first to
// change it wins, and the other sees that. The owner never frees a slot with answers missing: it abandons the
// slot, and the group that files the last answer frees slot and pool buffer (or the host does, after it has
// reset the queue pair).
#pragma once

#include <gnstor/gnor/detail/resources/buffers.hpp>
#include <gnstor/gnor/detail/resources/resolved.hpp>
#include <gnstor/gnor/types/status_order.hpp>
#include <gnstor/simt/group.hpp>

namespace gnstor::gnor {

inline constexpr std::uint8_t kNoTarget = 0xFF;

GN_HD
constexpr std::uint32_t make_control(std::uint32_t generation, SlotState state, std::uint32_t pending) {
    return (generation << kGenerationShift) | (static_cast<std::uint32_t>(state) << kStateShift) | pending;
}
GN_HD
constexpr SlotState state_of(std::uint32_t control) {
    return static_cast<SlotState>((control >> kStateShift) & kStateMask);
}
GN_HD
constexpr std::uint32_t generation_of(std::uint32_t control) {
    return control >> kGenerationShift;
}
GN_HD
constexpr std::uint32_t pending_of(std::uint32_t control) {
    return control & kPendingMask;
}

template <simt::Scope S = simt::Scope::kDevice>
GN_HD std::uint32_t load_control(CommandSlot& slot) {
    // Pairs with the read-modify-writes by which answers are filed and slots handed over. What the owner
    // wrote before it sent the command is ordered before the answer by the NIC.
    return simt::load_acquire<S>(&slot.control);
}

/// Slot number and low bits of the generation.
template <class State>
GN_HD std::uint16_t command_id(State& c, std::uint32_t index) {
    const std::uint32_t generation = generation_of(simt::load_relaxed<State::kScope>(&c.slot(index).control));
    return static_cast<std::uint16_t>(index | (generation << c.slot_bits));
}

template <class State>
GN_HD void begin_slot(State& c, std::uint32_t index) {
    CommandSlot& slot = c.slot(index);
    const std::uint32_t before = simt::load_relaxed<State::kScope>(&slot.control);
    simt::store_relaxed<State::kScope>(
        &slot.control, make_control((generation_of(before) + 1) & 0xFFFFu, SlotState::kOwned, 0));
    slot.next = kNone;
    slot.pool_first = kNone;
    slot.held_run = kNone;
    for (auto& target : slot.target) target = kNoTarget;
}

/// Takes a slot for each member with `wanted`, or kNone. The leader takes as many at once as a word has:
/// lanes that each took their own would contend for the same word. `hint` spreads groups over the bitmap's
/// words. All members call.
template <class Group, class State>
GN_HD std::uint32_t take_slot(Group group, State& c, bool wanted, std::uint32_t hint) {
    std::uint32_t mine = kNone;
    for (;;) {
        const auto open = group.ballot(wanted && mine == kNone);
        if (open.empty()) break;
        TakenBits taken;
        if (group.is_leader())
            taken = take_some<State::kScope>(c.free_slots(), c.slot_words, open.count(),
                                             spread_over(hint, c.slot_words));
        taken.word = group.shfl(taken.word, group.leader());
        taken.bits = group.shfl(taken.bits, group.leader());
        if (taken.bits == 0) break;
        const std::uint32_t rank = open.count_below(group.lane());
        if (wanted && mine == kNone && rank < taken.count()) mine = taken.at(rank);
    }
    group.sync();  // what the leader acquired with the slots is ordered before every member's use
    if (mine != kNone) begin_slot(c, mine);
    return mine;
}

GN_HD
inline std::uint32_t target_count(const CommandSlot& slot) {
    std::uint32_t n = 0;
    while (n < placement::kMaxReplicas && slot.target[n] != kNoTarget) ++n;
    return n;
}

/// Frees slot and pool buffer: called by the owner when all answers have come, or by the lane that files the
/// last answer of an abandoned slot.
template <class State>
GN_HD void free_slot(State& c, std::uint32_t index) {
    CommandSlot& slot = c.slot(index);
    if (slot.pool_first != kNone) give_pool_run(c, slot.pool_first, pool_blocks_of(payload_bytes(slot)));
    if (slot.held_run != kNone) release_run(c, slot.held_run);
    const std::uint32_t control = simt::load_relaxed<State::kScope>(&slot.control);
    simt::store_relaxed<State::kScope>(&slot.control,
                                       make_control(generation_of(control), SlotState::kFree, 0));
    give_run<State::kScope>(c.free_slots(), index, 1);
}

/// Moves a slot from kOwned to `state`. Returns false if no answer is missing: the slot stays the caller's.
template <simt::Scope S = simt::Scope::kDevice>
GN_HD bool hand_over(CommandSlot& slot, SlotState state) {
    std::uint32_t seen = load_control<S>(slot);
    while (pending_of(seen) != 0) {
        const std::uint32_t wanted = make_control(generation_of(seen), state, pending_of(seen));
        // Releases the owner's fields to the lane that files the last answer; fails if an answer came in
        // between.
        const std::uint32_t was = simt::compare_exchange<S>(&slot.control, seen, wanted);
        if (was == seen) return true;
        seen = was;
    }
    return false;
}

/// Gives up a command: its slot is freed, or goes into quarantine until its answers come. True: quarantine.
template <class State>
GN_HD bool leave_slot(State& c, std::uint32_t index) {
    CommandSlot& slot = c.slot(index);
    if (pending_of(load_control<State::kScope>(slot)) == 0) {
        free_slot(c, index);
        return false;
    }
    if (slot.pool_first == kNone && slot.held_run == kNone) slot.held_run = hold_run(c, slot.buffer);
    // Counted first: the poller may subtract as soon as the slot is handed over.
    c.count(&Counters::quarantined, 1);
    if (hand_over<State::kScope>(slot, SlotState::kAbandoned)) return true;
    c.count(&Counters::quarantined, ~0ull);
    free_slot(c, index);
    return false;
}

/// The worst answer of a command that all of its drives have answered.
template <simt::Scope S = simt::Scope::kDevice>
GN_HD nvme::Status outcome_of(const CommandSlot& slot) {
    auto out = nvme::Status::kSuccess;
    for (std::uint32_t r = 0; r < placement::kMaxReplicas && slot.target[r] != kNoTarget; ++r) {
        const std::uint32_t answer = simt::load_relaxed<S>(&slot.answer[r]);
        out = worst(out, static_cast<nvme::Status>(answer));
    }
    return out;
}

GN_HD
inline bool is_change(const CommandSlot& slot) {
    return slot.opcode != static_cast<std::uint8_t>(nvme::IoOpcode::kRead) &&
           slot.opcode != static_cast<std::uint8_t>(nvme::IoOpcode::kFlush);
}

/// For a command with all answers, some of them failures: whether a drive may have done a part of it.
template <simt::Scope S = simt::Scope::kDevice>
GN_HD GN_NOINLINE bool ended_in_doubt(const CommandSlot& slot) {
    if (!is_change(slot)) return false;
    for (std::uint32_t r = 0; r < placement::kMaxReplicas && slot.target[r] != kNoTarget; ++r) {
        const std::uint32_t answer = simt::load_relaxed<S>(&slot.answer[r]);
        if (!refused_before_it_began(static_cast<nvme::Status>(answer), slot.blocks)) return true;
    }
    return false;
}

/// Stores, in the first slot of an asynchronous change's chain, where its end is recorded (async.hpp). Takes
/// the place of the keys: the command is sent once, and they are not needed after that.
GN_HD
inline void keep_resolved(CommandSlot& slot, std::uint64_t* words) {
    const auto address = reinterpret_cast<std::uint64_t>(words);
    slot.lkey = static_cast<std::uint32_t>(address);
    slot.rkey = static_cast<std::uint32_t>(address >> 32);
}
GN_HD
inline std::uint64_t* kept_resolved(const CommandSlot& slot) {
    if (!is_change(slot)) return nullptr;
    return reinterpret_cast<std::uint64_t*>(std::uint64_t{slot.rkey} << 32 | slot.lkey);
}

/// Records how a change ended, in the words that keep_resolved() stored.
GN_HD
inline void note_end(std::uint64_t* words, std::uint64_t sequence, bool in_doubt) {
    if (in_doubt)
        mark_in_doubt(words, 1);
    else
        mark_resolved(words, sequence, 1);
}

/// Tells the host that an SSD refused this map version (Channel::refused_map).
GN_HD
inline void note_stale_map(ChannelState& c, nvme::MapVersion version) {
    // Only a hint: the host fetches the map itself.
    simt::store_relaxed<simt::Scope::kSystem>(&c.notes->refused_map, version);
}

/// Records the first error of the channel; later ones are only counted.
GN_HD
inline void record_error(ChannelState& c, nvme::Status status, std::uint32_t queue, std::uint32_t block,
                         std::uint32_t syndrome) {
    FirstError& e = c.first_error;
    if (simt::load_relaxed<simt::Scope::kDevice>(&e.claimed) != 0) return;
    if (simt::exchange<simt::Scope::kDevice>(&e.claimed, 1u) != 0) return;
    e.status = static_cast<std::uint32_t>(status);
    e.queue = queue;
    e.block = block;
    e.syndrome = syndrome;
    // Publishes the fields: pairs with the acquire of read_first_error.
    simt::store_release<simt::Scope::kDevice>(&e.recorded, 1u);
}

}  // namespace gnstor::gnor
