// wire.cpp: see wire.hpp.
#include "wire.hpp"

#include "deengine.hpp"
#include "wire_mover.hpp"
#include "wire_report.hpp"
#include "wire_sockets.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace gnstor::bench {
namespace {

using namespace wire_bench;

Result<void> check(const WireOptions& o) {
    for (const std::string& wire : o.wires)
        if (wire != "loop" && wire != "shm" && wire != "udp")
            return error(Errc::kInvalidArgument, "--wires does not know '{}'; it takes loop, shm and udp",
                         wire);
    for (const std::uint32_t bytes : o.sizes)
        if (bytes < 64 || bytes > (1u << 20) || !std::has_single_bit(bytes))
            return error(Errc::kInvalidArgument, "--sizes takes powers of two from 64 to 1048576, not {}",
                         bytes);
    if (o.depth == 0 || o.depth > (1u << kEntriesLog2))
        return error(Errc::kInvalidArgument, "--depth takes 1 to {}, not {}", 1u << kEntriesLog2, o.depth);
    if (o.repeats == 0 || o.repeats > 1000 || o.seconds <= 0 || o.seconds > 600)
        return error(Errc::kInvalidArgument, "--repeats takes 1 to 1000, --seconds up to 600");
    if (o.addresses.size() != 2)
        return error(Errc::kInvalidArgument, "--addresses takes two addresses separated by a comma, not {}",
                     o.addresses.size());
    if (!o.json.empty() && !std::ofstream(o.json, std::ios::app))
        return error(Errc::kInvalidArgument, "cannot write to {}; choose another --json", o.json);
    return {};
}

struct SocketCase {
    const char* through;
    UdpWay way;
};

std::vector<SocketCase> udp_socket_cases(std::uint32_t bytes, bool offload) {
    std::vector<SocketCase> all{{"UDP socket", {kLargePacket, false}}, {"UDP socket", {kSmallPacket, false}}};
    if (bytes > kLargePacket) all.push_back({"UDP socket", {std::min(bytes, kDatagramMax), false}});
    if (offload) all.push_back({"UDP socket, GSO and GRO", {kLargePacket, true}});
    return all;
}

void add_steps(std::vector<deengine_bench::Step>& steps, const WireOptions& o, std::uint32_t bytes,
               bool offload) {
    const Work work{bytes, o.depth, o.seconds};
    for (const std::string& wire : o.wires)
        for (const Direction direction : {Direction::kWrite, Direction::kRead}) {
            const char* const operation = direction == Direction::kWrite ? "RDMA WRITE" : "RDMA READ";
            for (const std::uint32_t depth : {o.depth, 1u}) {
                Work deep = work;
                deep.depth = depth;
                const Pair::Plan plan{wire, o.addresses, o.port, o.mtu, {}};
                steps.push_back(
                    {{{"through", wire}, {"operation", operation}, {"bytes", bytes}, {"depth", depth}},
                     [plan, deep, direction] { return run_on_wire(plan, deep, direction); }});
                if (o.depth == 1) break;
            }
        }
    steps.push_back({{{"through", "memcpy"}, {"bytes", bytes}}, [work] { return run_memcpy(work); }});
    for (const SocketCase& one : udp_socket_cases(bytes, offload))
        steps.push_back(
            {{{"through", one.through}, {"bytes", bytes}, {"datagram", one.way.datagram}},
             [&o, work, one] { return run_udp_sockets(work, o.addresses[0], o.addresses[1], one.way); }});
    steps.push_back({{{"through", "TCP socket"}, {"bytes", bytes}},
                     [&o, work] { return run_tcp_socket(work, o.addresses[0], o.addresses[1]); }});
}

Result<void> keep(const WireOptions& o, const std::vector<Case>& cases, const Verdicts& verdicts,
                  const std::string& load_before) {
    const nlohmann::json configuration = {{"depth", o.depth},
                                          {"seconds", o.seconds},
                                          {"mtu", o.mtu},
                                          {"shm", "client and node, a process each"},
                                          {"load average before", load_before},
                                          {"load average after", load_average()}};
    const char* commit = std::getenv("GN_COMMIT");
    nlohmann::json run =
        to_json("wire", o.command, commit != nullptr ? commit : "unknown", configuration, cases);
    run["verdicts"] = wire_bench::to_json(verdicts);
    GN_TRY(write_json(o.json, run));
    std::printf("Raw result: %s\n", o.json.c_str());
    return {};
}

}  // namespace

void add_wire_options(CLI::App& app, WireOptions& o, std::string& lanes) {
    app.add_option("--wires", o.wires,
                   "wires to measure, separated by commas: loop (one process), shm (client and node as two "
                   "processes), udp (RoCEv2)")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--sizes", o.sizes, "bytes per operation; several separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--depth", o.depth,
                   "operations in flight; each case is also measured with one operation in flight")
        ->capture_default_str();
    app.add_option("--repeats", o.repeats, "how often each case is measured; the cases take turns")
        ->capture_default_str();
    app.add_option("--seconds", o.seconds, "duration of each repeat of each case")->capture_default_str();
    app.add_option("--addresses", o.addresses,
                   "IP addresses of the two ends of the udp wire, separated by a comma")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--port", o.port,
                   "UDP port of the udp wire; choose another port if a kernel RoCE device uses 4791")
        ->capture_default_str();
    app.add_option("--mtu", o.mtu, "path MTU of the udp wire: 1024, 2048 or 4096; 0: the largest that fits")
        ->capture_default_str();
    app.add_option("--lanes", lanes,
                   "ignored: this benchmark runs on the host; accepted because ./run passes the option to "
                   "every benchmark")
        ->check(CLI::IsMember({"cpu", "gpu"}));
    app.add_option("--json", o.json, "keep the raw result in this file (docs/runs/README.md)");
    app.footer(
        "Examples:\n"
        "  gnstor bench wire --seconds 0.05 --repeats 1\n"
        "  gnstor bench wire --wires loop --sizes 65536 --seconds 0.05 --repeats 1 --json wire.json");
}

Result<bool> run_wire(const WireOptions& o) {
    GN_TRY(check(o));
    const std::string load_before = load_average();
    std::printf("bench wire on %s; load average %s; %u repeats of %.2f s\n",
                describe_machine()["cpu"].get<std::string>().c_str(), load_before.c_str(), o.repeats,
                o.seconds);
    const auto offload = udp_offload_works();
    if (!offload.ok()) std::printf("LEFT OUT: UDP with GSO and GRO: %s\n", offload.error().message.c_str());
    std::vector<deengine_bench::Step> steps;
    for (const std::uint32_t bytes : o.sizes) add_steps(steps, o, bytes, offload.ok());
    GN_ASSIGN(const std::vector<Case> cases, deengine_bench::measure("wire", o.repeats, std::move(steps)));
    const Verdicts verdicts = judge(cases);
    std::printf(
        "\n%s\nMedian over %u repeats (least .. most); resent and overruns: sums over all repeats. CPU time "
        "includes polling. Engine: CPU time of the threads\nthat run both NICs; on shm, engine is the node's "
        "process and lanes the client's process. For memcpy and sockets it is that of\nthe whole process. "
        "Rates of sockets count the bytes that arrived.\n\nRatio of GB/s within the same repeat:\n%s",
        wire_table(cases).c_str(), o.repeats, text_of(verdicts).c_str());
    if (!o.json.empty()) GN_TRY(keep(o, cases, verdicts, load_before));
    std::fflush(stdout);
    GN_TRY(promise_kept(verdicts));
    return true;
}

}  // namespace gnstor::bench
