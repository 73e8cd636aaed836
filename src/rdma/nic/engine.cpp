// engine.cpp: one round of the engine: bells, gathering, retiring, errors. execute.cpp executes an entry.
#include "rdma/nic/engine.hpp"

#include "rdma/nic/delays.hpp"
#include "rdma/nic/remote_queue.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/simt/atomic.hpp>

#include <algorithm>

namespace gnstor::rdma {

using simt::Scope;

NicEngine::NicEngine(Reactor& reactor) : reactor_(reactor) {
    dirty_.reserve(64);
    gathered_.reserve(kBatch);
}

NicEngine::~NicEngine() = default;

void NicEngine::attach(QueuePair& qp) {
    queue_pairs_.push_back(&qp);
    dirty_.reserve(queue_pairs_.size());
}

void NicEngine::detach(QueuePair& qp) {
    std::erase(queue_pairs_, &qp);
    std::erase(dirty_, &qp);
    qp.dirty = false;
    next_ = 0;
    if (delays_ != nullptr) forget_delayed(qp);
}

void NicEngine::mark_dirty(QueuePair& qp) {
    if (qp.dirty) return;
    qp.dirty = true;
    dirty_.push_back(&qp);  // attach() reserved room for all
}

std::uint32_t NicEngine::poll() {
    running_engine = this;
    // By index: a queue pair that fails tells its sink, which may fail others and so extend noted_.
    for (std::size_t i = 0; i < noted_.size(); ++i) noted_[i]->on_round();
    noted_.clear();
    std::uint32_t work = gather_entries();
    for (const Gathered& g : gathered_) execute(*g.qp, g.index);
    if (delays_ != nullptr) work += deliver_delayed();
    // Retiring may leave a queue pair dirty (strict mode delays it): walk the first `due`, keep those.
    const std::size_t due = dirty_.size();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < due; ++i) {
        QueuePair& qp = *dirty_[i];
        const std::uint64_t before = qp.retired;
        retire(qp);
        work += static_cast<std::uint32_t>(qp.retired - before);
        const bool waits_for_dice = qp.retired < qp.executed && !qp.flight(qp.retired).held;
        if (waits_for_dice) {
            dirty_[kept++] = &qp;
            ++work;
        } else {
            qp.dirty = false;
        }
    }
    dirty_.erase(dirty_.begin() + static_cast<std::ptrdiff_t>(kept),
                 dirty_.begin() + static_cast<std::ptrdiff_t>(due));
    return work;
}

/// Reads the record if the bell changed. Checking a bell is cheap (a cache line holds eight); the record
/// says what is posted.
void NicEngine::look_at_bell(QueuePair& qp) {
    // Acquire: pairs with the lane's release of the bell (simt::store_mmio64_release), so the record is
    // at least as new.
    const std::uint64_t bell = simt::load_acquire<Scope::kSystem>(qp.config.bell);
    if (bell == qp.last_bell) return;
    if (qp.strict() && qp.dice.below(4) == 0) return;  // a NIC may be slow to look
    qp.last_bell = bell;
    count(qp.nic->tally.mine().bells);
    // Acquire: pairs with the lane's release of the record (ring_bell): every entry below it is complete.
    const std::uint32_t record =
        be32(simt::load_acquire<Scope::kSystem>(qp.config.doorbell_record + mlx5::kSendRecord));
    const std::uint64_t posted =
        qp.posted + ((record - static_cast<std::uint32_t>(qp.posted)) & mlx5::kIndexMask);
    if (posted - qp.retired > qp.config.send_entries) {
        if (qp.in_error()) return;  // logged once: the poster may keep ringing
        if (qp.nic->may_complain())
            log_error(
                "rdma: queue pair {:#x}: the doorbell record announces {} unfinished send entries, but the "
                "send "
                "ring has only {}",
                qp.qpn, posted - qp.retired, qp.config.send_entries);
        if (qp.strict()) strict_violation(qp, "send queue overflow", posted);
        fail(qp);
        return;
    }
    qp.posted = posted;
    if (qp.strict() && !qp.in_error()) strict_check_bell(qp, bell);
}

std::uint32_t NicEngine::gather_entries() {
    gathered_.clear();
    std::uint32_t flushed = 0;
    const std::size_t n = queue_pairs_.size(), first = next_;
    // Lanes wrote bells, entries and capsules last: prefetch each kind for all queue pairs before the
    // first is read.
    for (const QueuePair* qp : queue_pairs_)
        if (!qp->offload()) {
            __builtin_prefetch(qp->config.bell);
            __builtin_prefetch(qp->config.doorbell_record);
        }
    for (std::size_t i = 0; i < n; ++i) {
        QueuePair& qp = *queue_pairs_[(first + i) % n];
        if (qp.offload()) continue;
        look_at_bell(qp);
        // At most kBatch a round of all queue pairs together: a client whose queue pairs are all in error,
        // and which posts receives to them without end, must not make the rounds of others longer.
        if (qp.in_error() && flushed < kBatch) {
            flushed += flush_receives(qp, kBatch - flushed);
            if (flushed == kBatch) next_ = (first + i + 1) % n;  // the others' turn
        }
        if (qp.strict()) strict_reread(qp);
        for (std::uint64_t at = qp.executed; at < qp.posted && gathered_.size() < kBatch; ++at) {
            __builtin_prefetch(qp.config.send_ring + (at & (qp.config.send_entries - 1)));
            gathered_.push_back({&qp, at});
        }
        if (gathered_.size() == kBatch) {
            next_ = (first + i + 1) % n;
            break;
        }
    }
    for (const Gathered& g : gathered_) {
        // The address is unchecked: a prefetch never faults, and execute() checks it.
        const mlx5::SendEntry& entry = g.qp->config.send_ring[g.index & (g.qp->config.send_entries - 1)];
        __builtin_prefetch(reinterpret_cast<const void*>(be64(entry.segment[0].data.address)));
    }
    return static_cast<std::uint32_t>(gathered_.size()) + flushed;
}

void NicEngine::complete(QueuePair& qp, std::uint64_t index) {
    const InFlight& flight = qp.flight(index);
    CompletionFields fields;
    fields.qpn = qp.qpn;
    fields.wqe_counter = static_cast<std::uint16_t>(index);
    fields.send_opcode = mlx5::control_opcode(flight.entry.control);
    fields.syndrome = flight.syndrome;
    fields.opcode = flight.syndrome == mlx5::kSyndromeNone ? mlx5::kCqeRequest : mlx5::kCqeRequestError;
    count(qp.nic->tally.mine().completions);
    if (flight.syndrome != mlx5::kSyndromeNone) count(qp.nic->tally.mine().error_completions);
    if (!qp.send_cq->write(fields)) {
        if (qp.strict()) strict_violation(qp, "send completion queue overrun", index);
        fail(qp);
    }
}

/// Completes finished entries in order. In a collapsed queue only the newest of a run: it would overwrite
/// the others.
void NicEngine::retire(QueuePair& qp) {
    const bool collapsed = qp.send_cq->collapsed();
    bool owed = false;
    while (qp.retired < qp.executed) {
        InFlight& flight = qp.flight(qp.retired);
        if (flight.held) break;
        if (flight.delay != 0) {
            --flight.delay;
            break;
        }
        if (qp.strict() && flight.syndrome == mlx5::kSyndromeNone && !strict_unchanged(qp, qp.retired)) {
            flight.syndrome = mlx5::kLocalQpOperationError;
            fail(qp);
        }
        const bool wanted = (mlx5::control_fm_ce_se(flight.entry.control) & mlx5::kCompletionUpdate) != 0 ||
                            flight.syndrome != mlx5::kSyndromeNone;
        const std::uint64_t index = qp.retired++;
        if (collapsed)
            owed |= wanted;
        else if (wanted)
            complete(qp, index);
        if (owed && flight.syndrome != mlx5::kSyndromeNone) {
            complete(qp, index);
            owed = false;
        }
    }
    if (owed) complete(qp, qp.retired - 1);
}

void NicEngine::fail_receive(QueuePair& qp, std::uint8_t syndrome) {
    CompletionFields fields;
    fields.qpn = qp.qpn;
    fields.wqe_counter = static_cast<std::uint16_t>(qp.receives_used++);
    fields.opcode = mlx5::kCqeResponseError;
    fields.syndrome = syndrome;
    count(qp.nic->tally.mine().error_completions);
    (void)qp.receive_cq->write(fields);  // after an overrun the completion is simply missing
}

/// A queue pair in error completes its receives as flushed, also those posted later. Returns how many.
std::uint32_t NicEngine::flush_receives(QueuePair& qp, std::uint32_t most) {
    if (qp.receive_cq == nullptr || qp.receive_cq->overrun()) return 0;
    const std::uint32_t record =
        be32(simt::load_acquire<Scope::kSystem>(qp.config.doorbell_record + mlx5::kReceiveRecord));
    std::uint32_t left = (record - static_cast<std::uint32_t>(qp.receives_used)) & mlx5::kIndexMask;
    left = std::min({left, qp.config.receive_entries, most});
    std::uint32_t flushed = 0;
    for (; flushed != left && !qp.receive_cq->overrun(); ++flushed) fail_receive(qp, mlx5::kFlushed);
    return flushed;
}

void NicEngine::to_error(QueuePair& qp) {
    if (qp.in_error()) return;
    // Sequentially consistent with open_window on other threads, which counts and then checks the state:
    // no window opens after the wait for windows began.
    qp.state.store(QpState::kError, std::memory_order_seq_cst);
    for (std::uint64_t i = qp.retired; i < qp.executed;
         ++i)  // not acknowledged: unknown whether the peer received it
        if (qp.flight(i).held) qp.flight(i).syndrome = mlx5::kFlushed;
    if (qp.offload() && !qp.sink_told) {
        qp.sink_told = true;
        qp.sink->on_error(qp.qpn);
    }
    if (qp.remote == nullptr) return;
    qp.remote->shut();
    for (std::uint64_t i = qp.retired; i < qp.executed; ++i)  // the link no longer touches their memory
        let_go(qp, i);
}

void NicEngine::fail(QueuePair& qp) {
    to_error(qp);
    if (QueuePair* peer = qp.peer.load(std::memory_order_acquire)) to_error(*peer);
}

void NicEngine::finish_entry(QueuePair& qp, std::uint64_t index, std::uint8_t syndrome) {
    if (index < qp.retired || index >= qp.executed) return;
    qp.flight(index).syndrome = syndrome;
    let_go(qp, index);
}

void NicEngine::release(QueuePair& qp, std::uint64_t token) {
    if (qp.remote != nullptr) return qp.remote->release(token);
    QueuePair* const sender = qp.peer.load(std::memory_order_acquire);
    if (sender == nullptr || token_incarnation(token) != (sender->incarnation & 0xFFFFu))
        return;  // of an earlier connection
    const std::uint64_t index = token_index(token);
    if (index < sender->retired || index >= sender->executed) return;
    let_go(*sender, index);
}

void NicEngine::let_go(QueuePair& sender, std::uint64_t index) {
    InFlight& flight = sender.flight(index);
    if (!flight.held) return;
    flight.held = false;
    for (std::uint32_t i = 0; i < flight.region_count; ++i) flight.regions[i]->unpin();
    flight.region_count = 0;
    // Release: pairs with the control plane, which waits until `holds` is 0 (nic.cpp).
    sender.holds.store(sender.holds.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    mark_dirty(sender);
}

}  // namespace gnstor::rdma
