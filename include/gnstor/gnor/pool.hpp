// pool.hpp: the blocks of a channel's pool: taking, giving back, asking for more. CPU and GPU lanes; nothing
// here waits.
//
// The pool is one range of addresses. Its growth steps (the first, then each as large as all before it) are
// planned when the channel is made: their bitmaps are there and full from the beginning, their memory comes
// when the host registers it, and is published by a count. No run crosses a step, so that one region holds
// it. A lane that finds nothing asks by a word that the host looks at; its caller tries again, or gives up.
#pragma once

#include <gnstor/gnor/channel_state.hpp>
#include <gnstor/simt/group.hpp>

namespace gnstor::gnor {

template <class State>
GN_HD BasicLevelsRef<State::kScope> pool_levels(State& c, std::uint32_t step) {
    return BasicLevelsRef<State::kScope>(&c.pool_levels, &c.pool_step(step), c.pool_words());
}

GN_HD
inline std::uint64_t pool_address(const ChannelState& c, std::uint32_t first) {
    return c.pool_base + std::uint64_t{first} * kPoolBlockBytes;
}

/// Where the NIC is told that a command's data lies: in its pool buffer, or where the user wants it.
GN_HD
inline std::uint64_t wire_of(const ChannelState& c, const CommandSlot& slot) {
    return slot.pool_first != kNone ? pool_address(c, slot.pool_first) : slot.buffer;
}

/// Blocks of the pool buffer of a command that moves so many bytes.
GN_HD
inline std::uint32_t pool_blocks_of(std::uint32_t bytes) {
    return (bytes + kPoolBlockBytes - 1) / kPoolBlockBytes;
}

/// The step that a block of the pool lies in: each is as large as all before it.
GN_HD
inline std::uint32_t pool_step_of(const ChannelState& c, std::uint32_t block) {
    auto rest = static_cast<std::uint32_t>(block / (c.pool_bytes / kPoolBlockBytes));
    std::uint32_t step = 0;
    for (; rest != 0; rest >>= 1) ++step;
    return step;
}

/// How many steps lanes know of.
template <class State>
GN_HD std::uint32_t known_pool_steps(const State& c) {
    // Pairs with the release in refresh_pool: the keys of these steps are there.
    return c.pool_steps_max == 1 ? 1 : simt::load_acquire<State::kScope>(&c.pool_steps);
}

/// Copies the keys of steps that the host has published since into lane memory. Lanes that do this at the
/// same time store the same words.
template <class State>
GN_HD std::uint32_t refresh_pool(State& c, std::uint32_t known) {
    if (known >= c.pool_steps_max) return known;
    // Pairs with the release of Channel::extend_pool: the memory of steps below the count is registered.
    const std::uint32_t count = simt::load_acquire<simt::Scope::kSystem>(&c.pool_table->count);
    for (std::uint32_t i = known; i < count && i < c.pool_steps_max; ++i) {
        simt::store_relaxed<State::kScope>(&c.pool_keys[i].lkey, c.pool_table->keys[i].lkey);
        simt::store_relaxed<State::kScope>(&c.pool_keys[i].rkey, c.pool_table->keys[i].rkey);
    }
    // Publishes the copies to lanes that look only here (known_pool_steps). Lanes may store it out of order:
    // a smaller count costs a trip.
    if (count > known) simt::store_release<State::kScope>(&c.pool_steps, count);
    return count > known ? count : known;
}

/// Asks the host for the step behind those that are known; it may say no by never doing it.
template <class State>
GN_HD void ask_for_pool(State& c, std::uint32_t known) {
    if (known >= c.pool_steps_max) return;
    // A look first, so that lanes that come in vain cross the bus once a step, not once a try.
    if (simt::load_relaxed<State::kScope>(&c.pool_asked) > known) return;
    if (simt::exchange<State::kScope>(&c.pool_asked, known + 1) > known) return;
    // A hint alone: the host publishes what it did by the table's count.
    simt::store_relaxed<simt::Scope::kSystem>(&c.notes->pool_steps_wanted, known + 1);
}

/// Neighbouring blocks of one step, or kNone; then more has been asked for, if there may be more.
template <class State>
GN_HD GN_NOINLINE std::uint32_t take_pool_run(State& c, std::uint32_t blocks, std::uint32_t hint) {
    std::uint32_t known = known_pool_steps(c);
    for (std::uint32_t step = 0; step < known || (known = refresh_pool(c, known)) > step; ++step) {
        const std::uint32_t first = pool_levels(c, step).take(blocks, hint);
        if (first != kNone) return c.pool_step(step).first + first;
    }
    ask_for_pool(c, known);
    return kNone;
}

/// Gives blocks of one step back. False: some of them were free.
template <class State>
GN_HD GN_NOINLINE bool give_pool_run(State& c, std::uint32_t first, std::uint32_t blocks) {
    const std::uint32_t step = pool_step_of(c, first);
    return pool_levels(c, step).give(first - c.pool_step(step).first, blocks);
}

/// A run of `blocks` blocks for each member that wants one, taken by the leader for as many as one word
/// holds; kNone for those that got none, or want none. All members call, with the same number of blocks.
template <class Group, class State>
GN_HD GN_NOINLINE std::uint32_t take_pool_each(Group group, State& c, bool wants, std::uint32_t blocks,
                                               std::uint32_t hint) {
    std::uint32_t mine = kNone;
    std::uint32_t step = 0, known = known_pool_steps(c);  // the leader's count
    for (;;) {
        const auto open = group.ballot(wants && mine == kNone);
        if (open.empty()) break;
        RunSet runs;
        if (group.is_leader())
            for (; step < known || (known = refresh_pool(c, known)) > step; ++step) {
                runs = pool_levels(c, step).take_several(blocks, open.count(), hint);
                runs.first += c.pool_step(step).first;
                if (runs.starts != 0) break;
            }
        runs.starts = group.shfl(runs.starts, group.leader());
        runs.first = group.shfl(runs.first, group.leader());
        runs.scale = group.shfl(runs.scale, group.leader());
        if (runs.starts == 0) break;
        const std::uint32_t rank = open.count_below(group.lane());
        if (wants && mine == kNone && rank < runs.count()) mine = runs.at(rank);
    }
    // What smaller levels have in a row, and what can be merged; asks for more.
    if (wants && mine == kNone) mine = take_pool_run(c, blocks, hint);
    // What the leader acquired with the runs is ordered before every member's use.
    group.sync();
    return mine;
}

}  // namespace gnstor::gnor
