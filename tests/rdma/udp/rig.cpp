// rig.cpp: endpoints that keep a record, and drivers on a port that is free.
#include "rdma/udp/rig.hpp"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace gnstor::rdma::udp::rig {

FakeEndpoint::FakeEndpoint(Reactor& on, std::size_t memory_bytes, std::uint64_t seed)
    : reactor(on), memory(memory_bytes) {
    fill(memory, seed);
}

std::byte* FakeEndpoint::reach(std::uint32_t rkey, std::uint64_t address, std::uint32_t bytes,
                               roce::Right right) {
    const bool may = rkey == kKey || (rkey == kReadOnlyKey && right == roce::Right::kRemoteRead);
    if (!may || address > memory.size() || bytes > memory.size() - address) return nullptr;
    return memory.data() + address;
}

bool FakeEndpoint::invalidate(std::uint32_t rkey) {
    const std::lock_guard lock(mutex);
    ++invalidated;
    return rkey == kKey;
}

bool FakeEndpoint::take_receive(roce::ReceiveBuffer& receive) {
    if (posted_.empty()) return false;
    filling_.push_back(std::move(posted_.front()));
    posted_.pop_front();
    receive = {};
    receive.pieces[0] = filling_.back().bytes;
    receive.count = 1;
    return true;
}

void FakeEndpoint::received(const roce::Received& what) {
    ASSERT_FALSE(filling_.empty());
    Buffer buffer = std::move(filling_.front());
    filling_.pop_front();
    if (what.status == mlx5::kSyndromeNone && on_message)
        on_message(std::span<const std::byte>(buffer.bytes).first(what.bytes));
    posted_.push_back(std::move(buffer));
    const std::lock_guard lock(mutex);
    called_after_end |= failed.has_value() || closed;
    if (what.status == mlx5::kSyndromeNone) ++messages;
    changed.notify_all();
}

void FakeEndpoint::on_completion(const roce::Completion& completion) {
    const std::lock_guard lock(mutex);
    called_after_end |= failed.has_value() || closed;
    ++completions;
    out_of_order |= completion.id <= last_id;
    last_id = completion.id;
    if (completion.status != mlx5::kSyndromeNone) bad.push_back(completion);
    changed.notify_all();
}

void FakeEndpoint::on_batch() {
    const std::lock_guard lock(mutex);
    called_after_end |= failed.has_value() || closed;
    ++batches;
}

void FakeEndpoint::on_failed(mlx5::Syndrome why) {
    link = nullptr;
    const std::lock_guard lock(mutex);
    called_after_end |= failed.has_value() || closed;
    failed = why;
    changed.notify_all();
}

Result<void> FakeEndpoint::post(const roce::Request& request) {
    Result<void> done = error(Errc::kState, "the endpoint has no link");
    reactor.run([&] {
        if (link != nullptr) done = link->post(request);
    });
    return done;
}

void FakeEndpoint::close() {
    reactor.run([&] {
        if (link == nullptr) return;
        {
            const std::lock_guard lock(mutex);
            closed = true;
        }
        link->close();
        link = nullptr;
    });
}

void FakeEndpoint::post_receives(std::uint32_t count, std::uint32_t bytes) {
    reactor.run([&] {
        for (std::uint32_t i = 0; i < count; ++i) posted_.push_back({std::vector<std::byte>(bytes)});
    });
}

bool FakeEndpoint::await(const std::function<bool()>& predicate, std::chrono::milliseconds most) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, most, predicate);
}

ArrivalReply FakeAcceptor::on_arrival(const Arrival& arrival) {
    {
        const std::lock_guard lock(mutex);
        ++arrivals;
        private_data.emplace_back(arrival.private_data.begin(), arrival.private_data.end());
        peers.push_back(arrival.peer);
        changed.notify_all();
    }
    if (decide) {
        if (auto reply = decide(arrival)) return std::move(*reply);
    }
    auto endpoint = std::make_unique<FakeEndpoint>(reactor, memory_bytes.load(), 2);
    endpoint->post_receives(receives, receive_bytes);
    ArrivalReply reply;
    reply.accept = true;
    reply.endpoint = endpoint.get();
    reply.options = options;
    reply.private_data = {std::byte{'o'}, std::byte{'k'}};
    const std::lock_guard lock(mutex);
    reply.qp = next_qp++;
    endpoints.push_back(std::move(endpoint));
    changed.notify_all();
    return reply;
}

void FakeAcceptor::on_link(QpNumber qp, Link& link) {
    const std::lock_guard lock(mutex);
    FakeEndpoint* const endpoint = endpoints[qp - (next_qp - endpoints.size())].get();
    endpoint->link = &link;
    up.emplace_back(qp, endpoint);
    changed.notify_all();
}

FakeEndpoint* FakeAcceptor::await_link(std::size_t index) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, kPatience, [&] { return up.size() > index; });
    return up.size() > index ? up[index].second : nullptr;
}

bool FakeAcceptor::await_endpoints(std::size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kPatience, [&] { return endpoints.size() >= count; });
}

Result<std::unique_ptr<Driver>> open_without_privilege(const UdpWireOptions& options, Reactor& reactor) {
    std::optional<Result<std::unique_ptr<Driver>>> opened;
    // Capabilities are a thread's own.
    std::thread([&] {
        __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
        __user_cap_data_struct data[2] = {};
        syscall(SYS_capget, &header, data);
        data[0].effective &= ~(1u << CAP_NET_RAW);
        syscall(SYS_capset, &header, data);
        opened = Driver::open(options, reactor);
    }).join();
    return std::move(*opened);
}

Pair::Pair(std::uint32_t mtu_left, std::uint32_t mtu_right, std::string left_address,
           std::string right_address) {
    left.reactor = std::move(Reactor::start("gn-test-left")).value();
    right.reactor = std::move(Reactor::start("gn-test-right")).value();
    left_options = {.address = std::move(left_address), .port = 0, .mtu = mtu_left};
    right_options = {.address = std::move(right_address), .port = 0, .mtu = mtu_right};
    // Programs that run at the same time have ports of their own.
    for (std::uint32_t i = 0; i < 200 && right.driver == nullptr; ++i) {
        const auto port = static_cast<std::uint16_t>(
            20'000 + (static_cast<std::uint32_t>(getpid()) * 7 + i * 101) % 10'000);
        left_options.port = right_options.port = port;
        auto one = Driver::open(left_options, *left.reactor);
        if (!one && one.error().code != Errc::kBusy) throw std::runtime_error(one.error().message);
        if (!one) continue;
        auto other = Driver::open(right_options, *right.reactor);
        if (!other) continue;
        left.driver = std::move(*one);
        right.driver = std::move(*other);
    }
    if (right.driver == nullptr) throw std::runtime_error("no free port for two drivers");
}

Result<std::vector<std::byte>> Pair::connect(FakeEndpoint& endpoint, QpNumber qp, LinkOptions options,
                                             std::span<const std::byte> private_data,
                                             std::uint32_t timeout_ms) {
    return left.driver->connect(qp, endpoint, right_options.address, 4420, private_data, options, timeout_ms,
                                endpoint.link);
}

roce::Request request(roce::RequestKind kind, std::uint64_t id, std::span<std::byte> bytes,
                      std::uint64_t address, std::uint32_t rkey) {
    roce::Request r;
    r.kind = kind;
    r.id = id;
    r.pieces[0] = bytes;
    r.count = bytes.empty() ? 0 : 1;
    r.address = address;
    r.rkey = rkey;
    return r;
}

void fill(std::span<std::byte> bytes, std::uint64_t seed) {
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
        const std::uint64_t word = mix64(seed * 0x10001 + at / 8);
        for (std::size_t i = 0; i < 8 && at + i < bytes.size(); ++i)
            bytes[at + i] = static_cast<std::byte>(word >> (8 * i));
    }
}

bool holds(std::span<const std::byte> bytes, std::uint64_t seed) {
    std::vector<std::byte> wanted(bytes.size());
    fill(wanted, seed);
    return bytes.empty() || std::memcmp(wanted.data(), bytes.data(), bytes.size()) == 0;
}

}  // namespace gnstor::rdma::udp::rig
