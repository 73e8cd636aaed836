// soft_nic.cpp: the control calls: open, memory, completion queues, queue pairs. Connections are in
// connect.cpp, the data path in nic/engine.cpp.
#include "rdma/nic/remote_queue.hpp"
#include "rdma/wire/loop/soft_nic_impl.hpp"

#include <gnstor/base/hash.hpp>
#include <gnstor/base/log.hpp>
#include <gnstor/simt/atomic.hpp>
#include <gnstor/simt/time.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

namespace gnstor::rdma {

using simt::Scope;

namespace {
constexpr std::uint32_t kDeregisterMs = 5'000;
constexpr std::uint32_t kLargestQueue = 32'768;  ///< indices on the wire have 16 bits

template <class T>
bool aligned(const T* p) {
    return reinterpret_cast<std::uintptr_t>(p) % alignof(T) == 0;
}
}  // namespace

SoftNic::SoftNic(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<SoftNic>> SoftNic::open(LoopWire& wire, std::string address, NicOptions options,
                                               std::span<Reactor* const> reactors) {
    GN_ASSIGN(auto impl, make(wire, std::move(address), options, reactors));
    std::unique_ptr<SoftNic> nic(new SoftNic(std::move(impl)));
    GN_TRY(nic->attach());
    return nic;
}

Result<std::unique_ptr<SoftNic::Impl>> SoftNic::make(LoopWire& wire, std::string address, NicOptions options,
                                                     std::span<Reactor* const> reactors) {
    if (reactors.empty() || options.pollers == 0)
        return error(Errc::kInvalidArgument,
                     "cannot open NIC {}: it needs at least one poller and one reactor", address);
    GN_TRY(check(options.link));
    auto impl = std::make_unique<Impl>();
    impl->wire = wire.impl_.get();
    impl->context.options = options;
    impl->context.address = std::move(address);
    if (!options.link.none()) impl->context.link = std::make_unique<LinkModel>(options.link, simt::now_ns());
    impl->by_index = std::make_unique<std::atomic<QueuePair*>[]>(Impl::kQueuePairs);
    impl->queue_pairs.resize(Impl::kQueuePairs);
    impl->homes.resize(Impl::kQueuePairs);
    impl->generations.resize(Impl::kQueuePairs);
    for (std::uint32_t i = 0; i < options.pollers; ++i) {
        Reactor* const reactor = reactors[i % reactors.size()];
        if (std::ranges::find(impl->reactors, reactor) == impl->reactors.end())
            impl->reactors.push_back(reactor);
    }
    return impl;
}

Result<void> SoftNic::attach() {
    const std::string& address = impl_->context.address;
    const NicOptions& options = impl_->context.options;
    const std::lock_guard lock(impl_->wire->mutex);
    if (impl_->wire->nics.contains(address))
        return error(Errc::kExists, "cannot open NIC {}: another NIC on this wire has that address", address);
    for (Reactor* const reactor : impl_->reactors) {
        impl_->engines.push_back(&impl_->wire->acquire_engine(*reactor));
        if (options.stage_windows)
            impl_->staged.push_back(
                options.stage_windows(*impl_->engines.back(), options.seed + impl_->staged.size()));
    }
    impl_->wire->nics[address] = this;
    impl_->attached = true;
    return {};
}

SoftNic::~SoftNic() {
    if (!impl_->attached) return;
    for (std::uint32_t i = 0; i < Impl::kQueuePairs; ++i) {
        if (impl_->queue_pairs[i] == nullptr) continue;
        log_warn(
            "rdma: NIC {} is closed although its queue pair {:#x} was not destroyed; it is destroyed now",
            impl_->context.address, impl_->queue_pairs[i]->qpn);
        if (const auto done = destroy_queue_pair(impl_->queue_pairs[i]->qpn); !done.ok())
            die_on_unchecked_result(done.error());  // an engine would go on touching it
    }
    Impl::Lock lock(impl_->wire->mutex);
    for (auto it = impl_->wire->listeners.begin(); it != impl_->wire->listeners.end();) {
        if (it->first.first != impl_->context.address) {
            ++it;
            continue;
        }
        Listener* const listener = it->second;
        it = impl_->wire->listeners.erase(it);
        impl_->wire->withdraw(lock, listener);
        it = impl_->wire->listeners.begin();  // others may have changed the table meanwhile
    }
    impl_->wire->nics.erase(impl_->context.address);
    for (const auto& queue : impl_->completion_queues)
        if (queue != nullptr && !queue->collapsed())
            impl_->wire->rings.drop(queue->affinity, queue->use(), queue->entries());
    impl_->staged.clear();
    for (Reactor* reactor : impl_->reactors) impl_->wire->release_engine(*reactor);
}

Result<MemoryKeys> SoftNic::register_memory(void* base, std::size_t bytes, std::uint32_t access) {
    return impl_->context.memory.add(base, bytes, access);
}

Result<MemoryKeys> SoftNic::register_foreign_memory(void* base, std::size_t bytes, std::uint32_t access,
                                                    std::byte* here, std::uint32_t key) {
    return impl_->context.memory.add(base, bytes, access, here, key);
}

Result<void> SoftNic::deregister_memory(MemoryKeys keys) {
    return impl_->context.memory.remove(keys, kDeregisterMs);
}

Result<CqNumber> SoftNic::create_completion_queue(const CompletionQueueConfig& config) {
    GN_TRY(check(config));
    // Writes the whole ring: not under the lock that all NICs of the wire share.
    auto made = std::make_unique<CompletionQueue>(config);
    const std::lock_guard lock(impl_->wire->mutex);
    auto& queues = impl_->completion_queues;
    auto free = std::ranges::find_if(queues, [](const auto& queue) { return queue == nullptr; });
    if (free == queues.end()) free = queues.insert(queues.end(), nullptr);
    *free = std::move(made);
    if (!config.collapsed)
        (*free)->affinity = impl_->wire->rings.place(impl_->engines.size(), config.use, config.entries);
    return static_cast<CqNumber>(free - queues.begin() + 1);
}

Result<void> SoftNic::destroy_completion_queue(CqNumber cq) {
    const std::lock_guard lock(impl_->wire->mutex);
    if (cq == 0 || cq > impl_->completion_queues.size() || impl_->completion_queues[cq - 1] == nullptr)
        return error(Errc::kNotFound,
                     "cannot destroy completion queue {}: no completion queue has this number", cq);
    if (impl_->completion_queues[cq - 1]->users.load() != 0)
        return error(Errc::kBusy,
                     "cannot destroy completion queue {}: destroy the queue pairs that use it first", cq);
    const CompletionQueue& queue = *impl_->completion_queues[cq - 1];
    if (!queue.collapsed()) impl_->wire->rings.drop(queue.affinity, queue.use(), queue.entries());
    impl_->completion_queues[cq - 1].reset();
    return {};
}

void SoftNic::Impl::make_unpredictable() {
    random.emplace();
    context.memory.make_unpredictable();
}

std::uint32_t SoftNic::Impl::next_generation(std::uint32_t index) {
    if (!random) return generations[index]++ & 0xFFFu;
    generations[index] = (generations[index] + 1 + static_cast<std::uint32_t>(random->below(0xFFF))) & 0xFFFu;
    return generations[index];
}

Result<QpNumber> SoftNic::Impl::adopt(std::unique_ptr<QueuePair> qp, std::optional<std::uint32_t> affinity) {
    const QpNumber wanted = qp->config.number;
    const std::uint32_t place = wanted % kQueuePairs;
    if (wanted != 0 && (wanted >> 24 != 0 || place < kFirstQueuePair || place >= kQueuePairs - 1 ||
                        queue_pairs[place] != nullptr))
        return error(
            Errc::kExists,
            "cannot create queue pair {:#x} of NIC {}: the number is invalid, or its table entry is in use",
            wanted, context.address);
    constexpr std::uint32_t kPlaces = kQueuePairs - 1 - kFirstQueuePair;
    const auto first = static_cast<std::uint32_t>(random ? random->below(kPlaces) : 0);
    for (std::uint32_t tried = 0; tried < kPlaces; ++tried) {
        const std::uint32_t i = wanted != 0 ? place : kFirstQueuePair + (first + tried) % kPlaces;
        if (queue_pairs[i] != nullptr) continue;
        qp->nic = &context;
        qp->qpn = wanted != 0 ? wanted : (next_generation(i) << 12) | i;
        qp->dice = SplitMix64(mix64(context.options.seed ^ qp->qpn));
        homes[i] = engines[affinity.value_or(next_engine) % engines.size()];
        if (!affinity) ++next_engine;
        qp->engine.store(homes[i], std::memory_order_relaxed);
        const QpNumber number = qp->qpn;
        by_index[i].store(qp.get(), std::memory_order_release);
        queue_pairs[i] = std::move(qp);
        return number;
    }
    return error(Errc::kNoSpace,
                 "cannot create a queue pair: all {} queue pairs of NIC {} are in use; destroy some",
                 kQueuePairs - 1 - kFirstQueuePair, context.address);
}

Result<void> check(const QueuePairConfig& config) {
    const bool receives = config.receive_ring != nullptr;
    if (config.send_ring == nullptr || !aligned(config.send_ring) ||
        !std::has_single_bit(config.send_entries) || config.send_entries > kLargestQueue)
        return error(Errc::kInvalidArgument,
                     "cannot create a queue pair with {} send entries: the send ring must be aligned to 64 "
                     "bytes and the number of entries a power of two up to {}",
                     config.send_entries, kLargestQueue);
    if (receives && (!aligned(config.receive_ring) || !std::has_single_bit(config.receive_entries) ||
                     config.receive_entries > kLargestQueue))
        return error(Errc::kInvalidArgument,
                     "cannot create a queue pair with {} receives: the receive ring must be aligned to 16 "
                     "bytes and the number of entries a power of two up to {}",
                     config.receive_entries, kLargestQueue);
    if (config.doorbell_record == nullptr || config.bell == nullptr || !aligned(config.bell))
        return error(Errc::kInvalidArgument,
                     "cannot create a queue pair: it needs a doorbell record and an aligned doorbell");
    return {};
}

Result<QpNumber> SoftNic::create_queue_pair(const QueuePairConfig& config) {
    GN_TRY(check(config));
    const bool receives = config.receive_ring != nullptr;
    // Several MiB for a long queue: not under the lock that all NICs share.
    auto qp = std::make_unique<QueuePair>();
    qp->config = config;
    if (!receives) qp->config.receive_entries = 0;
    qp->in_flight.resize(config.send_entries);
    const std::lock_guard lock(impl_->wire->mutex);
    const auto cq = [this](CqNumber n) -> CompletionQueue* {
        return n == 0 || n > impl_->completion_queues.size() ? nullptr
                                                             : impl_->completion_queues[n - 1].get();
    };
    CompletionQueue* const send_cq = cq(config.send_cq);
    CompletionQueue* const receive_cq = cq(config.receive_cq);
    if (send_cq == nullptr || (receives && receive_cq == nullptr))
        return error(Errc::kNotFound, "cannot create a queue pair: completion queue {} or {} does not exist",
                     config.send_cq, config.receive_cq);
    if (send_cq->collapsed() && send_cq->users.load() != 0)
        return error(
            Errc::kBusy,
            "cannot create a queue pair: its collapsed completion queue belongs to another queue pair");
    if (receives && receive_cq->collapsed())
        return error(Errc::kInvalidArgument,
                     "cannot create a queue pair: its receives need a completion queue that is a ring, not a "
                     "collapsed one");
    qp->send_cq = send_cq;
    qp->receive_cq = receives ? receive_cq : nullptr;
    GN_ASSIGN(const QpNumber number, impl_->adopt(std::move(qp)));
    simt::store_relaxed<Scope::kSystem>(config.bell, 0u);
    ++send_cq->users;
    if (receives) ++receive_cq->users;
    return number;
}

Result<QpNumber> SoftNic::create_offload_queue_pair(MessageSink& sink,
                                                    std::optional<std::uint32_t> affinity) {
    const std::lock_guard lock(impl_->wire->mutex);
    auto qp = std::make_unique<QueuePair>();
    qp->sink = &sink;
    return impl_->adopt(std::move(qp), affinity);
}

Result<void> SoftNic::destroy_queue_pair(QpNumber number, std::optional<std::uint32_t> patience_ms) {
    Impl::Lock lock(impl_->wire->mutex);
    GN_TRY(impl_->quiesce(lock, number, patience_ms));
    QueuePair* const qp = impl_->find(number);
    if (qp == nullptr) return error(Errc::kState, "queue pair {:#x} was destroyed by another thread", number);
    if (qp->send_cq != nullptr) --qp->send_cq->users;
    if (qp->receive_cq != nullptr) --qp->receive_cq->users;
    impl_->by_index[number % Impl::kQueuePairs].store(nullptr, std::memory_order_release);
    impl_->queue_pairs[number % Impl::kQueuePairs].reset();
    return {};
}

void SoftNic::abandon(std::unique_ptr<SoftNic> nic) {
    Impl& impl = *nic->impl_;
    const std::lock_guard lock(impl.wire->mutex);
    for (const auto& qp : impl.queue_pairs) {
        if (qp == nullptr) continue;
        NicEngine* const engine = qp->engine.load();
        engine->reactor().run([&] {
            engine->fail(*qp);
            engine->detach(*qp);
        });
    }
    impl.wire->nics.erase(impl.context.address);
    for (Reactor* reactor : impl.reactors) impl.wire->release_engine(*reactor);
    // Never destroyed, and known to be there: no leak to those who look for leaks.
    static std::mutex mutex;
    static auto& abandoned = *new std::vector<SoftNic*>;
    const std::lock_guard keep(mutex);
    abandoned.push_back(nic.release());
}

void SoftNic::keep(std::shared_ptr<void> memory) {
    const std::lock_guard lock(impl_->wire->mutex);
    impl_->kept.push_back(std::move(memory));
}

Result<void> SoftNic::reset_queue_pair(QpNumber number) {
    Impl::Lock lock(impl_->wire->mutex);
    GN_TRY(impl_->quiesce(lock, number));
    QueuePair* const qp = impl_->find(number);
    if (qp == nullptr) return error(Errc::kState, "queue pair {:#x} was destroyed by another thread", number);
    impl_->reset_counters(*qp);
    return {};
}

Result<void> SoftNic::Impl::quiesce(Lock& lock, QpNumber number, std::optional<std::uint32_t> patience_ms) {
    const std::uint32_t timeout_ms = patience_ms.value_or(context.options.quiesce_timeout_ms);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    bool failed = false;
    for (;;) {
        QueuePair* const qp = find(number);
        if (qp == nullptr)
            return error(Errc::kNotFound, "there is no queue pair {:#x} on NIC {}", number, context.address);
        NicEngine* const engine = qp->engine.load();
        QueuePair* const peer = qp->peer.load();
        if (!failed) engine->reactor().run([=] { engine->fail(*qp); });
        failed = true;
        // Acquire: pairs with the releases of release() and close_window(): the memory is no longer touched.
        const bool busy =
            qp->holds.load(std::memory_order_seq_cst) != 0 || qp->has_windows() ||
            (peer != nullptr && (peer->holds.load(std::memory_order_seq_cst) != 0 || peer->has_windows())) ||
            (qp->remote != nullptr && qp->remote->connecting.load(std::memory_order_acquire));
        if (busy) {
            if (std::chrono::steady_clock::now() >= deadline)
                return error(
                    Errc::kBusy,
                    "cannot reset or destroy queue pair {:#x}: after {} ms the receiver of its messages "
                    "still holds messages or memory windows, or a connection is still being set up",
                    number, timeout_ms);
            lock.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            lock.lock();
            continue;
        }
        NicEngine* const home = homes[number % kQueuePairs];
        engine->reactor().run([=] {
            if (peer != nullptr) peer->peer.store(nullptr, std::memory_order_release);
            qp->peer.store(nullptr, std::memory_order_release);
            qp->remote.reset();
            engine->detach(*qp);
        });
        qp->engine.store(home);
        if (peer != nullptr) wire->send_home(*peer);
        return {};
    }
}

/// As after creation, but for the number. The lanes reset their counters too.
void SoftNic::Impl::reset_counters(QueuePair& qp) {
    qp.last_bell = qp.posted = qp.executed = qp.retired = qp.receives_used = qp.receives_seen = 0;
    qp.sink_told = false;
    if (!qp.offload()) {
        simt::store_relaxed<Scope::kSystem>(qp.config.bell, 0u);
        simt::store_relaxed<Scope::kSystem>(qp.config.doorbell_record + mlx5::kReceiveRecord, 0u);
        simt::store_relaxed<Scope::kSystem>(qp.config.doorbell_record + mlx5::kSendRecord, 0u);
        qp.send_cq->restart_collapsed();
    }
    qp.state.store(QpState::kReset, std::memory_order_release);
}

QpState SoftNic::state(QpNumber number) const {
    const QueuePair* const qp = impl_->find(number);
    return qp == nullptr ? QpState::kError : qp->state.load(std::memory_order_acquire);
}

Reactor& SoftNic::owner(QpNumber number) {
    const QueuePair* const qp = impl_->find(number);
    return qp == nullptr ? *impl_->reactors[0] : qp->engine.load()->reactor();
}

NicCounters SoftNic::counters() const {
    using Stripe = NicTally::Stripe;
    const NicTally& t = impl_->context.tally;
    return NicCounters{t.sum(&Stripe::sends),       t.sum(&Stripe::rdma_writes),
                       t.sum(&Stripe::rdma_reads),  t.sum(&Stripe::bells),
                       t.sum(&Stripe::completions), t.sum(&Stripe::error_completions),
                       t.sum(&Stripe::rnr),         t.sum(&Stripe::strict_violations)};
}

const std::string& SoftNic::address() const {
    return impl_->context.address;
}

}  // namespace gnstor::rdma
