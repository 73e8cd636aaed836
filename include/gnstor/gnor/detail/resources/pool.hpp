// pool.hpp: allocates and frees blocks of a channel's pool, and asks the host for more. CPU and GPU lanes;
// nothing here waits.
//
// The pool is one range of addresses. Its growth steps (the first, then each as large as all before it) are
// planned when the channel is created: their bitmaps exist from the beginning, with all blocks free; the host
// registers their memory later and publishes it by a count. No run crosses a step, so that one memory region
// holds it. A lane that finds no free run sets a word that the host checks; its caller tries again or gives
// up.
#pragma once

#include <gnstor/gnor/detail/resources/channel_state.hpp>
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

/// The address that the NIC gets for a command's data: its pool buffer, or the user's own buffer.
GN_HD
inline std::uint64_t wire_of(const ChannelState& c, const CommandSlot& slot) {
    return slot.pool_first != kNone ? pool_address(c, slot.pool_first) : slot.buffer;
}

/// Blocks of the pool buffer of a command that moves `bytes` bytes.
GN_HD
inline std::uint32_t pool_blocks_of(std::uint32_t bytes) {
    return (bytes + kPoolBlockBytes - 1) / kPoolBlockBytes;
}

/// The growth step that a block lies in; each step is as large as all before it.
GN_HD
inline std::uint32_t pool_step_of(const ChannelState& c, std::uint32_t block) {
    auto rest = static_cast<std::uint32_t>(block / (c.pool_bytes / kPoolBlockBytes));
    std::uint32_t step = 0;
    for (; rest != 0; rest >>= 1) ++step;
    return step;
}

/// Number of steps whose keys are in lane memory.
template <class State>
GN_HD std::uint32_t known_pool_steps(const State& c) {
    // Pairs with the release in refresh_pool: the keys of these steps are in lane memory.
    return c.pool_steps_max == 1 ? 1 : simt::load_acquire<State::kScope>(&c.pool_steps);
}

/// Copies the keys of newly published steps into lane memory. Lanes that do this at the same time store the
/// same words.
template <class State>
GN_HD std::uint32_t refresh_pool(State& c, std::uint32_t known) {
    if (known >= c.pool_steps_max) return known;
    // Pairs with the release of ChannelPool::extend: the memory of steps below the count is registered.
    const std::uint32_t count = simt::load_acquire<simt::Scope::kSystem>(&c.pool_table->count);
    for (std::uint32_t i = known; i < count && i < c.pool_steps_max; ++i) {
        simt::store_relaxed<State::kScope>(&c.pool_keys[i].lkey, c.pool_table->keys[i].lkey);
        simt::store_relaxed<State::kScope>(&c.pool_keys[i].rkey, c.pool_table->keys[i].rkey);
    }
    // Publishes the copies: pairs with known_pool_steps. A lane may store a smaller count after another's
    // larger one: that costs one more refresh.
    if (count > known) simt::store_release<State::kScope>(&c.pool_steps, count);
    return count > known ? count : known;
}

/// Asks the host to register the next step; the host may never do it.
template <class State>
GN_HD void ask_for_pool(State& c, std::uint32_t known) {
    if (known >= c.pool_steps_max) return;
    // Read first, so that lanes that find nothing cross the bus once per step, not once per attempt.
    if (simt::load_relaxed<State::kScope>(&c.pool_asked) > known) return;
    if (simt::exchange<State::kScope>(&c.pool_asked, known + 1) > known) return;
    // Only a hint: the host publishes a new step by the table's count.
    simt::store_relaxed<simt::Scope::kSystem>(&c.notes->pool_steps_wanted, known + 1);
}

/// Takes adjacent blocks of one step. kNone: no such run; the host was asked for more, if the pool may grow.
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

/// Gives blocks of one step back. False: some of them were free already.
template <class State>
GN_HD GN_NOINLINE bool give_pool_run(State& c, std::uint32_t first, std::uint32_t blocks) {
    const std::uint32_t step = pool_step_of(c, first);
    return pool_levels(c, step).give(first - c.pool_step(step).first, blocks);
}

/// Takes a run of `blocks` blocks for each member that wants one; the leader takes as many at a time as one
/// word holds. kNone: the member got none, or wants none. All members call, with the same number of blocks.
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
    // take_pool_run also uses runs of smaller levels, merges free groups, and asks the host for more.
    if (wants && mine == kNone) mine = take_pool_run(c, blocks, hint);
    // What the leader acquired with the runs is ordered before every member's use.
    group.sync();
    return mine;
}

}  // namespace gnstor::gnor
