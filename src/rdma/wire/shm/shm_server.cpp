// shm_server.cpp: see shm_server.hpp.
#include "rdma/wire/shm/shm_server.hpp"

#include "rdma/wire/loop/soft_nic.hpp"
#include "rdma/wire/shm/pending_connections.hpp"
#include "rdma/wire/shm/session.hpp"
#include "rdma/wire/shm/shares.hpp"
#include "rdma/wire/shm/socket_closer.hpp"

#include <gnstor/base/log.hpp>

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>

namespace gnstor::rdma {

struct ShmServer::Impl {
    struct Served {
        std::uint32_t user = 0;
        std::uint64_t number = 0;               ///< of all sessions ever
        std::unique_ptr<shm::Session> session;  ///< under the mutex; null until its first message was read
        std::thread thread;
        std::atomic<bool> over{false};
    };

    explicit Impl(ShmServerOptions o)
        : options(std::move(o)),
          shares(options.limits, options.clients_max),
          pending(options.silent_max, std::chrono::milliseconds(options.hello_ms),
                  [this](shm::Socket gone) { close(std::move(gone)); }) {}

    LoopWire* wire = nullptr;
    std::vector<Reactor*> reactors;
    const ShmServerOptions options;
    shm::Shares shares;  ///< outlives the sessions
    std::unique_ptr<shm::Socket> socket;
    std::atomic<bool> stop{false};
    mutable std::mutex mutex;
    std::list<Served>
        served;  ///< under the mutex; threads end by themselves, and are joined by the accepting one
    /// Users of ended clients whose memory the NIC still uses. Each still counts as a client: otherwise the
    /// parts assured to a new client would exceed the total. Under the mutex.
    std::vector<std::uint32_t> abandoned;
    std::thread accepting;
    std::atomic<std::uint64_t> refused_so_far{0};
    // The accepting thread's.
    shm::SocketCloser closer;
    shm::PendingConnections pending;
    std::uint64_t number = 0;  ///< of sessions ever
    bool complained = false;

    void accept_clients();
    bool let_in();
    void hear(const std::vector<pollfd>& polled);
    void begin(shm::PendingConnections::Pending came);
    Result<void> admit(shm::PendingConnections::Pending& came);
    /// On the client's thread: all of its session.
    void serve(Served& one, shm::Socket socket);
    void refuse(const shm::Socket& refused, const Error& why);
    void close(shm::Socket socket);
    void join_those_that_are_over();
};

namespace {

constexpr std::chrono::milliseconds kTick{200};

/// So many milliseconds, rounded up, until `then`; kTick at most.
int wait_ms(std::optional<shm::PendingConnections::Time> then, shm::PendingConnections::Time now) {
    using std::chrono::milliseconds;
    const auto left = then ? std::chrono::ceil<milliseconds>(*then - now) : kTick;
    return static_cast<int>(std::clamp(left, milliseconds(0), kTick).count());
}

}  // namespace

/// One thread for all that have not said who they are: new connections, and pending ones.
void ShmServer::Impl::accept_clients() {
    std::vector<pollfd> polled;
    bool accepts = true;
    // Acquire: pairs with ~ShmServer; nothing is read behind it.
    while (!stop.load(std::memory_order_acquire)) {
        polled.clear();
        // Without descriptors newcomers wait to be let in for a while: this thread must not burn its core.
        accepts = accepts && !closer.full();
        polled.push_back({.fd = accepts ? socket->fd() : -1, .events = POLLIN, .revents = 0});
        for (const auto& silent : pending.connections())
            polled.push_back({.fd = silent.socket.fd(), .events = POLLIN, .revents = 0});
        const int ready =
            ::poll(polled.data(), polled.size(),
                   wait_ms(pending.next_deadline(), shm::PendingConnections::Time::clock::now()));
        join_those_that_are_over();
        accepts = true;
        if (ready > 0) {
            hear(polled);  // first, so that nobody is sent away who has spoken
            if (polled[0].revents != 0) accepts = let_in();
        }
        pending.expire(shm::PendingConnections::Time::clock::now());
    }
}

/// The next connection. False: there are no descriptors left, or the like.
bool ShmServer::Impl::let_in() {
    auto came = socket->accept(0);
    if (!came.ok()) {
        if (came.error().code == Errc::kTimedOut || stop.load(std::memory_order_acquire)) return true;
        if (!complained) log_error("rdma: {}: {}", options.path.string(), came.error().message);
        complained = true;
        return pending.evict_oldest();
    }
    const auto user = came->peer_user();
    if (user.ok()) pending.add(std::move(*came), *user, shm::PendingConnections::Time::clock::now());
    return true;
}

/// Guests that said something, or went.
void ShmServer::Impl::hear(const std::vector<pollfd>& polled) {
    for (std::size_t i = pending.connections().size(); i-- > 0;)  // polled[i + 1], from behind: they leave
        if (polled[i + 1].revents != 0) begin(pending.take(i));
}

void ShmServer::Impl::begin(shm::PendingConnections::Pending came) {
    const auto admitted = admit(came);
    if (admitted.ok()) return;
    refuse(came.socket, admitted.error());
    closer.add(std::move(came.socket));
}

void ShmServer::Impl::refuse(const shm::Socket& refused, const Error& why) {
    // Seldom, where somebody keeps trying.
    const std::uint64_t so_far = refused_so_far.fetch_add(1, std::memory_order_relaxed) + 1;
    if (std::has_single_bit(so_far))
        log_warn("rdma: a client that connected to {} is refused ({} so far): {}", options.path.string(),
                 so_far, why.message);
    const shm::Answer answer = shm::refusal(why);
    (void)refused.send(std::as_bytes(std::span(&answer, 1)));  // or it hears it from the end of the socket
}

void ShmServer::Impl::close(shm::Socket gone) {
    if (!gone.silent()) closer.add(std::move(gone));
}

Result<void> ShmServer::Impl::admit(shm::PendingConnections::Pending& came) {
    const std::lock_guard lock(mutex);
    const auto places = served.size() + abandoned.size();
    const auto of_user =
        std::ranges::count(served, came.user, &Served::user) + std::ranges::count(abandoned, came.user);
    if (places >= options.clients_max || of_user >= std::int64_t{options.clients_of_user_max})
        return error(
            Errc::kNoSpace,
            "{} clients are connected, {} of them of user {}; this node serves at most {} clients, and {} of "
            "one user. End some clients{}",
            places, of_user, came.user, options.clients_max, options.clients_of_user_max,
            abandoned.empty()
                ? ""
                : "; drives still hold memory of clients that have ended: restart the node to free it");
    Served& one = served.emplace_back();
    one.user = came.user;
    one.number = ++number;
    const auto theirs = std::make_shared<shm::Socket>(std::move(came.socket));
    try {
        one.thread = std::thread([this, &one, theirs] {
            serve(one, std::move(*theirs));
            // Release: pairs with the acquire of the thread that joins it.
            one.over.store(true, std::memory_order_release);
        });
    } catch (const std::system_error& none) {
        came.socket = std::move(*theirs);
        served.pop_back();
        return error(Errc::kNoSpace, "cannot start a thread for the client: {}", none.what());
    }
    return {};
}

void ShmServer::Impl::serve(Served& one, shm::Socket theirs) {
    shm::Request first;
    shm::Descriptor file;
    const auto got = theirs.receive(std::as_writable_bytes(std::span(&first, 1)), 0, &file);
    if (!got.ok() || first.magic != shm::kMagic) return;
    NicOptions nic;
    nic.strict = options.strict;
    nic.pollers = static_cast<std::uint32_t>(reactors.size());
    const bool same_user = one.user == ::geteuid() || one.user == 0;
    nic.kind = same_user ? PeerKind::kSameUser : PeerKind::kOtherUser;
    auto opened = SoftNic::open(*wire, fmt::format("shm-{}", one.number), nic, reactors);
    if (!opened.ok()) return refuse(theirs, opened.error());
    {
        const std::lock_guard lock(mutex);
        one.session = std::make_unique<shm::Session>(std::move(theirs), std::move(*opened), shares, options);
    }
    one.session->run(first, std::move(file), stop);
}

void ShmServer::Impl::join_those_that_are_over() {
    std::list<Served> over;
    {
        const std::lock_guard lock(mutex);
        for (auto it = served.begin(); it != served.end();) {
            const auto next = std::next(it);
            if (it->over.load(std::memory_order_acquire)) over.splice(over.end(), served, it);
            it = next;
        }
    }
    for (Served& one : over) {
        one.thread.join();
        if (one.session == nullptr || !one.session->abandoned()) continue;
        const std::lock_guard lock(mutex);
        abandoned.push_back(one.user);
    }
}

ShmServer::ShmServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<ShmServer>> ShmServer::start(LoopWire& wire, std::span<Reactor* const> reactors,
                                                    ShmServerOptions options) {
    auto impl = std::make_unique<Impl>(std::move(options));
    impl->wire = &wire;
    impl->reactors.assign(reactors.begin(), reactors.end());
    GN_ASSIGN(shm::Socket socket, shm::Socket::listen(impl->options.path.string(), impl->options.mode));
    impl->socket = std::make_unique<shm::Socket>(std::move(socket));
    impl->accepting = std::thread([i = impl.get()] { i->accept_clients(); });
    return std::unique_ptr<ShmServer>(new ShmServer(std::move(impl)));
}

ShmServer::~ShmServer() {
    impl_->stop.store(true, std::memory_order_release);  // pairs with the loops of all threads
    impl_->socket->shut_down();                          // ends the wait for clients
    impl_->accepting.join();
    {
        const std::lock_guard lock(impl_->mutex);
        for (const Impl::Served& one : impl_->served)
            if (one.session != nullptr) one.session->end();
    }
    for (Impl::Served& one : impl_->served) one.thread.join();
    ::unlink(impl_->options.path.c_str());
}

std::size_t ShmServer::clients() const {
    const std::lock_guard lock(impl_->mutex);
    std::size_t count = 0;
    for (const Impl::Served& one : impl_->served) count += one.over.load(std::memory_order_acquire) ? 0 : 1;
    return count;
}

}  // namespace gnstor::rdma
