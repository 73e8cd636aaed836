// driver.cpp: opening and closing, the public calls except those about connections, and one poll.
#include "rdma/wire/udp/driver.hpp"

#include <gnstor/base/log.hpp>

#include "rdma/wire/udp/driver_impl.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

namespace gnstor::rdma::udp {
namespace {

// Bytes around the payload of a packet: IP, UDP, BTH with RETH (of a WRITE), ICRC.
constexpr std::uint32_t kAroundPayloadV4 = 20 + 8 + 12 + 16 + 4, kAroundPayloadV6 = kAroundPayloadV4 + 20;

Result<std::uint32_t> choose_mtu(const UdpWireOptions& options, const IpAddress& address) {
    if (options.mtu != 0 && options.mtu != 1024 && options.mtu != 2048 && options.mtu != 4096)
        return error(Errc::kInvalidArgument, "an RoCE MTU of {} does not exist; give 1024, 2048 or 4096",
                     options.mtu);
    GN_ASSIGN(const std::uint32_t interface, interface_mtu(address));
    const std::uint32_t around = address.v4() ? kAroundPayloadV4 : kAroundPayloadV6;
    for (const std::uint32_t mtu : {4096u, 2048u, 1024u}) {
        if (options.mtu != 0 && options.mtu != mtu) continue;
        if (mtu + around <= interface) return mtu;
    }
    return error(
        Errc::kInvalidArgument,
        "packets of RoCE MTU {} take {} bytes and do not fit the interface of {}, which has an MTU of {}; "
        "raise the MTU of the interface ('ip link set DEVICE mtu BYTES') or give a smaller RoCE MTU",
        options.mtu == 0 ? 1024 : options.mtu, around + (options.mtu == 0 ? 1024 : options.mtu),
        address.text(), interface);
}

roce::CmOptions manager_options() {
    roce::CmOptions cm;
    cm.connections_max = kConnectionsMax;
    cm.own_places = kOwnPlaces;
    cm.assured_of_peer = kAssuredOfPeer;
    cm.half_open_max = kHalfOpenMax;
    cm.half_open_of_peer_max = kHalfOpenOfPeerMax;
    cm.seed = std::nullopt;
    return cm;
}

}  // namespace

Driver::Impl::Impl(const UdpWireOptions& wire, const IpAddress& bound, std::uint32_t wire_mtu, Reactor& on,
                   std::unique_ptr<PacketSocket> opened)
    : options(wire),
      address(bound),
      address_text(bound.text()),
      mtu(wire_mtu),
      reactor(on),
      socket(std::move(opened)),
      manager(manager_options()),
      guid(random.next()),
      packets_to_peer_max(std::clamp(socket->receive_buffer_bytes() / 2 / packet_weight(mtu),
                                     kPacketsToPeerMin, kPacketsToPeerMax)),
      message_budget({.seed = random.next()}),
      peer_standing(random.next()) {
    answering = std::make_unique<AnsweringThread>(
        [this](const PendingArrival& arrival, const ArrivalReply& reply) { answered(arrival, reply); });
}

Driver::Impl::~Impl() = default;

roce::TimeNs Driver::Impl::clock() noexcept {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

LinkEnd* Driver::Impl::find(QpNumber qp) const {
    const auto found = by_queue_pair.find(qp);
    return found == by_queue_pair.end() ? nullptr : found->second;
}

LinkEnd* Driver::Impl::make_link(QpNumber qp, Endpoint& endpoint, const IpAddress& peer, roce::CmId id,
                                 const roce::RequesterOptions& requester,
                                 const roce::ResponderOptions& responder) {
    // Otherwise the number would have been refused: the endpoint of its last link knows of the end.
    if (LinkEnd* const before = find(qp)) forget(*before);
    Flow& flow = flows[peer.gid];
    roce::ResponderOptions paced = responder;
    paced.pacer = &flow.pacer;
    links.push_back(std::make_unique<LinkEnd>(*this, qp, endpoint, peer, id, requester, paced));
    LinkEnd* const link = links.back().get();
    link->flow = &flow;
    ++link->flow->links;
    by_queue_pair[qp] = link;
    by_id[id] = link;
    return link;
}

// Removes a link from all tables; it is freed when no list holds it.
void Driver::Impl::forget(LinkEnd& link) {
    if (link.state == LinkEnd::State::kDead) return;
    const auto number = by_queue_pair.find(link.qp);
    if (number != by_queue_pair.end() && number->second == &link) by_queue_pair.erase(number);
    by_id.erase(link.id);
    link.flow->packets -= link.counted_on_their_way;
    link.flow->called -= link.called ? 1 : 0;
    link.flow->owing -= link.owed > 0 ? 1 : 0;
    std::erase(link.flow->waiting, &link);
    if (--link.flow->links == 0)
        flows.erase(link.peer.gid);
    else
        call_waiting(*link.flow);
    link.flow = nullptr;
    link.endpoint = nullptr;
    link.state = LinkEnd::State::kDead;
    any_dead = true;
}

void Driver::Impl::bury() {
    if (!any_dead) return;
    std::erase_if(timed, [](LinkEnd* link) {
        const bool dead = link->state == LinkEnd::State::kDead;
        if (dead) link->in_timed = false;
        return dead;
    });
    std::erase_if(links, [](const std::unique_ptr<LinkEnd>& link) {
        return link->state == LinkEnd::State::kDead && !link->listed();
    });
    any_dead = std::any_of(links.begin(), links.end(),
                           [](const auto& link) { return link->state == LinkEnd::State::kDead; });
}

std::uint32_t Driver::Impl::poll() {
    const roce::TimeNs now = clock();
    std::uint32_t work = receive(now);
    work += run_timers(now);
    work += watch_peers(now);
    work += pump(now);
    serve_manager(now);
    if (!socket->flush()) ++work;  // the socket is full: poll again at once
    bury();
    return work;
}

UdpWireCounters Driver::Impl::counters() const {
    UdpWireCounters all = tally;
    const SocketCounters& s = socket->counters();
    all.packets_sent = s.sent;
    all.packets_received = s.received;
    all.bytes_sent = s.sent_bytes;
    all.bytes_received = s.received_bytes;
    all.malformed += s.malformed;
    all.send_full = s.full;
    all.receive_overruns = s.overruns;
    return all;
}

Result<std::unique_ptr<Driver>> Driver::open(const UdpWireOptions& options, Reactor& reactor) {
    GN_ASSIGN(const IpAddress address, parse_address(options.address));
    GN_ASSIGN(const std::uint32_t mtu, choose_mtu(options, address));
    GN_ASSIGN(std::unique_ptr<PacketSocket> socket,
              PacketSocket::open(address, options.port, options.receive_buffer_bytes));
    return std::unique_ptr<Driver>(
        new Driver(std::make_unique<Impl>(options, address, mtu, reactor, std::move(socket))));
}

Driver::Driver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
    impl_->reactor.watch(impl_->socket->fd());
    if (impl_->socket->error_fd() != impl_->socket->fd()) impl_->reactor.watch(impl_->socket->error_fd());
    impl_->reactor.add(*this);
}

Driver::~Driver() {
    impl_->answering->stop();
    // Waits until peers have acknowledged links that were closed just now, at most one response timeout.
    // The wire keeps running meanwhile, for other links too.
    Goodbye goodbye;
    impl_->reactor.run([&] {
        impl_->goodbye = &goodbye;
        impl_->manager_changed = true;
    });
    impl_->reactor.wake();
    std::unique_lock lock(goodbye.mutex);
    const bool said = goodbye.changed.wait_for(
        lock, std::chrono::nanoseconds(impl_->manager.response_timeout()), [&] { return goodbye.said; });
    lock.unlock();
    impl_->reactor.remove(*this);
    if (!said)
        log_info("udp wire {}: closed, but {} peers have not confirmed the end of their connections",
                 address(), impl_->manager.disconnecting());
    impl_->reactor.unwatch(impl_->socket->error_fd());
    impl_->reactor.unwatch(impl_->socket->fd());
}

const std::string& Driver::address() const noexcept {
    return impl_->address_text;
}

std::uint32_t Driver::mtu() const noexcept {
    return impl_->mtu;
}

bool Driver::sees_ip_headers() const noexcept {
    return impl_->socket->sees_ip_headers();
}

UdpWireCounters Driver::counters() const {
    UdpWireCounters out{};
    impl_->reactor.run([&] { out = impl_->counters(); });
    return out;
}

std::uint32_t Driver::links() {
    std::size_t count = 0;
    impl_->reactor.run([&] { count = impl_->by_id.size(); });
    return static_cast<std::uint32_t>(count);
}

void Driver::set_tap(Tap* tap) {
    impl_->reactor.run([&] { impl_->tap = tap; });
}

std::uint32_t Driver::poll() {
    return impl_->poll();
}

}  // namespace gnstor::rdma::udp
