// shm_wire.cpp: see shm_wire.hpp.
#include "rdma/shm_wire.hpp"

#include "rdma/nic_impl.hpp"
#include "rdma/shm/client.hpp"
#include "rdma/shm/session.hpp"

#include <gnstor/base/log.hpp>

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <list>
#include <mutex>
#include <thread>

namespace gnstor::rdma {

struct ShmWire::Impl {
    std::unique_ptr<shm::Client> client;
};

ShmWire::ShmWire(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShmWire::~ShmWire() = default;

Result<std::unique_ptr<ShmWire>> ShmWire::open(const std::filesystem::path& path) {
    auto impl = std::make_unique<Impl>();
    GN_ASSIGN(impl->client, shm::Client::connect(path.string()));
    return std::unique_ptr<ShmWire>(new ShmWire(std::move(impl)));
}

Result<std::unique_ptr<SoftNic>> SoftNic::open(ShmWire& wire) {
    auto impl = std::make_unique<Impl>();
    impl->shm = wire.impl_->client.get();
    return std::unique_ptr<SoftNic>(new SoftNic(std::move(impl)));
}

struct ShmServer::Impl {
    struct Served {
        std::unique_ptr<shm::Session> session;
        std::thread thread;
        std::atomic<bool> over{false};
    };

    LoopWire* wire = nullptr;
    std::vector<Reactor*> reactors;
    ShmServerOptions options;
    std::unique_ptr<shm::Socket> socket;
    std::atomic<bool> stop{false};
    mutable std::mutex mutex;
    std::list<Served>
        served;  ///< under the mutex; threads end by themselves, and are joined by the accepting one
    std::thread accepting;
    std::uint64_t number = 0;  ///< of sessions ever; the accepting thread's

    void accept_clients();
    void begin(shm::Socket socket);
    void join_those_that_are_over();
};

void ShmServer::Impl::accept_clients() {
    constexpr std::uint32_t kTickMs = 200;
    bool complained = false;
    // Acquire: pairs with ~ShmServer; nothing is read behind it.
    while (!stop.load(std::memory_order_acquire)) {
        auto came = socket->accept(kTickMs);
        join_those_that_are_over();
        if (came.ok()) {
            begin(std::move(*came));
            continue;
        }
        if (came.error().code == Errc::kTimedOut || stop.load(std::memory_order_acquire)) continue;
        // Out of descriptors, as a rule: whoever waits to be let in goes on waiting, and this thread must not
        // burn its core meanwhile.
        if (!complained) log_error("rdma: {}: {}", options.path.string(), came.error().message);
        complained = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(kTickMs));
    }
}

void ShmServer::Impl::begin(shm::Socket came) {
    const std::lock_guard lock(mutex);
    if (served.size() >= options.clients_max) {
        log_warn("rdma: a client of {} is turned away: {} are there", options.path.string(), served.size());
        return;
    }
    NicOptions nic;
    nic.strict = options.strict;
    nic.pollers = static_cast<std::uint32_t>(reactors.size());
    auto opened = SoftNic::open(*wire, fmt::format("shm-{}", ++number), nic, reactors);
    if (!opened.ok()) {
        log_error("rdma: no NIC for a client of {}: {}", options.path.string(), opened.error().message);
        return;
    }
    Served& one = served.emplace_back();
    one.session = std::make_unique<shm::Session>(std::move(came), std::move(*opened), options.node,
                                                 options.client_bytes_max);
    one.thread = std::thread([this, &one] {
        one.session->run(stop);
        // Release: pairs with the acquire of whoever joins it.
        one.over.store(true, std::memory_order_release);
    });
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
    for (Served& one : over) one.thread.join();
}

ShmServer::ShmServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<ShmServer>> ShmServer::start(LoopWire& wire, std::span<Reactor* const> reactors,
                                                    ShmServerOptions options) {
    auto impl = std::make_unique<Impl>();
    impl->wire = &wire;
    impl->reactors.assign(reactors.begin(), reactors.end());
    GN_ASSIGN(shm::Socket socket, shm::Socket::listen(options.path.string(), options.mode));
    impl->socket = std::make_unique<shm::Socket>(std::move(socket));
    impl->options = std::move(options);
    impl->accepting = std::thread([i = impl.get()] { i->accept_clients(); });
    return std::unique_ptr<ShmServer>(new ShmServer(std::move(impl)));
}

ShmServer::~ShmServer() {
    impl_->stop.store(true, std::memory_order_release);  // pairs with the loops of all threads
    impl_->socket->shut_down();                          // ends the wait for clients
    impl_->accepting.join();
    for (const Impl::Served& one : impl_->served) one.session->end();
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
