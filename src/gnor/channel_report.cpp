#include "gnor/channel_report.hpp"

#include <gnstor/gnor/detail/resources/command_slots.hpp>

#include <fmt/format.h>

#include <iterator>

namespace gnstor::gnor {
namespace {

using Text = std::back_insert_iterator<std::string>;

const char* name_of(Sharing sharing) {
    if (sharing == Sharing::kLane) return "one lane";
    return sharing == Sharing::kBlock ? "one block" : "the grid";
}

/// Command slots by state.
struct SlotCounts {
    std::uint32_t waited_for = 0, abandoned = 0, with_callbacks = 0, ended = 0;
    std::uint32_t pending[rdma::ReceiveSet::kMost] = {};  ///< answers missing, by queue pair
};

SlotCounts count_slots(ChannelState& c) {
    SlotCounts n;
    for (std::uint32_t i = 0; i < c.command_slots; ++i) {
        CommandSlot& slot = c.slot(i);
        const std::uint32_t control = load_control(slot);
        n.waited_for += state_of(control) == SlotState::kOwned ? 1 : 0;
        n.abandoned += state_of(control) == SlotState::kAbandoned ? 1 : 0;
        n.with_callbacks += state_of(control) == SlotState::kCallback ? 1 : 0;
        n.ended += state_of(control) == SlotState::kEnded ? 1 : 0;
        for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r)
            if (((pending_of(control) >> r) & 1u) != 0 && slot.target[r] < c.queues)
                ++n.pending[slot.target[r]];
    }
    return n;
}

/// Completions that have arrived and are not consumed yet; one that arrives during the count may be missed.
std::uint32_t count_arrived(const ChannelState& c) {
    const std::uint32_t entries = 1u << c.completion_entries_log2;
    std::uint32_t n = 0;
    for (std::uint64_t at = c.completions.consumer; n < entries; ++n, ++at) {
        const std::uint32_t own =
            simt::load_relaxed<simt::Scope::kSystem>(&c.completion_ring[at & (entries - 1)].counter_own);
        const bool mine = mlx5::cqe_opcode(own) != mlx5::kCqeInvalid &&
                          mlx5::cqe_owner(own) == ((at >> c.completion_entries_log2) & 1u);
        if (!mine) break;
    }
    return n;
}

void describe_queue(Text out, ChannelState& c, std::uint32_t i, std::uint32_t pending) {
    const QueueLane& q = c.queue(i);
    const std::uint32_t own = simt::load_relaxed<simt::Scope::kSystem>(&q.send_completion->counter_own);
    const auto record = [&](std::uint32_t which) {
        return be32(simt::load_relaxed<simt::Scope::kSystem>(q.doorbell_record + which));
    };
    fmt::format_to(out,
                   "queue {}: {} of {} credits in use, {} answers missing; entries reserved {}, published "
                   "{}, rung {}, completed {}",
                   i, q.outstanding, c.depth, pending, q.send.reserved, q.send.published, q.send.rung,
                   q.send.completed);
    if (mlx5::cqe_opcode(own) != mlx5::kCqeInvalid)
        fmt::format_to(out, " (the NIC says up to {})", mlx5::cqe_wqe_counter(own));
    fmt::format_to(out, "; send record {}; receives posted {}, record {}", record(mlx5::kSendRecord),
                   q.receive.posted, record(mlx5::kReceiveRecord));
    if (q.send.ringing != 0) fmt::format_to(out, "; a lane is ringing");
    if (q.send.error != 0) fmt::format_to(out, "; send error {:#x}", q.send.error & 0xFFu);
    if (q.broken != 0) fmt::format_to(out, "; broken");
    fmt::format_to(out, "\n");
}

/// Whether this slot is the first of a request whose callback has not run: it is kept until the callback
/// runs.
bool is_first_with_callback(ChannelState& c, std::uint32_t index) {
    const SlotState state = state_of(load_control(c.slot(index)));
    return (state == SlotState::kCallback || state == SlotState::kEnded) && c.slot(index).request == index;
}

}  // namespace

ChannelUsage usage_of(ChannelState& c, const ChannelPool& pool) {
    ChannelUsage u{};
    u.slots_taken = c.command_slots - count_free(c.free_slots(), c.slot_words);
    u.commands_pending = count_unanswered(c);
    u.requests_with_callbacks = count_callbacks(c);
    for (std::uint32_t i = 0; i < c.command_slots; ++i) {
        const CommandSlot& slot = c.slot(i);
        const std::uint32_t control = load_control(c.slot(i));
        u.commands_with_tokens += state_of(control) == SlotState::kOwned ? 1 : 0;
        for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r)
            if (((pending_of(control) >> r) & 1u) != 0) u.queues_pending |= 1ull << slot.target[r];
    }
    for (std::uint32_t s = 0; s < c.queues; ++s)
        u.queues_broken |= simt::load_relaxed<simt::Scope::kDevice>(&c.queue(s).broken) != 0 ? 1ull << s : 0;
    u.pool_blocks_free = pool.count_free(c);
    u.pool_blocks = static_cast<std::uint32_t>(pool.bytes() / kPoolBlockBytes);
    return u;
}

std::uint32_t count_unanswered(ChannelState& c) {
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < c.command_slots; ++i) n += pending_of(load_control(c.slot(i))) != 0 ? 1 : 0;
    return n;
}

std::uint32_t count_unanswered_in(ChannelState& c, const Region& region) {
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < c.command_slots; ++i) {
        CommandSlot& slot = c.slot(i);
        const bool unanswered = pending_of(load_control(slot)) != 0;
        n += unanswered && lies_in(region.base, region.bytes, wire_of(c, slot), 1) ? 1 : 0;
    }
    return n;
}

std::uint32_t count_callbacks(ChannelState& c) {
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < c.command_slots; ++i) n += is_first_with_callback(c, i) ? 1 : 0;
    return n;
}

Result<Counters> read_counters(const ChannelMemory& memory) {
    Counters out{};
    if (memory.lanes() == simt::LanesKind::kGpu) {
        GN_TRY(memory.lane_memory().download(offsetof(ChannelState, counters), &out, sizeof(out)));
        return out;
    }
    const auto* from = reinterpret_cast<const std::uint64_t*>(&memory.cpu_state().counters);
    auto* to = reinterpret_cast<std::uint64_t*>(&out);
    for (std::uint32_t i = 0; i < kCounterWords; ++i)
        to[i] = simt::load_relaxed<simt::Scope::kDevice>(from + i);
    return out;
}

Result<std::optional<FirstError>> read_first_error(const ChannelMemory& memory) {
    FirstError out{};
    if (memory.lanes() == simt::LanesKind::kGpu) {
        GN_TRY(memory.lane_memory().download(offsetof(ChannelState, first_error), &out, sizeof(out)));
    } else {
        const FirstError& from = memory.cpu_state().first_error;
        // Pairs with the release of record_error.
        if (simt::load_acquire<simt::Scope::kDevice>(&from.recorded) != 0) {
            out.status = from.status;
            out.queue = from.queue;
            out.block = from.block;
            out.syndrome = from.syndrome;
            out.recorded = 1;
        }
    }
    if (out.recorded == 0) return std::optional<FirstError>{};
    return std::optional<FirstError>{out};
}

Result<std::string> describe(const ChannelMemory& memory, const ChannelPool& pool) {
    const std::size_t bytes = memory.layout().lane_bytes;
    GN_ASSIGN(auto copy, simt::DeviceMemory::allocate(bytes, simt::LanesKind::kCpu));
    GN_TRY(memory.lane_memory().download(0, copy.lane_as<std::byte>(), bytes));
    ChannelState& c = *copy.lane_as<ChannelState>();
    const SlotCounts n = count_slots(c);
    std::string text;
    const Text out(text);
    fmt::format_to(out,
                   "channel of {}: {} of {} command slots free; {} waited for, {} abandoned, {} with "
                   "callbacks, {} ended\n",
                   name_of(c.sharing), count_free(c.free_slots(), c.slot_words), c.command_slots,
                   n.waited_for, n.abandoned, n.with_callbacks, n.ended);
    fmt::format_to(out, "completions: {}, {} consumed, record {}, {} arrived and not consumed\n",
                   c.completions.lock != 0 ? "a group is polling" : "no group is polling",
                   c.completions.consumer, be32(simt::load_relaxed<simt::Scope::kSystem>(c.consumer_record)),
                   count_arrived(c));
    for (std::uint32_t i = 0; i < c.queues; ++i) describe_queue(out, c, i, n.pending[i]);
    fmt::format_to(out, "pool: {} of {} blocks free, {} of {} growth steps in use, {} requested\n",
                   pool.count_free(c), pool.bytes() / kPoolBlockBytes, c.pool_steps, c.pool_steps_max,
                   c.pool_asked);
    if (c.gathering != 0) fmt::format_to(out, "a group collects the resources of several commands\n");
    if (c.any_ready != 0) fmt::format_to(out, "a callback may be due\n");
    if (c.any_flushed != 0) fmt::format_to(out, "a callback may wait for a flushed queue pair\n");
    return text;
}

}  // namespace gnstor::gnor
