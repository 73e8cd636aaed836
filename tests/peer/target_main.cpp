// target_main.cpp: a node without the rest of an array: drives in memory behind a target on the udp wire.
//
//     peer_target ADDRESS PORT DRIVES MEGABYTES
//
// Drive i listens at PORT + i. Says where ("drive 0 4420 nqn...") and "ready"; serves until SIGTERM or
// SIGINT, then says what the wire and the drives did.
#include "nvmf/protocol/nqn.hpp"
#include "nvmf/target/target.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "rdma/wire/udp/udp_wire.hpp"
#include "ssd/drive/drive.hpp"

#include <gnstor/base/reactor.hpp>

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace gnstor {
namespace {

struct Options {
    std::string address, port;
    unsigned drives = 0;
    unsigned megabytes = 0;
};

void print_counters(const rdma::UdpWire& wire, const nvmf::Target& target) {
    const rdma::UdpWireCounters c = wire.counters();
    fmt::print(
        "wire: packets sent {} received {}, bytes sent {} received {}, bad ICRC {}, malformed {}, "
        "unknown queue pair {}, wrong peer {}, send full {}, overruns {}, retransmissions {}\n",
        c.packets_sent, c.packets_received, c.bytes_sent, c.bytes_received, c.bad_icrc, c.malformed,
        c.unknown_queue_pair, c.wrong_peer, c.send_full, c.receive_overruns, c.retransmissions);
    for (std::size_t i = 0; i < target.subsystem_count(); ++i) {
        const auto s = target.counters(target.subsystem_nqn(i));
        if (!s.ok()) continue;
        fmt::print(
            "drive {}: capsules {}, reads {}, writes {}, admin {}, refused {}, drive errors {}, "
            "malformed {}, connections {} refused {} failed {} disconnected {}, keep-alive expired {}\n",
            i, s->capsules, s->reads, s->writes, s->admin, s->refused, s->drive_errors, s->malformed,
            s->connections_accepted, s->connections_refused, s->connections_failed,
            s->connections_disconnected, s->keep_alive_expired);
    }
}

Result<void> serve(const Options& options, const sigset_t& ending) {
    GN_ASSIGN(const auto network, Reactor::start("network"));
    GN_ASSIGN(const auto wire, rdma::UdpWire::open({.address = options.address}, *network));
    GN_ASSIGN(const auto nic, rdma::open_udp_nic(*wire, rdma::NicOptions{}));
    std::vector<std::unique_ptr<Reactor>> reactors;
    std::vector<std::unique_ptr<ssd::Drive>> drives;
    std::vector<nvmf::SubsystemConfig> subsystems;
    for (unsigned i = 0; i < options.drives; ++i) {
        GN_ASSIGN(auto reactor, Reactor::start(fmt::format("drive-{}", i)));
        ssd::DriveOptions drive_options;
        drive_options.capacity_bytes = std::uint64_t{options.megabytes} << 20;
        GN_ASSIGN(auto drive, ssd::Drive::open(drive_options, *reactor));
        subsystems.push_back({.device = drive.get(),
                              .nqn = nvmf::ssd_subsystem_nqn(drive->uuid()),
                              .service = "",
                              .drive_reactor = reactor.get()});
        reactors.push_back(std::move(reactor));
        drives.push_back(std::move(drive));
    }
    nvmf::TargetOptions target_options;
    target_options.ports = {{.service = options.port, .address = ""}};
    GN_ASSIGN(const auto target, nvmf::Target::open(*nic, subsystems, target_options));
    for (unsigned i = 0; i < options.drives; ++i) fmt::print("drive {} {}\n", i, subsystems[i].nqn);
    fmt::print("mtu {}\nready\n", wire->mtu());
    std::fflush(stdout);
    int signal = 0;
    sigwait(&ending, &signal);
    print_counters(*wire, *target);
    return {};
}

}  // namespace
}  // namespace gnstor

int main(int count, char** words) {
    if (count != 5) {
        fmt::print(stderr, "usage: peer_target ADDRESS PORT DRIVES MEGABYTES\n");
        return 2;
    }
    gnstor::Options options{.address = words[1],
                            .port = words[2],
                            .drives = static_cast<unsigned>(std::atoi(words[3])),
                            .megabytes = static_cast<unsigned>(std::atoi(words[4]))};
    // Before any thread is there, so that none but this one takes them.
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ending, nullptr);
    const auto served = gnstor::serve(options, ending);
    if (served.ok()) return 0;
    fmt::print(stderr, "peer_target: {}\n", served.error().message);
    return 1;
}
