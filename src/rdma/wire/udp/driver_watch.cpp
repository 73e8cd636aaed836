// driver_watch.cpp: detects peers whose process has ended, from ICMP messages: for threads in connect(),
// and for connections that are up (rule: roce/peer_watch.hpp).
#include <gnstor/base/log.hpp>

#include "rdma/wire/udp/driver_impl.hpp"

#include <algorithm>

namespace gnstor::rdma::udp {
namespace {

constexpr roce::TimeNs kErrorsEveryNs = 1'000'000;
// ICMP messages processed in that time: each may cost a walk over all links.
constexpr std::uint32_t kErrorsAtOnce = 8;

}  // namespace

std::uint32_t Driver::Impl::watch_peers(roce::TimeNs now) {
    std::uint32_t work = 0;
    if (!waiters.empty() || now >= errors_at) work += on_unreachable(now, kErrorsAtOnce);
    if (now < next_watch) return work;
    next_watch = roce::kNever;
    for (auto& [gid, flow] : flows) {
        const bool due = flow.watch.probe_due(now, flow.owing != 0);
        next_watch = std::min(next_watch, flow.watch.next_deadline());
        // Unacknowledged packets are retransmitted by their own timer, so no probe, unless the peer seems
        // to have ended.
        if (!due || (flow.packets != 0 && !flow.watch.doubted())) continue;
        ++work;
        probe(IpAddress{gid});
    }
    return work;
}

// Over the first of its links that can send a probe.
void Driver::Impl::probe(const IpAddress& peer) {
    for (const auto& link : links) {
        if (link->state != LinkEnd::State::kUp || link->peer != peer || !link->connection.probe()) continue;
        return make_ready(*link);
    }
}

void LinkEnd::note_owed(std::int64_t change) {
    const bool before = owed > 0;
    owed += change;
    if (flow == nullptr || before == (owed > 0)) return;
    flow->owing += before ? -1 : 1;
    if (!before && flow->watch.next_deadline() == roce::kNever) driver.next_watch = 0;  // at the next poll
}

// The peer's kernel reports that no process has the port open, or a router reports the machine
// unreachable.
std::uint32_t Driver::Impl::on_unreachable(roce::TimeNs now, std::uint32_t most) {
    errors_at = now + kErrorsEveryNs;
    Unreachable message;
    std::uint32_t taken = 0;
    for (; taken < most && socket->unreachable(message); ++taken) {
        ++tally.unreachable;
        on_port_closed(now, message);
        for (std::size_t i = waiters.size(); i-- > 0;) {
            Waiter& waiter = *waiters[i];
            if (waiter.peer != message.peer) continue;
            manager.disconnect(now, waiter.id);
            manager_changed = true;
            finish(waiter, error(Errc::kNotFound,
                                 "cannot connect to {} port {} from {}: that machine reports that its UDP "
                                 "port {} is closed; check that the node runs and listens on that address",
                                 waiter.peer.text(), waiter.port, address_text, options.port));
        }
    }
    return taken;
}

void Driver::Impl::on_port_closed(roce::TimeNs now, const Unreachable& message) {
    const auto flow = flows.find(message.peer.gid);
    const auto quoted = roce::decode_quoted(message.quoted);
    if (!message.port_closed || flow == flows.end() || !quoted) return;
    const auto sender = std::find_if(links.begin(), links.end(), [&](const auto& link) {
        return link->state == LinkEnd::State::kUp && link->peer == message.peer &&
               link->peer_queue_pair == quoted->queue_pair &&
               link->connection.requester().unanswered(quoted->psn);
    });
    if (sender == links.end()) return;
    switch (flow->second.watch.refused(now)) {
        case roce::PeerWatch::Verdict::kProbe:
            if ((*sender)->connection.probe()) make_ready(**sender);
            next_watch = std::min(next_watch, flow->second.watch.next_deadline());
            return;
        case roce::PeerWatch::Verdict::kWait:
            return;
        case roce::PeerWatch::Verdict::kEnded:
            return end_all(message.peer);
    }
}

void Driver::Impl::end_all(const IpAddress& peer) {
    std::vector<LinkEnd*> theirs;
    for (const auto& link : links)
        if (link->state < LinkEnd::State::kTold && link->peer == peer) theirs.push_back(link.get());
    ++tally.peers_ended;
    flows.at(peer.gid).watch = {};  // a new process there starts with a clean state
    log_info(
        "udp wire {}: the process at {} has ended (its machine reported twice that the port is closed): {} "
        "queue pairs are in error",
        address_text, peer.text(), theirs.size());
    for (LinkEnd* const link : theirs) {
        // An endpoint that is told of its end may have closed others.
        if (link->state >= LinkEnd::State::kTold) continue;
        link->connection.give_up();
        settle(*link);
        make_ready(*link);
    }
}

}  // namespace gnstor::rdma::udp
