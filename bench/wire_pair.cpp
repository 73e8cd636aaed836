// wire_pair.cpp: see wire_pair.hpp.
#include "wire_pair.hpp"

#include "wire.hpp"

#include <gnstor/simt/time.hpp>

namespace gnstor::bench::wire_bench {

using namespace rdma;

namespace {
constexpr std::uint32_t kConnectMs = 30'000;
}

Result<std::unique_ptr<Pair>> Pair::open(const Plan& plan) {
    std::unique_ptr<Pair> pair(new Pair());
    if (plan.wire == "shm")
        GN_TRY(pair->become_client(plan));
    else
        GN_TRY(pair->open_here(plan));
    return pair;
}

Result<void> Pair::open_here(const Plan& plan) {
    SoftNic* there = nullptr;
    for (int i = 0; i < 2; ++i) {
        std::unique_ptr<SoftNic> nic;
        GN_ASSIGN(reactors_[i], Reactor::start(i == 0 ? "gn-here" : "gn-there"));
        Reactor* const reactor = reactors_[i].get();
        if (plan.wire == "udp") {
            GN_ASSIGN(udp_[i], UdpWire::open({.address = plan.addresses[static_cast<std::size_t>(i)],
                                              .port = plan.port,
                                              .mtu = plan.mtu},
                                             *reactor));
            GN_ASSIGN(nic, open_udp_nic(*udp_[i], NicOptions{}));
        } else {
            GN_ASSIGN(nic, SoftNic::open(loop_, i == 0 ? "here" : "there", NicOptions{}, {&reactor, 1}));
        }
        there = nic.get();
        nics_[i] = std::move(nic);
        GN_ASSIGN(ends_[i], End::create(*nics_[i], plan.shape));
    }
    Door door(ends_[1]->qp());
    GN_TRY(there->listen(kService, door));
    auto connected = nics_[0]->connect(here().qp(), nics_[1]->address(), kService, {}, kConnectMs);
    // Over udp the other end learns by a packet that it is connected, and has to listen until then.
    const bool agreed = connected.ok() && other_end_ready();
    there->unlisten(kService);
    if (!connected.ok()) return connected.error();
    if (!agreed) return error(Errc::kTimedOut, "the other end was not connected within {} ms", kConnectMs);
    return {};
}

bool Pair::other_end_ready() const {
    const std::uint64_t until = simt::now_ns() + kConnectMs * 1'000'000ull;
    std::uint32_t backoff = 0;
    while (nics_[1]->state(ends_[1]->qp()) != QpState::kReadyToSend) {
        if (simt::now_ns() > until) return false;
        simt::pause(backoff);
    }
    return true;
}

Result<void> Pair::become_client(const Plan& plan) {
    GN_ASSIGN(node_, NodeProcess::start(plan.shape));
    GN_ASSIGN(nics_[0], open_shm_nic(node_->socket_path()));
    GN_ASSIGN(ends_[0], End::create(*nics_[0], plan.shape));
    GN_TRY(nics_[0]->connect(here().qp(), kNodeAddress, kService, {}, kConnectMs));
    return {};
}

Pair::~Pair() = default;

mlx5::RemoteAddressSegment Pair::there(std::size_t at) const {
    if (node_ != nullptr) return mlx5::make_remote(node_->memory_address() + at, node_->rkey());
    return mlx5::make_remote(reinterpret_cast<std::uint64_t>(ends_[1]->memory().data() + at),
                             ends_[1]->rkey());
}

Result<void> Pair::fill_there(std::uint64_t seed) {
    if (node_ != nullptr) return node_->fill(seed);
    fill(ends_[1]->memory(), seed);
    return {};
}

Result<std::uint64_t> Pair::count_good_there(std::uint64_t seed, std::uint32_t place_bytes) {
    if (node_ != nullptr) return node_->count_good(seed, place_bytes);
    return count_good(ends_[1]->memory(), seed, place_bytes);
}

double Pair::reactor_seconds() const {
    double all = 0;
    for (const auto& reactor : reactors_)
        if (reactor != nullptr) all += static_cast<double>(reactor->cpu_time_ns()) * 1e-9;
    return all;
}

Result<double> Pair::engine_seconds() {
    if (node_ != nullptr) return node_->cpu_seconds();
    return reactor_seconds();
}

double Pair::lane_seconds() const {
    return process_cpu_seconds() - reactor_seconds();
}

PacketCounts Pair::packets() const {
    PacketCounts all;
    for (const auto& udp : udp_) {
        if (udp == nullptr) continue;
        const UdpWireCounters c = udp->counters();
        all.sent += c.packets_sent;
        all.retransmissions += c.retransmissions;
        all.overruns += c.receive_overruns;
        all.send_full += c.send_full;
    }
    return all;
}

}  // namespace gnstor::bench::wire_bench
