// driver_connect.cpp: making and ending connections: connect() and listen() of host threads, events and
// messages of the connection manager, replies of acceptors.
#include <gnstor/base/log.hpp>

#include "rdma/wire/udp/driver_impl.hpp"
#include "rdma/wire/udp/refusal.hpp"

#include <algorithm>
#include <chrono>

namespace gnstor::rdma::udp {
namespace {

constexpr std::uint32_t kQueuePairMin = 2,
                        kQueuePairMax = roce::kQpMask - 1;  // 0, 1 and all ones are reserved (IBA)
constexpr std::uint32_t kWindowPacketsMin = 4;
constexpr std::uint8_t kMtuCodeMax = 5;     // 4096
constexpr std::uint32_t kAllErrors = 1024;  // bounded, as forged ICMP messages may keep coming

constexpr std::uint32_t mtu_of(std::uint8_t code) noexcept {
    return 128u << code;
}
constexpr std::uint8_t code_of(std::uint32_t mtu) noexcept {
    std::uint8_t code = 1;
    while (mtu_of(code) < mtu) ++code;
    return code;
}
constexpr roce::TimeNs ack_timeout_ns(std::uint8_t code) noexcept {
    return roce::TimeNs{4096} << std::clamp(code, kAckTimeoutMin, kAckTimeoutMax);
}
constexpr std::uint8_t narrow(std::uint32_t value) noexcept {
    return static_cast<std::uint8_t>(std::min<std::uint32_t>(value, 255));
}

/// Options of both ends' state machines, from the REQ or REP of the peer and our own options.
struct Halves {
    roce::RequesterOptions requester;
    roce::ResponderOptions responder;
};
Halves halves(const roce::CmMessage& theirs, std::uint32_t mtu, std::uint32_t my_psn, const LinkOptions& mine,
              std::uint8_t ack_timeout) {
    Halves h;
    h.requester.peer_queue_pair = h.responder.peer_queue_pair = theirs.queue_pair;
    h.requester.mtu = h.responder.mtu = mtu;
    h.requester.start_psn = theirs.start_psn;  // the first PSN that the peer expects
    h.responder.start_psn = my_psn;
    h.requester.depth = mine.depth;
    h.requester.reads_max = std::min<std::uint32_t>(mine.reads_max, theirs.responder_resources);
    h.responder.reads_max = std::max<std::uint32_t>(theirs.initiator_depth, 1);
    h.requester.window_packets = std::max(kWindowBytes / mtu, kWindowPacketsMin);
    h.requester.retries = theirs.retry_count;  // a REP has no retry count: 7, as in our REQ
    h.requester.rnr_retries = theirs.rnr_retries;
    h.requester.ack_timeout_ns = ack_timeout_ns(ack_timeout);
    return h;
}

}  // namespace

std::uint32_t Driver::Impl::random_psn() {
    return static_cast<std::uint32_t>(random.next()) & roce::kPsnMask;
}

// Events first, as handling them creates messages.
void Driver::Impl::serve_manager(roce::TimeNs now) {
    if (now >= manager_deadline) {
        manager.on_time(now);
        manager_changed = true;
    }
    if (!manager_changed) return;
    manager_changed = false;
    roce::CmEvent event;
    while (manager.next_event(event)) on_event(now, event);
    roce::Gid to{};
    roce::CmMessage message;
    for (;;) {
        if (socket->room().empty() && !socket->flush()) {
            manager_changed = true;
            break;
        }
        if (!manager.next_message(to, message)) break;
        std::array<std::byte, roce::kMadBytes> mad;
        roce::encode_cm(message, mad);
        send(roce::management_packet(mad, management_psn++ & roce::kPsnMask), IpAddress{to});
    }
    manager_deadline = manager.next_deadline();
    if (goodbye == nullptr || manager.disconnecting() != 0) return;
    const std::lock_guard lock(goodbye->mutex);
    goodbye->said = true;
    goodbye->changed.notify_all();
}

void Driver::Impl::on_event(roce::TimeNs now, const roce::CmEvent& event) {
    switch (event.kind) {
        case roce::CmEventKind::kRequested:
            return on_requested(now, event);
        case roce::CmEventKind::kConnected:
            return on_connected(now, event);
        case roce::CmEventKind::kClosed:
            return on_closed(now, event);
    }
}

void Driver::Impl::on_requested(roce::TimeNs now, const roce::CmEvent& event) {
    const roce::CmMessage& req = event.message;
    const auto refuse = [&](roce::RejectReason why) { (void)manager.reject(now, event.id, why, {}); };
    const auto port = static_cast<std::uint16_t>(req.service_id);
    const auto found = listening.find(port);
    if (found == listening.end()) return refuse(roce::RejectReason::kInvalidService);
    if (req.queue_pair < kQueuePairMin) return refuse(roce::RejectReason::kUnsupported);
    // The REQ decides the MTU: a REP cannot lower it.
    if (req.mtu_code == 0 || req.mtu_code > kMtuCodeMax || mtu_of(req.mtu_code) > mtu)
        return refuse(roce::RejectReason::kInvalidMtu);
    const std::span<const std::byte> data = std::span(req.private_data).first(req.private_bytes);
    if (!roce::decode_ip_addresses(data)) return refuse(roce::RejectReason::kUnsupported);
    PendingArrival arrival;
    arrival.id = event.id;
    arrival.port = port;
    arrival.acceptor = found->second;
    arrival.peer = IpAddress{event.peer}.text();
    const auto rest = data.subspan(roce::kIpAddressBytes);
    arrival.private_data.assign(rest.begin(), rest.end());
    requests[event.id] = Requested{req, IpAddress{event.peer}};
    answering->ask(std::move(arrival));
}

void Driver::Impl::answered(const PendingArrival& arrival, const ArrivalReply& reply) {
    reactor.run([&] { accept(clock(), arrival, reply); });
    reactor.wake();
}

void Driver::Impl::accept(roce::TimeNs now, const PendingArrival& arrival, const ArrivalReply& reply) {
    manager_changed = true;
    const auto asked = requests.find(arrival.id);
    const bool waits = asked != requests.end();
    const Requested request = waits ? asked->second : Requested{};
    if (waits) requests.erase(asked);
    const auto fail = [&](roce::RejectReason why) {
        if (waits) (void)manager.reject(now, arrival.id, why, {});
        if (reply.accept && reply.endpoint != nullptr) reply.endpoint->on_failed(mlx5::kFlushed);
    };
    if (!waits) return fail(roce::RejectReason::kTimeout);
    const auto found = listening.find(arrival.port);
    if (found == listening.end() || found->second != arrival.acceptor)
        return fail(roce::RejectReason::kInvalidService);
    if (!reply.accept) {
        const auto reason = reply.reject_reason == 0 ? roce::RejectReason::kConsumer
                                                     : static_cast<roce::RejectReason>(reply.reject_reason);
        (void)manager.reject(now, arrival.id, reason, reply.private_data);
        return;
    }
    const LinkEnd* const user = find(reply.qp);
    const bool taken = user != nullptr && user->state < LinkEnd::State::kTold;
    if (reply.endpoint == nullptr || taken || reply.qp < kQueuePairMin || reply.qp > kQueuePairMax) {
        log_error(
            "udp wire {}: cannot complete a connection from {}: the listener accepted it with queue pair "
            "{:#x}, which {}",
            address_text, arrival.peer, reply.qp, taken ? "is connected already" : "does not exist");
        return fail(roce::RejectReason::kNoResources);
    }
    const std::uint32_t psn = random_psn();
    const Halves h = halves(request.message, mtu_of(request.message.mtu_code), psn, reply.options,
                            request.message.ack_timeout);
    roce::CmParameters mine;
    mine.queue_pair = reply.qp;
    mine.start_psn = psn;
    mine.responder_resources = narrow(request.message.initiator_depth);
    mine.initiator_depth = narrow(h.requester.reads_max);
    mine.ca_guid = guid;
    mine.private_data = reply.private_data;
    if (const auto said = manager.accept(now, arrival.id, mine); !said) {
        log_warn("udp wire {}: cannot accept a connection from {}: {}", address_text, arrival.peer,
                 said.error().message);
        return fail(roce::RejectReason::kNoResources);
    }
    LinkEnd* const link =
        make_link(reply.qp, *reply.endpoint, request.peer, arrival.id, h.requester, h.responder);
    link->state = LinkEnd::State::kAccepted;
    link->port = arrival.port;
    link->acceptor = arrival.acceptor;
    reply.endpoint->on_accepted(*link);
}

// A peer that connects again from the same queue pair has lost its earlier connection. The request may be
// forged, so end the earlier one only after the peer has shown that it received our REP.
void Driver::Impl::end_replaced(const LinkEnd& by) {
    for (const auto& link : links) {
        if (link.get() != &by && link->state < LinkEnd::State::kTold && link->peer == by.peer &&
            link->peer_queue_pair == by.peer_queue_pair)
            end(*link, mlx5::kFlushed);
    }
}

void Driver::Impl::on_connected(roce::TimeNs now, const roce::CmEvent& event) {
    peer_standing.prove(now, event.peer);
    if (const auto found = by_id.find(event.id); found != by_id.end()) {
        LinkEnd& link = *found->second;
        if (link.state != LinkEnd::State::kAccepted) return;
        link.state = LinkEnd::State::kUp;
        end_replaced(link);
        Acceptor* const acceptor = std::exchange(link.acceptor, nullptr);
        acceptor->on_link(link.qp, link);
        return;
    }
    const auto waiting =
        std::find_if(waiters.begin(), waiters.end(), [&](const Waiter* w) { return w->id == event.id; });
    const LinkEnd* const user = waiting == waiters.end() ? nullptr : find((*waiting)->qp);
    const bool taken = user != nullptr && user->state < LinkEnd::State::kTold;
    if (waiting == waiters.end() || taken || event.message.queue_pair < kQueuePairMin) {
        manager.disconnect(now, event.id);
        manager_changed = true;
        return;  // kClosed follows and ends the waiting connect()
    }
    Waiter& waiter = **waiting;
    const roce::CmMessage& rep = event.message;
    const Halves h = halves(rep, waiter.mtu, waiter.start_psn, waiter.options, options.ack_timeout);
    *waiter.link = make_link(waiter.qp, *waiter.endpoint, waiter.peer, event.id, h.requester, h.responder);
    waiter.private_data.assign(rep.private_data.begin(), rep.private_data.begin() + rep.private_bytes);
    finish(waiter, std::nullopt);
}

void Driver::Impl::on_closed(roce::TimeNs, const roce::CmEvent& event) {
    if (requests.erase(event.id) != 0) answering->forget(event.id);
    if (const auto found = by_id.find(event.id); found != by_id.end()) {
        LinkEnd& link = *found->second;
        link.acceptor = nullptr;
        end(link, event.end == roce::CmEnd::kTimedOut ? mlx5::kTransportRetryExceeded : mlx5::kFlushed);
        return forget(link);
    }
    const auto waiting =
        std::find_if(waiters.begin(), waiters.end(), [&](const Waiter* w) { return w->id == event.id; });
    if (waiting == waiters.end()) return;
    Waiter& waiter = **waiting;
    waiter.reason = event.end == roce::CmEnd::kRejected ? event.message.reason : roce::RejectReason::kNone;
    const std::string whom = fmt::format("{} port {} from {}", waiter.peer.text(), waiter.port, address_text);
    if (event.end == roce::CmEnd::kRejected) return finish(waiter, refusal(whom, event.message));
    finish(waiter, no_answer(whom, options.port));
}

void Driver::Impl::finish(Waiter& waiter, std::optional<Error> failure) {
    std::erase(waiters, &waiter);
    const std::lock_guard lock(waiter.mutex);
    waiter.failure = std::move(failure);
    waiter.done = true;
    waiter.changed.notify_all();
}

Result<void> Driver::Impl::begin_connect(Waiter& waiter, std::span<const std::byte> private_data) {
    const LinkEnd* const user = find(waiter.qp);
    if (user != nullptr && user->state < LinkEnd::State::kTold)
        return error(Errc::kState, "cannot connect queue pair {:#x}: it is connected already", waiter.qp);
    // ICMP messages about earlier packets say nothing about this attempt.
    on_unreachable(clock(), kAllErrors);
    waiter.start_psn = random_psn();
    std::array<std::byte, 92> data{};
    roce::IpAddresses names;
    names.v6 = !address.v4();
    names.source_port = static_cast<std::uint16_t>(
        49152 + (random.next() & 0x3FFF));  // an ephemeral port, as an active opener uses
    names.source = address.gid;
    names.destination = waiter.peer.gid;
    roce::encode_ip_addresses(names, std::span(data).first<roce::kIpAddressBytes>());
    std::copy(private_data.begin(), private_data.end(), data.begin() + roce::kIpAddressBytes);
    roce::CmParameters mine;
    mine.queue_pair = waiter.qp;
    mine.start_psn = waiter.start_psn;
    mine.responder_resources = kResponderResources;
    mine.initiator_depth = narrow(waiter.options.reads_max);
    mine.ack_timeout = kAckTimeoutAsked;
    mine.mtu_code = code_of(waiter.mtu);
    mine.service_id = roce::service_of_port(waiter.port);
    mine.local_gid = address.gid;
    mine.remote_gid = waiter.peer.gid;
    mine.ca_guid = guid;
    mine.private_data = data;
    GN_ASSIGN(waiter.id, manager.connect(clock(), waiter.peer.gid, mine));
    waiters.push_back(&waiter);
    manager_changed = true;
    return {};
}

Result<std::vector<std::byte>> Driver::connect(QpNumber qp, Endpoint& endpoint, const std::string& peer,
                                               std::uint16_t port, std::span<const std::byte> private_data,
                                               const LinkOptions& options, std::uint32_t timeout_ms,
                                               Link*& link) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    GN_ASSIGN(const IpAddress to, parse_address(peer));
    if (to.v4() != impl_->address.v4())
        return error(Errc::kInvalidArgument,
                     "cannot connect to {} from {}: they are of different IP versions", peer, address());
    if (qp < kQueuePairMin || qp > kQueuePairMax || private_data.size() > kConnectPrivateBytes)
        return error(Errc::kInvalidArgument,
                     "cannot connect queue pair {:#x} with {} bytes of private data: queue pair numbers "
                     "range from {} to {:#x}, and at most {} bytes of private data fit",
                     qp, private_data.size(), kQueuePairMin, kQueuePairMax, kConnectPrivateBytes);
    for (std::uint32_t mtu = impl_->mtu;; mtu /= 2) {
        Waiter waiter;
        waiter.qp = qp;
        waiter.endpoint = &endpoint;
        waiter.peer = to;
        waiter.port = port;
        waiter.options = options;
        waiter.mtu = mtu;
        waiter.link = &link;
        Result<void> begun;
        impl_->reactor.run([&] { begun = impl_->begin_connect(waiter, private_data); });
        impl_->reactor.wake();
        GN_TRY(std::move(begun));
        std::unique_lock lock(waiter.mutex);
        if (!waiter.changed.wait_until(lock, deadline, [&] { return waiter.done; })) {
            lock.unlock();
            impl_->reactor.run([&] { impl_->give_up(waiter, timeout_ms); });
            lock.lock();
        }
        if (!waiter.failure) return std::move(waiter.private_data);
        // The peer's interface takes smaller packets than ours: try the next smaller MTU.
        const bool smaller = waiter.reason == roce::RejectReason::kInvalidMtu && mtu > roce::kMtuMin;
        if (!smaller) return std::move(*waiter.failure);
    }
}

// The answer may have come after the thread's timeout.
void Driver::Impl::give_up(Waiter& waiter, std::uint32_t timeout_ms) {
    if (waiter.done) return;
    manager.disconnect(clock(), waiter.id);
    manager_changed = true;
    finish(waiter, error(Errc::kTimedOut,
                         "cannot connect to {} port {} from {}: no answer within {} ms; check that the node "
                         "runs and listens on that address, and that no firewall blocks UDP port {}",
                         waiter.peer.text(), waiter.port, address_text, timeout_ms, options.port));
}

Result<void> Driver::listen(std::uint16_t port, Acceptor& acceptor) {
    Result<void> done;
    impl_->reactor.run([&] {
        done = impl_->manager.listen(roce::service_of_port(port));
        if (done) impl_->listening[port] = &acceptor;
    });
    if (!done)
        return error(Errc::kExists,
                     "cannot listen on port {} of {}: this process has a listener on that port already", port,
                     address());
    return {};
}

void Driver::unlisten(std::uint16_t port) {
    impl_->reactor.run([&] {
        impl_->manager.unlisten(roce::service_of_port(port));
        impl_->listening.erase(port);
    });
    // From here on accept() refuses replies of this acceptor.
    const std::vector<PendingArrival> unasked = impl_->answering->withdraw(port);
    impl_->reactor.run([&] {
        for (const PendingArrival& one : unasked) {
            impl_->requests.erase(one.id);
            (void)impl_->manager.reject(Impl::clock(), one.id, roce::RejectReason::kInvalidService, {});
        }
        for (const auto& link : impl_->links) {
            if (link->state != LinkEnd::State::kAccepted || link->port != port) continue;
            // If the REP has not gone out, the peer gets a REJ (no listener); otherwise end() disconnects
            // it.
            (void)impl_->manager.reject(Impl::clock(), link->id, roce::RejectReason::kInvalidService, {});
            impl_->end(*link, mlx5::kFlushed);
        }
        impl_->manager_changed = true;
    });
    impl_->reactor.wake();
}

}  // namespace gnstor::rdma::udp
