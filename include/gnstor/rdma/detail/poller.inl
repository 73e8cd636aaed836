// poller.inl: bodies of poller.hpp.
#pragma once

#include <gnstor/rdma/poller.hpp>  // for tools that open this file alone

namespace gnstor::rdma {

namespace detail {

/// What a look at one completion reads: words loaded ahead, then op_own.
struct Glance {
    std::uint32_t own;
    std::uint32_t dw3;
    std::uint32_t qpn_word;
    bool valid;
};

GN_HD
inline bool is_valid(const CompletionQueueRef& cq, std::uint64_t index, std::uint32_t own) {
    return mlx5::cqe_opcode(own) != mlx5::kCqeInvalid &&
           mlx5::cqe_owner(own) == (static_cast<std::uint32_t>(index >> cq.entries_log2) & 1u);
}

GN_HD
inline mlx5::Cqe64* cqe_at(const CompletionQueueRef& cq, std::uint64_t index) {
    return cq.ring + (static_cast<std::uint32_t>(index) & (cq.entries() - 1));
}

/// A load ahead and an acquire of two words. They are in flight together, since an acquire delays only
/// what follows it and the words lie in different 32-byte sectors.
GN_HD
inline Glance glance(const CompletionQueueRef& cq, std::uint64_t index) {
    using simt::Scope;
    const mlx5::Cqe64* cqe = cqe_at(cq, index);
    Glance g;
    g.dw3 = simt::load_relaxed<Scope::kSystem>(&cqe->inline_data[3]);
    const LastWords last = acquire_last_words(cqe);
    g.qpn_word = last.sop_drop_qpn;
    g.own = last.counter_own;
    g.valid = is_valid(cq, index, g.own);
    return g;
}

/// Loads again the words that still held poison, and locates the message. Call after the acquire of
/// op_own.
GN_HD
inline Arrival to_arrival(const CompletionQueueRef& cq, const ReceiveSet& receives, std::uint64_t index,
                          Glance g) {
    using simt::Scope;
    const mlx5::Cqe64* cqe = cqe_at(cq, index);
    if (g.qpn_word == kPoison) g.qpn_word = simt::load_relaxed<Scope::kSystem>(&cqe->sop_drop_qpn);
    Arrival a;
    a.cqe = cqe;
    a.qpn = mlx5::cqe_qpn(g.qpn_word);
    a.queue = receives.find(a.qpn);
    a.wqe_counter = mlx5::cqe_wqe_counter(g.own);
    a.opcode = mlx5::cqe_opcode(g.own);
    a.syndrome = mlx5::kSyndromeNone;
    a.dw3 = 0;
    a.message = nullptr;
    if (a.is_error()) {
        a.syndrome = mlx5::cqe_syndrome(simt::load_relaxed<Scope::kSystem>(&cqe->timestamp_low));
    } else if (mlx5::cqe_inline32(g.own)) {
        a.message = cqe->inline_data;
        if (g.dw3 == kPoison) g.dw3 = simt::load_relaxed<Scope::kSystem>(&cqe->inline_data[3]);
        a.dw3 = g.dw3;
    } else if (a.queue != ReceiveSet::kUnknown) {
        a.message = reinterpret_cast<const std::uint32_t*>(receives.queues[a.queue].buffer(a.wqe_counter));
        a.dw3 = simt::load_relaxed<Scope::kSystem>(a.message + 3);
    }
    return a;
}

/// Poisons a consumed completion. The release of the consumer record orders this before the NIC's next
/// write of it.
GN_HD
inline void poison(mlx5::Cqe64* cqe) {
    using simt::Scope;
    simt::store_relaxed<Scope::kSystem>(&cqe->inline_data[3], kPoison);
    simt::store_relaxed<Scope::kSystem>(&cqe->sop_drop_qpn, kPoison);
}

/// Poisons the fourth word of a receive buffer whose message was read, or which has received none. The
/// release of the receive record orders this before the NIC's next write.
GN_HD
inline void poison_buffer(const ReceiveQueueRef& queue, std::uint32_t index) {
    simt::store_relaxed<simt::Scope::kSystem>(reinterpret_cast<std::uint32_t*>(queue.buffer(index)) + 3,
                                              kPoison);
}

/// Poisons the words of an arrival that a poll reads ahead.
GN_HD
inline void poison_arrival(const ReceiveSet& receives, mlx5::Cqe64* cqe, const Arrival& arrival) {
    poison(cqe);
    if (arrival.message != nullptr && !arrival.is_inline())
        poison_buffer(receives.queues[arrival.queue], arrival.wqe_counter);
}

/// Tells the NIC how many receives are posted.
GN_HD
inline void store_receive_record(const ReceiveQueueRef& queue) {
    // Release: the lanes have read the buffers (ordered by the group's sync); pairs with the NIC's
    // acquire of the record (NicEngine::has_receive).
    simt::store_release<simt::Scope::kSystem>(
        queue.doorbell_record + mlx5::kReceiveRecord,
        be32(static_cast<std::uint32_t>(queue.state->posted) & mlx5::kIndexMask));
}

/// Posts `count` receives again. Called under the lock, by one lane per queue.
GN_HD
inline void repost(const ReceiveQueueRef& queue, std::uint32_t count) {
    queue.state->posted += count;
    store_receive_record(queue);
}

GN_HD
inline void consume(const CompletionQueueRef& cq, std::uint64_t upto) {
    cq.state->consumer = upto;
    // Release: the completions were read and poisoned; pairs with the NIC's acquire before it overwrites
    // them.
    simt::store_release<simt::Scope::kSystem>(cq.consumer_record,
                                              be32(static_cast<std::uint32_t>(upto) & mlx5::kConsumerMask));
}

/// Passes one completion to the visitor and counts its receive as posted again; sets the queue's bit in
/// `due`: the caller stores that queue's doorbell record afterwards.
template <class Visitor>
GN_HD void visit_and_count_receive(const CompletionQueueRef& cq, const ReceiveSet& receives,
                                   std::uint64_t index, const Glance& seen, Visitor& visit,
                                   std::uint64_t& due) {
    const Arrival arrival = to_arrival(cq, receives, index, seen);
    visit(arrival);
    poison_arrival(receives, cqe_at(cq, index), arrival);
    if (arrival.is_error() || arrival.queue == ReceiveSet::kUnknown) return;
    ++receives.queues[arrival.queue].state->posted;
    due |= std::uint64_t{1} << arrival.queue;
}

/// The further completions that a single lane found valid together with the first.
template <class Visitor>
GN_HD GN_NOINLINE void consume_more(const CompletionQueueRef& cq, const ReceiveSet& receives,
                                    std::uint64_t at, std::uint32_t take, Visitor& visit,
                                    std::uint64_t& due) {
    using simt::Scope;
    // The NIC writes completions in order, each with a release, so acquiring the newest one orders all
    // earlier ones.
    (void)acquire_last_words(cqe_at(cq, at + take - 1));
    Glance loaded[kSingleLaneLookahead];  // in registers, so that all loads are in flight together
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 1; i < kSingleLaneLookahead; ++i) {
        const mlx5::Cqe64* cqe = cqe_at(cq, at + i);
        loaded[i].dw3 = simt::load_relaxed<Scope::kSystem>(&cqe->inline_data[3]);
        const auto last = simt::load_relaxed_pair<Scope::kSystem>(&cqe->sop_drop_qpn);
        loaded[i].qpn_word = last.first;
        loaded[i].own = last.second;
    }
    Glance seen[kSingleLaneLookahead];  // in memory, as the loop below indexes it
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 1; i < kSingleLaneLookahead; ++i) seen[i] = loaded[i];
    for (std::uint32_t i = 1; i < take; ++i)
        visit_and_count_receive(cq, receives, at + i, seen[i], visit, due);
}

/// A single lane: looks at 8 completions with all loads in flight together; the acquire of the first one
/// comes last.
template <class Visitor>
GN_HD std::uint32_t poll_single_lane(const CompletionQueueRef& cq, const ReceiveSet& receives,
                                     std::uint64_t at, Visitor& visit) {
    using simt::Scope;
    std::uint32_t own[kSingleLaneLookahead];
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 1; i < kSingleLaneLookahead; ++i)
        own[i] = simt::load_relaxed<Scope::kSystem>(&cqe_at(cq, at + i)->counter_own);
    const Glance first = glance(cq, at);
    if (!first.valid) return 0;
    std::uint32_t take = 1;
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 1; i < kSingleLaneLookahead; ++i)
        if (take == i && is_valid(cq, at + i, own[i])) ++take;
    std::uint64_t due = 0;
    visit_and_count_receive(cq, receives, at, first, visit, due);
    if (take > 1) consume_more(cq, receives, at, take, visit, due);
    consume(cq, at + take);
    for (std::uint32_t queue = 0; due != 0; due >>= 1, ++queue)  // one doorbell-record store per queue
        if ((due & 1) != 0) store_receive_record(receives.queues[queue]);
    return take;
}

/// Several lanes: each looks at one completion.
template <class Group, class Visitor>
GN_HD std::uint32_t poll_together(Group group, const CompletionQueueRef& cq, const ReceiveSet& receives,
                                  std::uint64_t at, Visitor& visit) {
    const std::uint32_t rank = group.rank();
    const Glance seen = glance(cq, at + rank);
    const simt::LaneSet not_yet = group.ballot(!seen.valid);
    const std::uint32_t take = not_yet.empty() ? group.size() : group.shfl(rank, not_yet.lowest());
    if (take == 0) return 0;
    std::uint32_t due = ReceiveSet::kUnknown;
    if (rank < take) {
        const Arrival arrival = to_arrival(cq, receives, at + rank, seen);
        visit(arrival);
        poison_arrival(receives, cqe_at(cq, at + rank), arrival);
        if (!arrival.is_error()) due = arrival.queue;
    }
    const simt::LaneSet sharers = group.match(due);
    group.sync();  // every member has read its message: the NIC may reuse completions and buffers
    if (group.is_leader()) consume(cq, at + take);
    group.sync();  // the consumer record is stored before the receive records
    if (due != ReceiveSet::kUnknown && sharers.lowest() == group.lane())
        repost(receives.queues[due], sharers.count());
    return take;
}

}  // namespace detail

GN_HD
inline void post_all_receives(const ReceiveQueueRef& queue) {
    for (std::uint32_t i = 0; i < queue.entries(); ++i) {
        queue.ring[i] =
            mlx5::make_data(reinterpret_cast<std::uint64_t>(queue.buffer(i)), queue.buffer_bytes, queue.lkey);
        detail::poison_buffer(queue, i);
    }
    detail::repost(queue, queue.entries());
}

GN_HD
inline void prepare_completions(const CompletionQueueRef& cq) {
    for (std::uint32_t i = 0; i < cq.entries(); ++i) detail::poison(cq.ring + i);
}

GN_HD
inline InlineMessage peek_single_lane(const CompletionQueueRef& cq, std::uint64_t at) {
    const detail::Glance seen = detail::glance(cq, at);
    const std::uint8_t opcode = mlx5::cqe_opcode(seen.own);
    const bool in_it =
        mlx5::cqe_inline32(seen.own) && (opcode == mlx5::kCqeSend || opcode == mlx5::kCqeSendInvalidate);
    // Words that were loaded too early are loaded again in the next look.
    const bool whole = seen.valid && (!in_it || (seen.dw3 != kPoison && seen.qpn_word != kPoison));
    InlineMessage message;
    if (whole) message.look = in_it ? Look::kMessage : Look::kOther;
    message.qpn = mlx5::cqe_qpn(seen.qpn_word);
    message.dw3 = seen.dw3;
    return message;
}

GN_HD
inline void consume_single_lane(const CompletionQueueRef& cq, std::uint64_t at) {
    detail::poison(detail::cqe_at(cq, at));
    cq.state->consumer = at + 1;
}

GN_HD
inline void record_consumed(const CompletionQueueRef& cq, std::uint64_t consumed) {
    simt::store_released<simt::Scope::kSystem>(
        cq.consumer_record, be32(static_cast<std::uint32_t>(consumed) & mlx5::kConsumerMask));
}

GN_HD
inline void record_receives(const ReceiveQueueRef& queue) {
    simt::store_released<simt::Scope::kSystem>(
        queue.doorbell_record + mlx5::kReceiveRecord,
        be32(static_cast<std::uint32_t>(queue.state->posted) & mlx5::kIndexMask));
}

template <simt::Scope S, class Group, class Visitor>
GN_HD PollResult poll(Group group, const CompletionQueueRef& cq, const ReceiveSet& receives,
                      Visitor&& visit) {
    PollResult result;
    std::uint64_t at = 0;
    if constexpr (S == simt::Scope::kLane) {
        result.taken = true;
        at = cq.state->consumer;
        result.arrived = detail::poll_single_lane(cq, receives, at, visit);
        return result;
    }
    if (group.is_leader()) {
        // Test before exchange: groups that find the lock held do not take its cache line from the
        // holder. Acquire: pairs with the last holder's release.
        result.taken = simt::load_relaxed<S>(&cq.state->lock) == 0 &&
                       simt::exchange<S, simt::Order::kAcquire>(&cq.state->lock, 1u) == 0;
        if (result.taken) at = cq.state->consumer;
    }
    result.taken = group.shfl(result.taken, group.leader());
    if (!result.taken) return result;
    if (group.size() == 1) {
        result.arrived = detail::poll_single_lane(cq, receives, at, visit);
    } else {
        group.sync();  // extends the leader's acquire of the lock to all members
        at = group.shfl(at, group.leader());
        result.arrived = detail::poll_together(group, cq, receives, at, visit);
        group.sync();  // orders the members' writes before the leader's release
    }
    // Release: pairs with the next holder's exchange above.
    if (group.is_leader()) simt::store_release<S>(&cq.state->lock, 0u);
    return result;
}

}  // namespace gnstor::rdma
