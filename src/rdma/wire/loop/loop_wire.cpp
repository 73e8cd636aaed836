// loop_wire.cpp: see loop_wire.hpp.
#include "rdma/wire/loop/loop_wire.hpp"

#include "base/last_wait.hpp"
#include "rdma/wire/loop/loop_wire_impl.hpp"

namespace gnstor::rdma {

LoopWire::LoopWire() : impl_(std::make_unique<Impl>()) {
    impl_->answerer = std::thread([wire = impl_.get()] { wire->answer_requests(); });
}

LoopWire::~LoopWire() {
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->closing = true;
        impl_->changed.notify_all();
    }
    impl_->answerer.join();
}

NicEngine& LoopWire::Impl::acquire_engine(Reactor& reactor) {
    SharedEngine& shared = engines[&reactor];
    if (shared.users++ == 0) {
        shared.engine = std::make_unique<NicEngine>(reactor);
        reactor.add(*shared.engine);
    }
    return *shared.engine;
}

void LoopWire::Impl::release_engine(Reactor& reactor) {
    const auto found = engines.find(&reactor);
    if (--found->second.users != 0) return;
    const NicEngine* const gone = found->second.engine.get();
    reactor.remove(*found->second.engine);
    // Its thread may go on, and another thread's engine be made where this one was: it is not that thread's.
    reactor.run([gone] {
        if (running_engine == gone) running_engine = nullptr;
    });
    engines.erase(found);
}

void LoopWire::Impl::answer_requests() {
    Lock lock(mutex);
    for (;;) {
        changed.wait(lock, [this] { return closing || !requests.empty(); });
        if (closing) return;
        asking = requests.front();
        requests.pop_front();
        const std::shared_ptr<PendingConnect> request = asking;
        if (!request->abandoned) {
            lock.unlock();
            ConnectReply reply = request->listener->on_connect(
                ConnectRequest{request->peer, request->private_data, request->affinity, request->kind});
            lock.lock();
            request->reply = std::move(reply);
            request->answered = true;
            if (request->abandoned && request->reply.accept) {
                SoftNic* const target = request->target;
                lock.unlock();  // the listener is still registered: withdraw() waits for `asking`, so its NIC
                                // lives
                // Not virtual: the NIC may be in its destructor.
                target->SoftNic::disconnect(request->reply.qp);
                lock.lock();
            }
        }
        asking.reset();
        changed.notify_all();
    }
}

void LoopWire::Impl::withdraw(Lock& lock, Listener* listener) {
    std::erase_if(requests, [listener](const std::shared_ptr<PendingConnect>& request) {
        if (request->listener != listener) return false;
        request->withdrawn = true;
        return true;
    });
    changed.notify_all();
    const auto free = [this, listener] { return asking == nullptr || asking->listener != listener; };
    // Returning would let the caller free what the call uses.
    LastWait{}(changed, lock, free,
               "loop wire: the callback of a listener has not returned from a connection request");
}

}  // namespace gnstor::rdma
