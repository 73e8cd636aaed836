// channel_layout.hpp: where everything of a channel lies in its two blocks of memory (channel_memory.hpp).
// Pure arithmetic; host.
#pragma once

#include <gnstor/gnor/detail/resources/channel_state.hpp>

#include "gnor/pool_plan.hpp"

#include <cstddef>
#include <cstdint>

namespace gnstor::gnor {

/// Offsets of everything in the NIC-visible block and in lane memory: pure arithmetic.
struct ChannelLayout {
    std::uint32_t ssds, depth, command_slots, slot_bits, completion_entries;
    // Lane memory.
    std::size_t queues, ready_marks, receives, slots, free_words, ready_words, lane_fixed, pool_steps,
        pool_words, pool_length, lane_bytes;
    // NIC-visible memory.
    std::size_t queue_stride, send_ring, capsules, receive_ring, responses, records, bell, send_completion,
        ring, consumer_record, regions, pool_table, notes, nic_bytes;

    static constexpr ChannelLayout of(std::uint32_t depth, std::uint32_t ssds, const PoolPlan& pool);
};

/// Bytes that a channel of this depth takes besides its pool. (The pool's bookkeeping, for its full size, is
/// 4 bytes and 1.1 bits per 4 KiB block, and 68 bytes per growth step.)
///   NIC-visible, per queue pair: depth x (64 entry + 64 capsule + 16 receive + 16 response) + 256;
///   NIC-visible, shared: 64 x completions + 768, with completions = depth x ssds rounded up to a power of
///   two;
///   lane memory: 1024 + ssds x (4 x depth + 240) + slots x 128 + slots / 4, with as many command slots as
///   completions, at least 64.
[[nodiscard]] constexpr std::size_t memory_bytes(std::uint32_t depth, std::uint32_t ssds);

constexpr ChannelLayout ChannelLayout::of(std::uint32_t depth, std::uint32_t ssds, const PoolPlan& pool) {
    ChannelLayout l{};
    l.ssds = ssds;
    l.depth = depth;
    l.command_slots = 64;
    l.slot_bits = 6;
    for (; l.command_slots < depth * ssds; l.command_slots <<= 1) ++l.slot_bits;
    l.completion_entries = 1;
    while (l.completion_entries < depth * ssds) l.completion_entries <<= 1;
    const auto take = [](std::size_t& at, std::size_t bytes, std::size_t grain = 64) {
        const std::size_t here = (at + grain - 1) / grain * grain;
        at = here + bytes;
        return here;
    };
    std::size_t at = sizeof(ChannelState);
    l.queues = take(at, sizeof(QueueLane) * ssds);
    l.ready_marks = take(at, std::size_t{4} * ssds * depth);
    l.receives = take(at, sizeof(rdma::ReceiveQueueRef) * ssds);
    l.slots = take(at, sizeof(CommandSlot) * l.command_slots, alignof(CommandSlot));
    l.free_words = take(at, l.command_slots / 8);
    l.ready_words = take(at, l.command_slots / 8);
    l.lane_fixed = at;
    l.pool_steps = take(at, sizeof(PoolStep) * pool.steps_max);
    l.pool_words = take(at, std::size_t{8} * pool.words);
    l.pool_length = take(at, std::size_t{4} * pool.blocks);
    l.lane_bytes = take(at, 0);
    at = 0;
    l.send_ring = take(at, std::size_t{64} * depth);
    l.capsules = take(at, std::size_t{64} * depth);
    l.receive_ring = take(at, std::size_t{16} * depth);
    l.responses = take(at, std::size_t{kResponseBytes} * depth);
    l.records = take(at, 64);
    l.bell = take(at, 64);
    l.send_completion = take(at, 64);
    l.queue_stride = take(at, 0);
    at = l.queue_stride * ssds;
    l.ring = take(at, std::size_t{64} * l.completion_entries);
    l.consumer_record = take(at, 64);
    l.regions = take(at, sizeof(RegionTable));
    l.pool_table = take(at, sizeof(PoolTable));
    l.notes = take(at, sizeof(HostMailbox));
    l.nic_bytes = take(at, 0);
    return l;
}

constexpr std::size_t memory_bytes(std::uint32_t depth, std::uint32_t ssds) {
    const ChannelLayout l = ChannelLayout::of(depth, ssds, PoolPlan{});
    return l.nic_bytes + l.lane_fixed;
}
static_assert(memory_bytes(32, 4) <= 50'000, "50 KB at 4 SSDs and depth 32, as docs/design.md says");

}  // namespace gnstor::gnor
