// gateway_main.cpp: an array of emulated SSDs in a folder, and one of its volumes as an ordinary namespace on
// the udp wire.
//
//     peer_gateway ADDRESS PORT FOLDER VOLUME MEGABYTES [SSD_MEGABYTES]
//
// Without the last the SSDs are as large as the volume. Opens the array, which recovers what was there, makes
// the volume if there is none of that name, says its name ("volume nqn...") and "ready", and serves until
// SIGTERM or SIGINT. It may be killed at any moment.
#include "gateway/serve.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "rdma/wire/udp/udp_wire.hpp"

#include <gnstor/base/reactor.hpp>
#include <gnstor/embedded_array.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

namespace gnstor {
namespace {

struct Options {
    std::string address, port;
    std::filesystem::path folder;
    std::string volume;
    std::uint64_t megabytes = 0, ssd_megabytes = 0;
};

Result<std::unique_ptr<EmbeddedArray>> open_array(const Options& options) {
    EmbeddedArrayOptions array;
    array.ssds = 3;
    array.ssd_capacity_bytes = std::max<std::uint64_t>(options.ssd_megabytes, 64) << 20;
    array.directory = options.folder;
    array.engine_threads = 1;
    return EmbeddedArray::open(array);
}

Result<void> ensure_volume(EmbeddedArray& array, client::Client& owner, const Options& options) {
    GN_ASSIGN(const auto volumes, array.control().list_volumes());
    const auto named = [&](const nvme::VolumeRecord& record) { return options.volume == record.name; };
    if (std::any_of(volumes.begin(), volumes.end(), named)) return {};
    client::CreateVolume request;
    request.name = options.volume;
    request.capacity_bytes = options.megabytes << 20;
    request.replicas = 2;
    GN_ASSIGN([[maybe_unused]] const auto record, owner.create(request));
    return {};
}

void print_counters(const rdma::UdpWire& wire, const gateway::GatewayCounters& gateway) {
    const rdma::UdpWireCounters c = wire.counters();
    fmt::print(
        "wire: packets sent {} received {}, bytes sent {} received {}, bad ICRC {}, malformed {}, "
        "unknown queue pair {}, wrong peer {}, send full {}, overruns {}, retransmissions {}\n",
        c.packets_sent, c.packets_received, c.bytes_sent, c.bytes_received, c.bad_icrc, c.malformed,
        c.unknown_queue_pair, c.wrong_peer, c.send_full, c.receive_overruns, c.retransmissions);
    fmt::print("gateway: reads {}, writes {}, flushes {}, trims {}\n", gateway.reads, gateway.writes,
               gateway.flushes, gateway.trims);
}

Result<void> serve(const Options& options, const sigset_t& ending) {
    std::filesystem::create_directories(options.folder);
    GN_ASSIGN(const auto array, open_array(options));
    GN_ASSIGN(const auto client, array->connect(gateway::client_options("gateway")));
    GN_TRY(ensure_volume(*array, *client, options));
    GN_ASSIGN(const auto network, Reactor::start("network"));
    GN_ASSIGN(const auto wire, rdma::UdpWire::open({.address = options.address}, *network));
    GN_ASSIGN(const auto nic, rdma::open_udp_nic(*wire, rdma::NicOptions{}));
    gateway::VolumeToServe volume;
    volume.client = client.get();
    volume.options.volume = options.volume;
    gateway::ServeOptions serving;
    serving.port = options.port;
    GN_ASSIGN(const auto served, gateway::serve(*nic, {&volume, 1}, std::move(serving)));
    fmt::print("volume {}\nmtu {}\nready\n", served->nqn(0), wire->mtu());
    std::fflush(stdout);
    int signal = 0;
    sigwait(&ending, &signal);
    print_counters(*wire, served->gateway(0).counters());
    return {};
}

}  // namespace
}  // namespace gnstor

int main(int count, char** words) {
    if (count != 6 && count != 7) {
        fmt::print(stderr, "usage: peer_gateway ADDRESS PORT FOLDER VOLUME MEGABYTES [SSD_MEGABYTES]\n");
        return 2;
    }
    const gnstor::Options options{.address = words[1],
                                  .port = words[2],
                                  .folder = words[3],
                                  .volume = words[4],
                                  .megabytes = std::strtoull(words[5], nullptr, 0),
                                  .ssd_megabytes = std::strtoull(words[count - 1], nullptr, 0)};
    // Before any thread is there, so that none but this one takes them.
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ending, nullptr);
    const auto served = gnstor::serve(options, ending);
    if (served.ok()) return 0;
    fmt::print(stderr, "peer_gateway: {}\n", served.error().message);
    return 1;
}
