// poster.inl: bodies of poster.hpp.
#pragma once

#include <gnstor/rdma/poster.hpp>  // for tools that open this file alone

namespace gnstor::rdma {

namespace detail {
/// Stores 16 bytes; one store on the GPU.
template <class T>
GN_HD void store16(T* to, const T& from) {
    static_assert(sizeof(T) == 16 && alignof(T) == 16, "one 16-byte store");
#if GN_DEVICE_PASS
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&from);
#else
    __builtin_memcpy(static_cast<void*>(to), &from, 16);
#endif
}
}  // namespace detail

template <simt::Scope S>
GN_HD std::uint64_t BasicSendQueueRef<S>::refresh_completed() const {
    using simt::Scope;
    // Acquire: the completion read below is at least as new as the one that this count came from.
    const std::uint64_t before = simt::load_acquire<S>(&state->completed);
    // An acquire: the NIC no longer touches any entry up to this completion.
    const std::uint32_t own = acquire_last_words(completion).counter_own;
    if (mlx5::cqe_opcode(own) == mlx5::kCqeInvalid) return before;
    if (mlx5::cqe_is_error(own)) {
        const std::uint32_t low = simt::load_relaxed<Scope::kSystem>(&completion->timestamp_low);
        simt::compare_exchange<S>(&state->error, 0u, kErrorSeen | mlx5::cqe_syndrome(low));
    }
    // The 16-bit counter is widened from `before`. That is exact if no lane changed the count meanwhile:
    // while it stood at `before`, no lane could reserve past before + entries, so at most `entries` (<
    // 2^16) completions lie between.
    const std::uint64_t again = simt::load_acquire<S>(&state->completed);
    if (again != before) return again;
    const auto passed =
        static_cast<std::uint16_t>(mlx5::cqe_wqe_counter(own) + 1u - static_cast<std::uint32_t>(before));
    if (passed == 0) return before;
    if (passed > entries()) {  // cannot be a completion of this queue: report an error
        simt::compare_exchange<S>(&state->error, 0u, kErrorSeen | mlx5::kBadResponse);
        return before;
    }
    // Release: completed() acquires what this lane acquired from the NIC.
    const std::uint64_t found = simt::compare_exchange<S>(&state->completed, before, before + passed);
    return found == before ? before + passed : found;
}

template <simt::Scope S>
GN_HD SendRun BasicSendQueueRef<S>::try_reserve_run(std::uint32_t wanted, bool whole) const {
    SendRun run;
    std::uint64_t done = completed();
    bool refreshed = false;
    for (;;) {
        if (broken()) {
            run.outcome = SendOutcome::kBroken;
            return run;
        }
        const std::uint64_t next = simt::load_relaxed<S>(&state->reserved);
        const std::uint64_t used = next > done ? next - done : 0;
        const std::uint64_t room = used < entries() ? entries() - used : 0;
        if (room < wanted && !refreshed) {
            done = refresh_completed();
            refreshed = true;
            continue;
        }
        if (room == 0 || (whole && room < wanted)) return run;
        const std::uint32_t count = room < wanted ? static_cast<std::uint32_t>(room) : wanted;
        // Relaxed: the winner owns the entries; the acquire of `done` showed that they are free.
        if (simt::compare_exchange<S, simt::Order::kRelaxed>(&state->reserved, next, next + count) == next) {
            run.first = next;
            run.count = count;
            run.outcome = SendOutcome::kGranted;
            return run;
        }
    }
}

template <simt::Scope S>
template <class... Segments>
GN_HD void BasicSendQueueRef<S>::fill(SendTicket& ticket, std::uint8_t opcode, std::uint32_t invalidate_rkey,
                                      Segments... segments) const {
    constexpr std::uint32_t kUsed = sizeof...(Segments);
    mlx5::SendEntry* const entry = ring + slot(ticket.index);
    detail::store16(&entry->control,
                    mlx5::make_control(static_cast<std::uint16_t>(ticket.index), opcode, qpn,
                                       static_cast<std::uint8_t>(1 + kUsed), invalidate_rkey));
    std::uint32_t at = 0;
    (detail::store16(&entry->segment[at++], segments), ...);
    for (; at < 3; ++at) detail::store16(&entry->segment[at], mlx5::EntrySegment{.data = {0, 0, 0}});
    ticket.mark = lap_mark(ticket.index) | (static_cast<std::uint32_t>(opcode) << 8) | (1 + kUsed);
}

// Why no ready entry is left unpublished. Let lane A mark entry a ready; let lane B advance `published`
// up to a and then check ready[a]. Both access ready[a] by read-modify-writes, which are totally ordered.
// If B's comes later, it sees a ready and B advances past it. If B's comes first, A's acquires B's
// advance, so A, which reads `published` afterwards, finds a at the head and advances it. With plain
// loads for B's last check, both could miss each other.
template <simt::Scope S>
GN_HD void BasicSendQueueRef<S>::mark_ready(const SendTicket& ticket) const {
    if constexpr (kSingleLane) {
        simt::store_relaxed<S>(ready + slot(ticket.index), ticket.mark);  // ring_bell reads it
        return;
    }
    // Release of the entry's bytes: pairs with the acquire of the ready word in advance_among_others.
    simt::exchange<S>(ready + slot(ticket.index), ticket.mark);
}

template <simt::Scope S>
GN_HD void BasicSendQueueRef<S>::advance_published(std::uint64_t first, std::uint32_t count) const {
    if constexpr (kSingleLane)  // published in the order of reservation, so all before it are published
        simt::store_relaxed<S>(&state->published, first + count);
    else
        advance_among_others(first, count);
}

template <simt::Scope S>
GN_HD void BasicSendQueueRef<S>::advance_among_others(std::uint64_t first, std::uint32_t count) const {
    // Fast path: all earlier entries are published and the next one is not ready. Same two operations as
    // below, for the same reasons.
    const std::uint64_t behind = first + count;
    if (simt::compare_exchange<S, simt::Order::kRelease>(&state->published, first, behind) == first &&
        !is_ready(simt::fetch_or<S>(ready + slot(behind), 0u), behind))
        return;
    for (;;) {
        const std::uint64_t head = simt::load_acquire<S>(&state->published);
        std::uint64_t to = head;
        for (;;) {
            if (to >= first && to < first + count) to = first + count;
            if (to - head >= entries()) break;
            if (is_ready(simt::load_acquire<S>(ready + slot(to)), to)) {
                ++to;
                continue;
            }
            if (to != head) break;  // advance the head first; the next round checks again
            // The last check must be a read-modify-write (see above).
            if (!is_ready(simt::fetch_or<S>(ready + slot(to), 0u), to)) return;
            ++to;
        }
        // Release: the lane that rings acquires `published`, and with it the bytes of all entries below.
        // If the exchange fails, another lane advanced it: start again from there.
        simt::compare_exchange<S, simt::Order::kRelease>(&state->published, head, to);
    }
}

// Why every published entry is rung. `ringing` is accessed by exchanges alone. A lane that finds it 1 has
// published before. Its exchange precedes, in the modification order of that word, the exchange by which
// the holder clears it; so the holder acquires the lane's count, and its check after the clear sees the
// count.
template <simt::Scope S>
GN_HD void BasicSendQueueRef<S>::ring_bell() const {
    using simt::Scope;
    for (;;) {
        if (simt::exchange<S>(&state->ringing, 1u) != 0) return;
        const std::uint64_t rung = simt::load_relaxed<S>(&state->rung);
        // Acquire: pairs with the compare_exchange of advance_among_others and makes the entries' bytes
        // visible.
        const std::uint64_t upto = simt::load_acquire<S>(&state->published);
        if (upto != rung) {
            // The NIC does not know of entry upto - 1 yet, so its slot and ready word cannot be of a
            // later lap.
            const std::uint32_t mark = simt::load_relaxed<S>(ready + slot(upto - 1));
            const mlx5::ControlSegment control =
                mlx5::make_control(static_cast<std::uint16_t>(upto - 1), static_cast<std::uint8_t>(mark >> 8),
                                   qpn, static_cast<std::uint8_t>(mark));
            // Release: pairs with the NIC's acquire load of the record (NicEngine::look_at_bell), after
            // which it reads whole entries.
            simt::store_release<Scope::kSystem>(doorbell_record + mlx5::kSendRecord,
                                                be32(static_cast<std::uint32_t>(upto) & mlx5::kIndexMask));
            // After the record: the bell must never name an entry that the record does not cover.
            simt::store_mmio64_release(bell, mlx5::bell_value(control));
            simt::store_relaxed<S>(&state->rung, upto);
        }
        simt::exchange<S>(&state->ringing, 0u);
        if (simt::load_acquire<S>(&state->published) == upto) return;
    }
}

template <class Group, simt::Scope S>
GN_HD SendTicket try_reserve(Group group, const BasicSendQueueRef<S>& queue, bool wanted) {
    const auto key = wanted ? reinterpret_cast<std::uint64_t>(queue.state) : 0u;
    const simt::LaneSet sharers = group.match(static_cast<std::uint64_t>(key));
    const std::uint32_t chief = sharers.lowest();
    SendRun run;
    if (wanted && chief == group.lane()) run = queue.try_reserve_run(sharers.count());
    group.sync();  // extends the first lane's acquire to all members: shfl orders nothing
    run.first = group.shfl(run.first, chief);
    run.count = group.shfl(run.count, chief);
    run.outcome = group.shfl(run.outcome, chief);
    SendTicket ticket;
    if (!wanted) return ticket;
    const std::uint32_t rank = sharers.count_below(group.lane());
    ticket.index = run.first + rank;
    ticket.outcome =
        rank < run.count || run.outcome == SendOutcome::kBroken ? run.outcome : SendOutcome::kFull;
    return ticket;
}

template <class Group, simt::Scope S>
GN_HD void publish_and_ring(Group group, const BasicSendQueueRef<S>& queue, const SendTicket& ticket,
                            bool ring) {
    if (ticket.granted()) queue.mark_ready(ticket);
    const auto key = ticket.granted() ? reinterpret_cast<std::uint64_t>(queue.state) : 0u;
    // Members that share a queue and reserved together got consecutive entries in lane order; then the
    // first one publishes and rings for all. The match orders all marks before that.
    const simt::LaneSet sharers = group.match(static_cast<std::uint64_t>(key));
    const std::uint64_t first = group.shfl(ticket.index, sharers.lowest());
    const std::uint32_t rank = sharers.count_below(group.lane());
    const bool consecutive = ticket.index == first + rank;
    const bool gaps = group.ballot(ticket.granted() && !consecutive).empty() == false;
    group.sync();
    if (!ticket.granted() || sharers.lowest() != group.lane()) return;
    queue.advance_published(first, gaps ? 1 : sharers.count());
    if (ring) queue.ring_bell();
}

}  // namespace gnstor::rdma
