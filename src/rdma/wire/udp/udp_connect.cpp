// udp_connect.cpp: the udp wire as a NIC uses it: opening, listening, connecting. The driver (wire/udp/)
// makes the connections; here queue pairs get their ends of them.
//
// A queue pair has its RemoteQueue from before the first message of the connection manager until it is reset
// or destroyed; while `connecting` it is neither (quiesce waits; putting it to error ends what was
// accepted and is not up). The reactor's thread takes no lock.
#include "rdma/nic/nic_impl.hpp"
#include "rdma/wire/udp/remote_queue.hpp"
#include "rdma/wire/udp/udp_wire.hpp"

#include <charconv>

namespace gnstor::rdma {

namespace {
constexpr std::uint16_t kRejectConsumer = 28;    // IBA 12.6.7.2: the consumer says no
constexpr std::uint16_t kRejectNoResources = 4;  // no queue pair to be had
constexpr std::uint32_t kReadsMax = 16;

Result<std::uint16_t> port_of(const std::string& service) {
    std::uint16_t port = 0;
    const char* const end = service.data() + service.size();
    const auto parsed = std::from_chars(service.data(), end, port);
    if (parsed.ec != std::errc() || parsed.ptr != end || port == 0)
        return error(Errc::kInvalidArgument,
                     "'{}' is no service on the udp wire: give a port number from 1 to 65535", service);
    return port;
}
}  // namespace

/// Answers connection requests for one service with the queue pairs that its listener makes.
class UdpDoor final : public udp::Acceptor {
  public:
    UdpDoor(SoftNic::Impl& nic, Listener& listener, std::uint16_t port)
        : nic_(nic), listener_(listener), port_(port) {}
    [[nodiscard]] std::uint16_t port() const { return port_; }

    udp::ArrivalReply on_arrival(const udp::Arrival& arrival) override {
        ConnectReply decided = listener_.on_connect({arrival.peer, arrival.private_data, 0});
        udp::ArrivalReply reply;
        reply.private_data = std::move(decided.private_data);
        if (!decided.accept) {
            reply.reject_reason = decided.reject_reason != 0 ? decided.reject_reason : kRejectConsumer;
            return reply;
        }
        const std::lock_guard lock(nic_.wire->mutex);
        QueuePair* const qp = nic_.find(decided.qp);
        if (qp == nullptr || qp->remote != nullptr ||
            qp->state.load(std::memory_order_acquire) != QpState::kReset) {
            reply.reject_reason = kRejectNoResources;
            return reply;
        }
        qp->remote = std::make_unique<RemoteQueue>(*qp->engine.load(), *qp, RemoteQueue::Side::kAccepts,
                                                   decided.messages, decided.message_bytes);
        reply.accept = true;
        reply.qp = decided.qp;
        reply.endpoint = qp->remote.get();
        reply.options = {.depth = qp->remote->depth(), .reads_max = kReadsMax};
        return reply;
    }

    void on_link(QpNumber number, udp::Link& link) override {
        if (QueuePair* const qp = nic_.find(number)) qp->remote->start(link);
    }

  private:
    SoftNic::Impl& nic_;
    Listener& listener_;
    const std::uint16_t port_;
};

SoftNic::Impl::Impl() = default;
SoftNic::Impl::~Impl() = default;

Result<void> SoftNic::Impl::listen_udp(const std::string& service, Listener& listener) {
    GN_ASSIGN(const std::uint16_t port, port_of(service));
    const std::lock_guard lock(wire->mutex);
    if (doors.contains(service))
        return error(Errc::kExists, "cannot listen on {} {}: somebody does already", context.address,
                     service);
    auto door = std::make_unique<UdpDoor>(*this, listener, port);
    GN_TRY(driver->listen(port, *door));
    doors[service] = std::move(door);
    return {};
}

void SoftNic::Impl::unlisten_udp(Lock& lock, const std::string& service) {
    const auto at = doors.find(service);
    if (at == doors.end()) return;
    const std::unique_ptr<UdpDoor> door = std::move(at->second);
    doors.erase(at);
    lock.unlock();  // the driver waits for calls under way, which may want the lock
    driver->unlisten(door->port());
    lock.lock();
}

void SoftNic::Impl::unlisten_all_udp() {
    Lock lock(wire->mutex);
    while (!doors.empty()) unlisten_udp(lock, std::string(doors.begin()->first));
}

Result<std::vector<std::byte>> SoftNic::Impl::connect_udp(QpNumber number, const std::string& peer_address,
                                                          const std::string& service,
                                                          std::span<const std::byte> private_data,
                                                          std::uint32_t timeout_ms) {
    GN_ASSIGN(const std::uint16_t port, port_of(service));
    Lock lock(wire->mutex);
    QueuePair* const qp = find(number);
    if (qp == nullptr) return error(Errc::kNotFound, "cannot connect: there is no queue pair {:#x}", number);
    if (qp->offload())
        return error(Errc::kUnsupported, "cannot connect queue pair {:#x}: an offload one is connected to",
                     number);
    if (qp->remote != nullptr || qp->state.load(std::memory_order_acquire) != QpState::kReset)
        return error(Errc::kState, "cannot connect queue pair {:#x}: it was used before, reset it", number);
    Engine* const engine = qp->engine.load();
    qp->remote = std::make_unique<RemoteQueue>(*engine, *qp, RemoteQueue::Side::kConnects, 0, 0);
    RemoteQueue& remote = *qp->remote;
    lock.unlock();  // `connecting` keeps the queue pair
    udp::Link* link = nullptr;
    Result<std::vector<std::byte>> accepted =
        driver->connect(number, remote, peer_address, port, private_data,
                        {.depth = remote.depth(), .reads_max = kReadsMax}, timeout_ms, link);
    lock.lock();
    if (accepted.ok()) {
        // The peer may have ended it meanwhile: then the link is gone.
        engine->reactor().run([&] {
            if (!remote.failed_early()) remote.start(*link);
        });
        if (!remote.failed_early()) return accepted;
        accepted = error(Errc::kIo, "cannot connect to {} {}: one side ended the connection at once",
                         peer_address, service);
    }
    // In the state in which it was found, or in error.
    engine->reactor().run([&] { qp->remote.reset(); });
    return accepted;
}

struct UdpWire::Impl {
    LoopWire loop;
    Reactor& reactor;
    std::unique_ptr<udp::Driver> driver;
};

UdpWire::UdpWire(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
UdpWire::~UdpWire() = default;

Result<std::unique_ptr<UdpWire>> UdpWire::open(const UdpWireOptions& options, Reactor& reactor) {
    std::unique_ptr<Impl> impl(new Impl{.loop = {}, .reactor = reactor, .driver = nullptr});
    GN_ASSIGN(impl->driver, udp::Driver::open(options, reactor));
    return std::unique_ptr<UdpWire>(new UdpWire(std::move(impl)));
}

const std::string& UdpWire::address() const {
    return impl_->driver->address();
}
std::uint32_t UdpWire::mtu() const {
    return impl_->driver->mtu();
}
UdpWireCounters UdpWire::counters() const {
    return impl_->driver->counters();
}
LoopWire& UdpWire::inside() {
    return impl_->loop;
}

Result<std::unique_ptr<SoftNic>> SoftNic::open(UdpWire& wire, NicOptions options) {
    if (!options.link.none())
        return error(Errc::kUnsupported, "a NIC on the udp wire cannot have a modelled link: {} is real",
                     wire.address());
    options.pollers = 1;
    Reactor* const reactor = &wire.impl_->reactor;
    GN_ASSIGN(std::unique_ptr<SoftNic> nic, open(wire.impl_->loop, wire.address(), options, {&reactor, 1}));
    nic->impl_->driver = wire.impl_->driver.get();
    return nic;
}

}  // namespace gnstor::rdma
