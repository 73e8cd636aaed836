// driver_packets.cpp: dispatch of arriving packets, timers of links, and sending, round robin over all
// links.
#include <gnstor/base/log.hpp>

#include "rdma/wire/udp/driver_impl.hpp"

#include <algorithm>
#include <utility>

namespace gnstor::rdma::udp {
namespace {

// Limits receive calls of an idle wire while its reactor spins for other pollers.
constexpr roce::TimeNs kIdleReceiveNs = 2'000;
// Batches per poll and direction: bounds the time that other pollers of the reactor wait.
constexpr std::uint32_t kBatchesAPoll = 2;

}  // namespace

bool Driver::Impl::icrc_good(const Arrived& arrived) {
    if (roce::icrc_is_good(arrived.headers, arrived.payload)) return true;
    ++tally.bad_icrc;
    return false;
}

std::uint32_t Driver::Impl::receive(roce::TimeNs now) {
    if (now < receive_at) return 0;
    std::uint32_t total = 0;
    for (std::uint32_t batch = 0; batch < kBatchesAPoll; ++batch) {
        const std::uint32_t got = socket->receive();
        total += got;
        for (std::uint32_t i = 0; i < got; ++i) {
            Arrived arrived;
            if (socket->arrived(i, arrived)) on_datagram(now, arrived);
        }
        for (LinkEnd* const link : touched) {
            link->in_touched = false;
            settle(*link);
            if (link->endpoint != nullptr) link->endpoint->on_batch();
            make_ready(*link);
        }
        touched.clear();
        if (got < kBatch) break;
    }
    if (total == 0) receive_at = now + kIdleReceiveNs;
    return total;
}

// Checks in order of cost: form, queue pair, address, ICRC.
void Driver::Impl::on_datagram(roce::TimeNs now, const Arrived& arrived) {
    roce::Packet packet;
    if (roce::decode(arrived.payload, packet) != roce::DecodeVerdict::kGood) {
        ++tally.malformed;
        return;
    }
    if (packet.queue_pair == roce::kManagementQueuePair) return on_management(now, arrived, packet);
    LinkEnd* const link = find(packet.queue_pair);
    if (link == nullptr) {
        ++tally.unknown_queue_pair;
        return;
    }
    if (link->peer != arrived.source) {
        ++tally.wrong_peer;
        return;
    }
    if (!icrc_good(arrived)) return;
    if (tap != nullptr && !tap->on_packet(false, arrived.headers, arrived.payload)) return;
    link->flow->watch.heard(now);
    if (link->state == LinkEnd::State::kAccepted) {
        // The RTU was lost or overtaken (IBA 12.9.6): a packet replaces it if its sender has our REP, and
        // so knows the first PSN. Other packets are dropped: the sender sends them again from the first,
        // as none was acknowledged.
        if ((packet.psn & roce::kPsnMask) != link->start_psn) return;
        // The link must be up before its endpoint sees the packet, as the endpoint may answer it.
        manager.heard(now, link->id);
        manager_changed = true;
        serve_manager(now);
        if (link->state == LinkEnd::State::kDead) return;
    }
    link->connection.on_packet(now, packet);
    if (link->in_touched || link->state == LinkEnd::State::kDead) return;
    link->in_touched = true;
    touched.push_back(link);
}

bool Driver::Impl::knows(const IpAddress& peer) const {
    return flows.contains(peer.gid) ||
           std::any_of(waiters.begin(), waiters.end(), [&](const Waiter* w) { return w->peer == peer; });
}

// Any machine can send these: message_budget limits how many per second are processed, per sender and in
// all. A corrupt one costs only the ICRC check.
void Driver::Impl::on_management(roce::TimeNs now, const Arrived& arrived, const roce::Packet& packet) {
    if (!icrc_good(arrived)) return;
    const auto mad = roce::management_datagram(packet);
    const auto message = mad ? roce::decode_cm(*mad) : std::nullopt;
    if (!message) {
        ++tally.malformed;
        return;
    }
    const roce::PeerTrust standing = message->kind == roce::CmKind::kRequest
                                         ? peer_standing.of_request(now, arrived.source.gid, *message)
                                         : peer_standing.of_peer(now, arrived.source.gid);
    const roce::MessageOf of = manager.expects(arrived.source.gid, *message) ? roce::MessageOf::kConnection
                               : knows(arrived.source)                       ? roce::MessageOf::kPeer
                                                                             : roce::MessageOf::kStranger;
    const bool believed =
        message->kind != roce::CmKind::kReadyToUse || message_budget.take_ready(now, arrived.source.gid);
    if (!believed || !message_budget.take(now, arrived.source.gid, of, standing)) {
        ++tally.over_budget;
        return;
    }
    if (tap != nullptr && !tap->on_packet(false, arrived.headers, arrived.payload)) return;
    manager.on_message(now, arrived.source.gid, *message, standing);
    manager_changed = true;
}

void Driver::Impl::make_ready(LinkEnd& link) {
    if (link.in_ready || link.state == LinkEnd::State::kDead) return;
    link.in_ready = true;
    link.next_ready = nullptr;
    (ready_last != nullptr ? ready_last->next_ready : ready_first) = &link;
    ready_last = &link;
}

void Driver::Impl::count_flow(LinkEnd& link) {
    const std::uint32_t now = link.connection.requester().on_their_way();
    link.flow->packets += now - link.counted_on_their_way;
    link.counted_on_their_way = now;
    call_waiting(*link.flow);
}

// Room is free again: lets waiting links continue, the longest waiting first. Nothing else wakes them, so
// call this after everything that frees room.
void Driver::Impl::call_waiting(Flow& flow) {
    while (flow.packets + flow.called < packets_to_peer_max && !flow.waiting.empty()) {
        LinkEnd* const next = flow.waiting.front();
        flow.waiting.pop_front();
        next->in_waiting = false;
        next->called = true;
        ++flow.called;
        make_ready(*next);
    }
}

// When the limit of packets in flight to the peer is reached, a link may send only up to a request that
// asks for an acknowledgement. Lost packets count as in flight until they are sent again.
bool Driver::Impl::may_request(LinkEnd& link) {
    Flow& flow = *link.flow;
    if (std::exchange(link.called, false)) --flow.called;
    const roce::Requester& requester = link.connection.requester();
    if (flow.packets < packets_to_peer_max || !link.answer_asked || requester.sending_again()) return true;
    if (!link.in_waiting && !requester.idle()) {
        link.in_waiting = true;
        flow.waiting.push_back(&link);
    }
    return false;
}

void Driver::Impl::settle(LinkEnd& link) {
    if (link.state == LinkEnd::State::kDead) return;
    count_flow(link);
    const std::uint64_t again = link.connection.requester().counters().retransmitted;
    tally.retransmissions += again - link.retransmissions_counted;
    link.retransmissions_counted = again;
    roce::Completion completion;
    while (link.endpoint != nullptr && link.connection.next_completion(completion))
        link.endpoint->on_completion(completion);
    if (link.endpoint != nullptr && link.connection.failed()) end(link, link.connection.failure());
    const roce::TimeNs deadline = link.connection.next_deadline();
    if (deadline == roce::kNever) return;
    next_timer = std::min(next_timer, deadline);
    if (link.in_timed || link.state == LinkEnd::State::kDead) return;
    link.in_timed = true;
    timed.push_back(&link);
}

// Tells the endpoint; the connection manager tells the peer; a NAK that is due still goes out.
void Driver::Impl::end(LinkEnd& link, mlx5::Syndrome why) {
    link.connection.flush();
    roce::Completion completion;
    while (link.endpoint != nullptr && link.connection.next_completion(completion))
        link.endpoint->on_completion(completion);
    Endpoint* const endpoint = link.endpoint;
    link.endpoint = nullptr;
    if (link.state < LinkEnd::State::kTold) link.state = LinkEnd::State::kTold;
    link.note_owed(-link.owed);
    manager.disconnect(clock(), link.id);
    manager_changed = true;
    make_ready(link);
    if (endpoint != nullptr) endpoint->on_failed(why);
}

std::uint32_t Driver::Impl::run_timers(roce::TimeNs now) {
    if (now < next_timer) return 0;
    std::uint32_t fired = 0;
    // By index: endpoints that are told of a failure may end other links or make them ready, but add to
    // `timed` only at its end.
    for (std::size_t i = 0; i < timed.size(); ++i) {
        LinkEnd& link = *timed[i];
        if (link.state == LinkEnd::State::kDead || link.connection.next_deadline() > now) continue;
        ++fired;
        link.connection.on_time(now);
        settle(link);
        make_ready(link);
    }
    next_timer = roce::kNever;
    std::erase_if(timed, [&](LinkEnd* link) {
        const roce::TimeNs deadline =
            link->state == LinkEnd::State::kDead ? roce::kNever : link->connection.next_deadline();
        next_timer = std::min(next_timer, deadline);
        if (deadline == roce::kNever) link->in_timed = false;
        return deadline == roce::kNever;
    });
    return fired;
}

bool Driver::Impl::send(const roce::Packet& packet, const IpAddress& peer) {
    const std::span<std::byte> room = socket->room();
    if (room.empty()) return false;
    const auto bytes = roce::encode(packet, room);
    if (!bytes) {
        // A bug of the state machines: they retransmit, and fail in the end.
        log_error("udp wire {}: {}", address_text, bytes.error().message);
        return true;
    }
    const roce::NetworkHeaders& headers = socket->put(*bytes, peer);
    if (tap != nullptr && !tap->on_packet(true, headers, room.first(*bytes))) socket->take_back();
    return true;
}

std::uint32_t Driver::Impl::pump(roce::TimeNs now) {
    std::uint32_t sent = 0;
    roce::Packet packet;
    while (ready_first != nullptr && sent < kBatchesAPoll * kBatch) {
        LinkEnd& link = *ready_first;
        bool more = link.state != LinkEnd::State::kDead;
        for (std::uint32_t turn = 0; more && turn < kPacketsPerTurn; ++turn) {
            if (socket->room().empty() && !socket->flush()) return sent + 1;
            more = link.connection.next_packet(now, packet, may_request(link));
            if (!more) break;
            count_flow(link);
            if (roce::traits(packet.opcode).request) {
                // The limit holds the link back from now on: ask for an acknowledgement soon.
                packet.ack_request = packet.ack_request || link.flow->packets >= packets_to_peer_max;
                link.answer_asked = packet.ack_request;
            }
            send(packet, link.peer);
            ++sent;
        }
        ready_first = link.next_ready;
        if (ready_first == nullptr) ready_last = nullptr;
        link.in_ready = false;
        settle(link);
        if (more) make_ready(link);
    }
    return sent;
}

Result<void> LinkEnd::post(const roce::Request& request) {
    if (state != State::kUp)
        return error(Errc::kState, "queue pair {:#x} is not connected, or its connection has ended", qp);
    if (request.kind == roce::RequestKind::kRead && reads_max == 0) {
        return error(Errc::kUnsupported,
                     "the peer {} of queue pair {:#x} does not answer RDMA READ requests (it announced this "
                     "when it connected)",
                     peer.text(), qp);
    }
    GN_TRY(connection.post(request));
    if (request.kind == roce::RequestKind::kSend || request.kind == roce::RequestKind::kSendInvalidate)
        note_owed(1);
    driver.make_ready(*this);
    return {};
}

void LinkEnd::close() {
    if (state >= State::kTold) return;
    endpoint = nullptr;
    state = State::kTold;
    note_owed(-owed);
    connection.flush();
    driver.count_flow(*this);
    driver.manager.disconnect(Driver::Impl::clock(), id);
    driver.manager_changed = true;
}

}  // namespace gnstor::rdma::udp
