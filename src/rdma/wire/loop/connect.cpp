// connect.cpp: connections of a NIC on the loop wire, and the offload's calls on the data path.
#include "rdma/nic/remote_queue.hpp"
#include "rdma/wire/loop/soft_nic_impl.hpp"

#include <algorithm>
#include <chrono>

namespace gnstor::rdma {

namespace {
bool fresh(const QueuePair& qp) {
    return qp.state.load(std::memory_order_acquire) == QpState::kReset;
}
}  // namespace

Result<void> SoftNic::listen(const std::string& service, Listener& listener) {
    const std::lock_guard lock(impl_->wire->mutex);
    const auto [at, added] = impl_->wire->listeners.try_emplace({impl_->context.address, service}, &listener);
    if (!added)
        return error(Errc::kExists,
                     "cannot listen on {} {}: this address and service have a listener already",
                     impl_->context.address, service);
    return {};
}

void SoftNic::unlisten(const std::string& service) {
    Impl::Lock lock(impl_->wire->mutex);
    const auto at = impl_->wire->listeners.find({impl_->context.address, service});
    if (at == impl_->wire->listeners.end()) return;
    Listener* const listener = at->second;
    impl_->wire->listeners.erase(at);
    impl_->wire->withdraw(lock, listener);
}

/// Puts the two ends together on one engine. Both must be fresh.
Result<void> LoopWire::Impl::establish(QueuePair& from, QueuePair& to) {
    if (!fresh(from) || !fresh(to))
        return error(Errc::kState,
                     "cannot connect queue pairs {:#x} and {:#x}: at least one of them was used before; "
                     "reset it first",
                     from.qpn, to.qpn);
    NicEngine* engine = to.engine.load();
    if (from.offload() && !to.offload()) engine = from.engine.load();
    if (from.offload() && to.offload() && from.engine.load() != engine)
        return error(Errc::kUnsupported, "cannot connect two offload queue pairs of different pollers");
    engine->reactor().run([&] {
        ++from.incarnation;
        ++to.incarnation;
        from.engine.store(engine);
        to.engine.store(engine);
        from.peer.store(&to, std::memory_order_release);
        to.peer.store(&from, std::memory_order_release);
        to.state.store(QpState::kReadyToSend, std::memory_order_release);
        from.state.store(QpState::kReadyToSend, std::memory_order_release);
        if (!from.offload()) engine->attach(from);
        if (!to.offload()) engine->attach(to);
    });
    return {};
}

/// Moves a queue pair whose peer has ended to an engine of its own NIC, because the engine of the peer's NIC
/// may end first. The queue pair stays in error.
void LoopWire::Impl::send_home(QueuePair& qp) {
    const auto nic = nics.find(qp.nic->address);
    if (nic == nics.end() || qp.offload()) return;
    NicEngine* const home = nic->second->impl_->homes[qp.qpn % SoftNic::Impl::kQueuePairs];
    NicEngine* const engine = qp.engine.load();
    if (home == engine) return;
    engine->reactor().run([&] { engine->detach(qp); });
    qp.engine.store(home);
    home->reactor().run([&] {
        home->attach(qp);
        home->fail(qp);
    });
}

Result<std::vector<std::byte>> SoftNic::connect(QpNumber number, const std::string& peer_address,
                                                const std::string& service,
                                                std::span<const std::byte> private_data,
                                                std::uint32_t timeout_ms) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    Impl::Lock lock(impl_->wire->mutex);
    QueuePair* qp = impl_->find(number);
    if (qp == nullptr) return error(Errc::kNotFound, "cannot connect: there is no queue pair {:#x}", number);
    if (!fresh(*qp))
        return error(Errc::kState, "cannot connect queue pair {:#x}: it was used before; reset it first",
                     number);
    const auto target = impl_->wire->nics.find(peer_address);
    const auto listener = impl_->wire->listeners.find({peer_address, service});
    if (target == impl_->wire->nics.end() || listener == impl_->wire->listeners.end())
        return error(Errc::kNotFound, "cannot connect to {} {}: no listener has that address and service",
                     peer_address, service);
    const auto request = std::make_shared<PendingConnect>();
    request->peer = impl_->context.address;
    request->private_data.assign(private_data.begin(), private_data.end());
    request->affinity = qp->receive_cq != nullptr ? qp->receive_cq->affinity : 0;
    request->kind = impl_->context.options.kind;
    request->listener = listener->second;
    request->target = target->second;
    impl_->wire->requests.push_back(request);
    impl_->wire->changed.notify_all();
    impl_->wire->changed.wait_until(lock, deadline, [&] { return request->answered || request->withdrawn; });
    if (request->withdrawn)
        return error(Errc::kNotFound, "cannot connect to {} {}: the listener was closed before it answered",
                     peer_address, service);
    if (!request->answered) {
        request->abandoned = true;
        std::erase(impl_->wire->requests, request);  // or who connects without patience fills the queue
        return error(Errc::kTimedOut, "cannot connect to {} {}: no answer within {} ms", peer_address,
                     service, timeout_ms);
    }
    if (!request->reply.accept)
        return error(Errc::kPermission, "cannot connect to {} {}: rejected, reason {}", peer_address, service,
                     request->reply.reject_reason);
    // The lock was free meanwhile: look again.
    qp = impl_->find(number);
    const auto again = impl_->wire->nics.find(peer_address);
    QueuePair* const other =
        again == impl_->wire->nics.end() ? nullptr : again->second->impl_->find(request->reply.qp);
    Result<void> joined =
        error(Errc::kState, "cannot connect to {} {}: one of the two queue pairs was destroyed meanwhile",
              peer_address, service);
    if (qp != nullptr && other != nullptr) joined = impl_->wire->establish(*qp, *other);
    if (!joined.ok()) {
        if (other != nullptr) {  // the acceptor must not wait for a peer that will never come
            NicEngine* const engine = other->engine.load();
            engine->reactor().run([=] { engine->fail(*other); });
        }
        return std::move(joined).error();
    }
    return std::move(request->reply.private_data);
}

void SoftNic::disconnect(QpNumber number) {
    const std::lock_guard lock(impl_->wire->mutex);
    QueuePair* const qp = impl_->find(number);
    if (qp == nullptr) return;
    NicEngine* const engine = qp->engine.load();
    engine->reactor().run([=] { engine->fail(*qp); });
}

StagedWindows& SoftNic::Impl::staged_windows(const QueuePair& qp) {
    const auto at = std::ranges::find(engines, qp.engine.load());
    return *staged[static_cast<std::size_t>(at - engines.begin())];
}

Result<Window> SoftNic::open_window(QpNumber number, std::uint64_t address, std::uint32_t bytes,
                                    std::uint32_t rkey, WindowUse use) {
    Window window{};
    Impl::Refusal refusal{};
    if (impl_->open_window(number, address, bytes, rkey, use, window, refusal)) return window;
    return error(refusal.code,
                 "cannot open a window of {} bytes at {:#x} under key {:#x} through queue pair {:#x}: {}",
                 bytes, address, rkey, number, refusal.why);
}

bool SoftNic::open_window(QpNumber number, std::uint64_t address, std::uint32_t bytes, std::uint32_t rkey,
                          WindowUse use, Window& window) {
    Impl::Refusal unsaid{};
    return impl_->open_window(number, address, bytes, rkey, use, window, unsaid);
}

bool SoftNic::Impl::open_window(QpNumber number, std::uint64_t address, std::uint32_t bytes,
                                std::uint32_t rkey, WindowUse use, Window& window, Refusal& refusal) {
    QueuePair* const qp = find(number);
    if (qp == nullptr) {
        refusal = {Errc::kNotFound, "there is no such queue pair"};
        return false;
    }
    // Count, then check: sequentially consistent with to_error's store and quiesce's wait, so that either the
    // window is waited for or it is not opened. The peer lives as long as it is counted.
    qp->add_window(1);
    QueuePair* const peer = qp->peer.load(std::memory_order_acquire);
    const bool connected = qp->state.load(std::memory_order_seq_cst) == QpState::kReadyToSend;
    if (!connected || peer == nullptr) {
        const bool there = connected && qp->remote != nullptr;
        const bool mine = there && running_engine == qp->engine.load(std::memory_order_relaxed);
        if (mine && qp->remote->open_window(address, bytes, rkey, use, window)) return true;
        qp->add_window(-1);
        refusal = {Errc::kState, there && !mine
                                     ? "its connection belongs to another thread than the calling one"
                                     : "it is not connected"};
        return false;
    }
    const MemoryTable::Pin pin =
        peer->nic->memory.pin(rkey, address, bytes, use == WindowUse::kWrite ? kRemoteWrite : kRemoteRead);
    if (!staged.empty()) {
        staged_windows(*qp).open(*qp, pin, bytes, use, window);
        return true;
    }
    if (pin.fault != MemoryFault::kNone) {
        qp->add_window(-1);
        refusal = {Errc::kPermission, pin.fault == MemoryFault::kKey ? "no region has this key"
                                      : pin.fault == MemoryFault::kBounds
                                          ? "the range exceeds the region of the key"
                                          : "the region does not allow this access"};
        return false;
    }
    count(use == WindowUse::kWrite ? context.tally.mine().rdma_writes : context.tally.mine().rdma_reads);
    window.data = pin.data;
    window.bytes = bytes;
    window.cookie = reinterpret_cast<std::uint64_t>(pin.region);
    return true;
}

bool SoftNic::stages_windows(QpNumber number) const {
    const QueuePair* const qp = impl_->find(number);
    return (qp != nullptr && qp->remote != nullptr) || !impl_->staged.empty();
}

void SoftNic::close_window(QpNumber number, const Window& window, bool filled) {
    QueuePair* const qp = impl_->find(number);
    if (qp != nullptr && qp->remote != nullptr)
        qp->remote->close_window(window, filled);
    else if (impl_->staged.empty())
        reinterpret_cast<MemoryRegion*>(window.cookie)->unpin();
    else if (qp != nullptr)
        impl_->staged_windows(*qp).close(*qp, window, filled);
    // Release: pairs with quiesce's load: the window's memory is no longer touched.
    if (qp != nullptr) qp->add_window(-1);
}

void SoftNic::send(QpNumber number, const void* data, std::uint32_t bytes, std::uint32_t invalidate_rkey,
                   std::uint32_t written_before) {
    if (QueuePair* const qp = impl_->find(number))
        qp->engine.load()->send(*qp, data, bytes, invalidate_rkey, written_before);
}

void SoftNic::prefetch_send(QpNumber number) const {
    const QueuePair* const qp = impl_->find(number);
    const QueuePair* const peer = qp != nullptr ? qp->peer.load(std::memory_order_acquire) : nullptr;
    if (peer == nullptr || peer->receive_cq == nullptr) return;
    peer->receive_cq->prefetch(2);
    __builtin_prefetch(&peer->config.receive_ring[peer->receives_used & (peer->config.receive_entries - 1)]);
}

void SoftNic::release(QpNumber number, std::uint64_t token) {
    if (QueuePair* const qp = impl_->find(number)) qp->engine.load()->release(*qp, token);
}

void SoftNic::fail(QpNumber number) {
    if (QueuePair* const qp = impl_->find(number)) qp->engine.load()->fail(*qp);
}

}  // namespace gnstor::rdma
