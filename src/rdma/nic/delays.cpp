// delays.cpp: how the engine models a link: it delays messages and delivers them at their arrival time.
#include "rdma/nic/delays.hpp"

#include "rdma/nic/engine.hpp"

#include <gnstor/simt/time.hpp>

#include <cstring>

namespace gnstor::rdma {

Delays& NicEngine::delays() {
    if (delays_ == nullptr) delays_ = std::make_unique<Delays>();
    return *delays_;
}

/// The entry is held already; `peer` is its offload end, whose NIC has a modelled link.
void NicEngine::delay_message(QueuePair& sender, QueuePair& peer, std::uint64_t index,
                              const InboundMessage& message) {
    const std::uint64_t now = simt::now_ns();
    const std::uint64_t arrival =
        peer.nic->link->to_node_with_fetch(now, message.bytes, peer.sink->fetch_bytes(message));
    delays().messages.add(now, arrival, DelayedMessage{&sender, index, message});
}

void NicEngine::delay_send(QueuePair& from, const void* data, std::uint32_t bytes,
                           std::uint32_t invalidate_rkey, std::uint32_t written_before) {
    const std::uint64_t now = simt::now_ns();
    DelayedSend send{&from, bytes, invalidate_rkey, {}};
    std::memcpy(send.data, data, bytes);
    delays().sends.add(now, from.nic->link->from_node(now, std::uint64_t{bytes} + written_before), send);
}

/// Counts undelivered messages as work too, so that the thread does not sleep through their arrival.
std::uint32_t NicEngine::deliver_delayed() {
    if (delays_->messages.empty() && delays_->sends.empty()) return 0;
    const std::uint64_t now = simt::now_ns();
    std::uint32_t work = 1;
    DelayedMessage inbound;
    for (; delays_->messages.pop(now, inbound); ++work) {
        const QueuePair* const peer = inbound.sender->peer.load(std::memory_order_acquire);
        if (peer != nullptr && peer->ready() && !peer->sink_told)
            peer->sink->on_message(inbound.message);  // may release, send or fail at once
        else
            let_go(*inbound.sender, inbound.index);  // the connection ended on the way
    }
    DelayedSend outbound;
    for (; delays_->sends.pop(now, outbound); ++work) {
        QueuePair* const peer = outbound.from->peer.load(std::memory_order_acquire);
        if (outbound.from->ready() && peer != nullptr && peer->ready())
            deliver_send(*outbound.from, *peer, outbound.data, outbound.bytes, outbound.invalidate_rkey);
    }
    return work;
}

/// Called before the queue pair may be destroyed. The queue pair is quiesced: none of its messages is
/// held.
void NicEngine::forget_delayed(const QueuePair& qp) {
    delays_->messages.take_if([&](const DelayedMessage& d) { return d.sender == &qp; },
                              [](const DelayedMessage&) {});
    delays_->sends.take_if([&](const DelayedSend& d) { return d.from == &qp; }, [](const DelayedSend&) {});
}

}  // namespace gnstor::rdma
