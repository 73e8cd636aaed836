// udp_nic.cpp: the NIC of the udp wire: opening, listening, connecting. The driver (wire/udp/)
// makes the connections; here queue pairs get their ends of them.
//
// A queue pair has its RemoteQueue from before the first message of the connection manager until it is reset
// or destroyed; while `connecting` it is neither (quiesce waits; putting it to error ends what was
// accepted and is not up). The reactor's thread takes no lock.
#include "rdma/nic/remote_queue.hpp"
#include "rdma/wire/loop/soft_nic_impl.hpp"
#include "rdma/wire/udp/driver.hpp"
#include "rdma/wire/udp/udp_wire.hpp"

#include <charconv>
#include <map>

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

/// A NIC on the loop wire inside a UdpWire, whose queue pairs connect by packets. Processes of this machine
/// reach its listeners over that loop wire (UdpWire::inside).
class UdpNic final : public SoftNic {
  public:
    /// Answers connection requests for one service with the queue pairs that its listener makes.
    class ServiceAcceptor final : public udp::Acceptor {
      public:
        ServiceAcceptor(SoftNic::Impl& nic, Listener& listener, std::uint16_t port)
            : nic_(nic), listener_(listener), port_(port) {}
        [[nodiscard]] std::uint16_t port() const { return port_; }
        udp::ArrivalReply on_arrival(const udp::Arrival& arrival) override;
        void on_link(QpNumber number, Link& link) override {
            if (QueuePair* const qp = nic_.find(number)) qp->remote->start(link);
        }

      private:
        SoftNic::Impl& nic_;
        Listener& listener_;
        const std::uint16_t port_;
    };

    static Result<std::unique_ptr<SoftNic>> open(LoopWire& inside, udp::Driver& driver, NicOptions options,
                                                 Reactor& reactor);
    ~UdpNic() override;
    Result<void> listen(const std::string& service, Listener& listener) override;
    void unlisten(const std::string& service) override;
    Result<std::vector<std::byte>> connect(QpNumber number, const std::string& peer_address,
                                           const std::string& service,
                                           std::span<const std::byte> private_data,
                                           std::uint32_t timeout_ms) override;

  private:
    UdpNic(std::unique_ptr<Impl> impl, udp::Driver& driver) : SoftNic(std::move(impl)), driver_(driver) {}
    Result<void> open_acceptor(const std::string& service, Listener& listener);
    void close_acceptor(Impl::Lock& lock, const std::string& service);

    udp::Driver& driver_;
    std::map<std::string, std::unique_ptr<ServiceAcceptor>>
        acceptors_;  ///< by service; under the wire's mutex
};

udp::ArrivalReply UdpNic::ServiceAcceptor::on_arrival(const udp::Arrival& arrival) {
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

Result<std::unique_ptr<SoftNic>> UdpNic::open(LoopWire& inside, udp::Driver& driver, NicOptions options,
                                              Reactor& reactor) {
    options.pollers = 1;
    Reactor* const only = &reactor;
    GN_ASSIGN(auto impl, make(inside, driver.address(), options, {&only, 1}));
    impl->make_unpredictable();
    std::unique_ptr<UdpNic> nic(new UdpNic(std::move(impl), driver));
    GN_TRY(nic->attach());
    return Result<std::unique_ptr<SoftNic>>(std::move(nic));
}

UdpNic::~UdpNic() {
    Impl::Lock lock(impl_->wire->mutex);
    while (!acceptors_.empty()) close_acceptor(lock, std::string(acceptors_.begin()->first));
}

Result<void> UdpNic::listen(const std::string& service, Listener& listener) {
    GN_TRY(open_acceptor(service, listener));
    Result<void> listening = SoftNic::listen(service, listener);
    if (!listening.ok()) {
        Impl::Lock lock(impl_->wire->mutex);
        close_acceptor(lock, service);
    }
    return listening;
}

void UdpNic::unlisten(const std::string& service) {
    {
        Impl::Lock lock(impl_->wire->mutex);
        close_acceptor(lock, service);
    }
    SoftNic::unlisten(service);
}

Result<void> UdpNic::open_acceptor(const std::string& service, Listener& listener) {
    GN_ASSIGN(const std::uint16_t port, port_of(service));
    const std::lock_guard lock(impl_->wire->mutex);
    if (acceptors_.contains(service))
        return error(Errc::kExists, "cannot listen on {} {}: this port has a listener already", address(),
                     service);
    auto acceptor = std::make_unique<ServiceAcceptor>(*impl_, listener, port);
    GN_TRY(driver_.listen(port, *acceptor));
    acceptors_[service] = std::move(acceptor);
    return {};
}

void UdpNic::close_acceptor(Impl::Lock& lock, const std::string& service) {
    const auto at = acceptors_.find(service);
    if (at == acceptors_.end()) return;
    const std::unique_ptr<ServiceAcceptor> acceptor = std::move(at->second);
    acceptors_.erase(at);
    lock.unlock();  // the driver waits for calls under way, which may want the lock
    driver_.unlisten(acceptor->port());
    lock.lock();
}

Result<std::vector<std::byte>> UdpNic::connect(QpNumber number, const std::string& peer_address,
                                               const std::string& service,
                                               std::span<const std::byte> private_data,
                                               std::uint32_t timeout_ms) {
    GN_ASSIGN(const std::uint16_t port, port_of(service));
    Impl::Lock lock(impl_->wire->mutex);
    QueuePair* const qp = impl_->find(number);
    if (qp == nullptr) return error(Errc::kNotFound, "cannot connect: there is no queue pair {:#x}", number);
    if (qp->offload())
        return error(Errc::kUnsupported,
                     "cannot connect queue pair {:#x}: an offload queue pair can only accept connections, "
                     "not make them",
                     number);
    if (qp->remote != nullptr || qp->state.load(std::memory_order_acquire) != QpState::kReset)
        return error(Errc::kState, "cannot connect queue pair {:#x}: it was used before; reset it first",
                     number);
    NicEngine* const engine = qp->engine.load();
    qp->remote = std::make_unique<RemoteQueue>(*engine, *qp, RemoteQueue::Side::kConnects, 0, 0);
    RemoteQueue& remote = *qp->remote;
    lock.unlock();  // `connecting` keeps the queue pair
    Link* link = nullptr;
    Result<std::vector<std::byte>> accepted =
        driver_.connect(number, remote, peer_address, port, private_data,
                        {.depth = remote.depth(), .reads_max = kReadsMax}, timeout_ms, link);
    lock.lock();
    if (accepted.ok()) {
        // The peer may have ended it meanwhile: then the link is gone.
        engine->reactor().run([&] {
            if (!remote.failed_early()) remote.start(*link);
        });
        if (!remote.failed_early()) return accepted;
        accepted = error(
            Errc::kIo, "cannot connect to {} {}: one side ended the connection immediately after it was made",
            peer_address, service);
    }
    // In the state in which it was found, or in error.
    engine->reactor().run([&] { qp->remote.reset(); });
    return accepted;
}

}  // namespace

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

Result<std::unique_ptr<SoftNic>> open_udp_nic(UdpWire& wire, const NicOptions& options) {
    if (!options.link.none())
        return error(Errc::kUnsupported,
                     "a NIC on the udp wire cannot have a modelled link, because {} is on a real network; "
                     "leave the link options out",
                     wire.address());
    UdpWire::Impl& impl = *wire.impl_;
    return UdpNic::open(impl.loop, *impl.driver, options, impl.reactor);
}

}  // namespace gnstor::rdma
