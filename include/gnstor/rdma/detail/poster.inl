// poster.inl: bodies of poster.hpp.
#pragma once

#include <gnstor/rdma/poster.hpp>  // for tools that open this file alone

namespace gnstor::rdma {

namespace detail {
/// 16 bytes, stored at once where the processor can.
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
    // Acquire, so that the completion read below is at least as new as the one that this count came from.
    const std::uint64_t before = simt::load_acquire<S>(&state->completed);
    // All entries up to it are no longer touched by the NIC.
    const std::uint32_t own = acquire_last_words(completion).counter_own;
    if (mlx5::cqe_opcode(own) == mlx5::kCqeInvalid) return before;
    if (mlx5::cqe_is_error(own)) {
        const std::uint32_t low = simt::load_relaxed<Scope::kSystem>(&completion->timestamp_low);
        simt::compare_exchange<S>(&state->error, 0u, kErrorSeen | mlx5::cqe_syndrome(low));
    }
    // The 16-bit counter is widened from `before`. That is exact if no lane moved the count meanwhile: while
    // it stood at `before`, no lane could reserve past before + entries, so at most `entries` (< 2^16)
    // completions lie between.
    const std::uint64_t again = simt::load_acquire<S>(&state->completed);
    if (again != before) return again;
    const auto passed =
        static_cast<std::uint16_t>(mlx5::cqe_wqe_counter(own) + 1u - static_cast<std::uint32_t>(before));
    if (passed == 0) return before;
    if (passed > entries()) {  // not a completion of this queue: treat as the defect that it is
        simt::compare_exchange<S>(&state->error, 0u, kErrorSeen | mlx5::kBadResponse);
        return before;
    }
    // Release: hands on to completed() what was acquired from the NIC.
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
        // Whoever wins owns the entries; that they are free was acquired with `done`.
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

// Why combining loses no entry. Let A mark entry a ready, and let B move `published` up to a and then look
// whether a is ready. Both touch ready[a] by read-modify-writes, which are totally ordered: either B's comes
// later and sees a ready, so B goes on; or B's comes first, and then A's acquires what B did before, so A,
// which looks at `published` afterwards, finds a at the head and moves it. Plain loads in place of B's last
// look would let both miss each other.
template <simt::Scope S>
GN_HD void BasicSendQueueRef<S>::mark_ready(const SendTicket& ticket) const {
    if constexpr (kAlone) {
        simt::store_relaxed<S>(ready + slot(ticket.index), ticket.mark);  // for the bell
        return;
    }
    // Release of the entry's bytes: pairs with the look of advance_published.
    simt::exchange<S>(ready + slot(ticket.index), ticket.mark);
}

template <simt::Scope S>
GN_HD void BasicSendQueueRef<S>::advance_published(std::uint64_t first, std::uint32_t count) const {
    if constexpr (kAlone)  // in the order of reservation: all before it is published
        simt::store_relaxed<S>(&state->published, first + count);
    else
        advance_among_others(first, count);
}

template <simt::Scope S>
GN_HD void BasicSendQueueRef<S>::advance_among_others(std::uint64_t first, std::uint32_t count) const {
    // Mostly all before it is published and nothing behind it is ready: then these two are all that it takes.
    // The same two as below, and for the same reasons.
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
            if (to != head) break;  // move the head first; the next round looks again
            // The last look, which must be a read-modify-write (above).
            if (!is_ready(simt::fetch_or<S>(ready + slot(to), 0u), to)) return;
            ++to;
        }
        // Release: whoever rings acquires `published`, and with it the bytes of all entries below. A failure
        // means that another lane moved it: look again from there.
        simt::compare_exchange<S, simt::Order::kRelease>(&state->published, head, to);
    }
}

// Why no published entry stays unrung. `ringing` is touched by exchanges alone. A lane that finds it 1 has
// published before; its exchange precedes, in the order of that word, the exchange by which the holder drops
// it, so the holder acquires the lane's count and its check after the drop sees it.
template <simt::Scope S>
GN_HD void BasicSendQueueRef<S>::ring_bell() const {
    using simt::Scope;
    for (;;) {
        if (simt::exchange<S>(&state->ringing, 1u) != 0) return;
        const std::uint64_t rung = simt::load_relaxed<S>(&state->rung);
        // Pairs with the compare_exchange of advance_published: brings the entries' bytes.
        const std::uint64_t upto = simt::load_acquire<S>(&state->published);
        if (upto != rung) {
            // The NIC was not told of entry upto - 1 yet, so its slot and ready word cannot be of a later
            // lap.
            const std::uint32_t mark = simt::load_relaxed<S>(ready + slot(upto - 1));
            const mlx5::ControlSegment control =
                mlx5::make_control(static_cast<std::uint16_t>(upto - 1), static_cast<std::uint8_t>(mark >> 8),
                                   qpn, static_cast<std::uint8_t>(mark));
            // Release: pairs with the NIC's acquire load of the record; it then reads whole entries.
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
    group.sync();  // hands on what the chief acquired with the room: shfl orders nothing
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
    // Members that share a queue got consecutive entries, in the order of their lanes, if they reserved
    // together; then the first one publishes and rings for all. The match also orders all marks before that.
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
