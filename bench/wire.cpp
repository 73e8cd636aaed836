// wire.cpp: see wire.hpp.
#include "wire.hpp"

#include <gnstor/base/hash.hpp>
#include <gnstor/simt/time.hpp>

#include "deengine.hpp"
#include "wire_pair.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace gnstor::bench {
namespace {

using namespace wire_bench;

constexpr std::uint32_t kEntriesLog2 = 6;
constexpr std::uint64_t kStuckNs = 10'000'000'000;

enum class Direction : std::uint8_t { kWrite, kRead };

/// Puts a pattern of its own into each place of `memory`, so that a byte in the wrong place is seen.
void fill(std::span<std::byte> memory, std::uint64_t seed) {
    for (std::size_t at = 0; at + 8 <= memory.size(); at += 8) {
        const std::uint64_t word = mix64(seed ^ at);
        std::memcpy(memory.data() + at, &word, 8);
    }
}

/// One queue pair kept `depth` deep for a time; place i of both memories belongs to entry i.
class Mover {
  public:
    Mover(Pair& pair, const Work& work, Direction direction)
        : pair_(pair), work_(work), direction_(direction), began_at_(work.depth) {}

    Result<Repeat> run() {
        const rdma::SendQueueRef queue = pair_.here().queue();
        const double cpu = pair_.engine_seconds(), all_cpu = process_cpu_seconds();
        const std::uint64_t retransmitted = pair_.retransmissions(), overrun = pair_.overruns();
        const std::uint64_t began = simt::now_ns();
        const auto end = began + static_cast<std::uint64_t>(work_.seconds * 1e9);
        const std::uint64_t first = queue.completed();
        std::uint64_t posted = first, done = first, moved = began, now = began;
        std::uint32_t backoff = 0;
        while (done < posted || now < end) {
            while (posted - done < work_.depth && now < end) GN_TRY(post(queue, posted++, now));
            queue.ring_bell();
            const std::uint64_t seen = queue.refresh_completed();
            now = simt::now_ns();
            if (queue.broken())
                return error(Errc::kIo, "the queue pair broke, syndrome {:#x}",
                             static_cast<unsigned>(queue.syndrome()));
            if (seen != done) {
                moved = now;
                backoff = 0;
            } else {
                simt::pause(backoff);  // the engines may need this very core
            }
            for (; done < seen; ++done)
                latencies_.push_back(static_cast<std::uint32_t>(
                    std::min<std::uint64_t>(now - began_at_[done % work_.depth], ~0u)));
            if (now - moved > kStuckNs)
                return error(Errc::kTimedOut, "nothing completed for {} s", kStuckNs / 1'000'000'000);
        }
        Repeat r;
        r.seconds = static_cast<double>(now - began) * 1e-9;
        r.operations = done - first;
        r.bytes = r.operations * work_.bytes;
        r.latency = summarize(std::move(latencies_));
        r.engine_cpu_seconds = pair_.engine_seconds() - cpu;
        r.lane_cpu_seconds = process_cpu_seconds() - all_cpu - r.engine_cpu_seconds;
        r.checked = check();
        if (pair_.mtu() != 0) {
            r.more["retransmissions"] = static_cast<double>(pair_.retransmissions() - retransmitted);
            r.more["receive_overruns"] = static_cast<double>(pair_.overruns() - overrun);
        }
        return r;
    }

  private:
    Result<void> post(const rdma::SendQueueRef& queue, std::uint64_t index, std::uint64_t now) {
        rdma::SendTicket ticket = queue.try_reserve();
        if (!ticket.granted()) return error(Errc::kIo, "no send entry to be had at depth {}", work_.depth);
        const std::size_t at = index % work_.depth * work_.bytes;
        if (direction_ == Direction::kWrite)
            queue.fill_write(ticket, pair_.there().remote(at), pair_.here().local(at, work_.bytes));
        else
            queue.fill_read(ticket, pair_.there().remote(at), pair_.here().local(at, work_.bytes));
        began_at_[index % work_.depth] = now;
        queue.publish(ticket);
        return {};
    }

    /// Places that hold what the other end's do.
    std::uint64_t check() const {
        std::uint64_t good = 0;
        for (std::uint32_t i = 0; i < work_.depth; ++i)
            good +=
                std::memcmp(pair_.here().memory().data() + std::size_t{i} * work_.bytes,
                            pair_.there().memory().data() + std::size_t{i} * work_.bytes, work_.bytes) == 0;
        return good;
    }

    Pair& pair_;
    const Work work_;
    const Direction direction_;
    std::vector<std::uint64_t> began_at_;
    std::vector<std::uint32_t> latencies_;
};

Result<Repeat> run_memcpy(const Work& work) {
    const std::size_t bytes = std::size_t{work.depth} * work.bytes;
    std::vector<std::byte> from(bytes, std::byte{1}), to(bytes);
    const double cpu = process_cpu_seconds();
    const deengine_bench::Stopwatch watch;
    std::uint64_t operations = 0;
    while (watch.seconds() < work.seconds)
        for (std::uint32_t i = 0; i < work.depth; ++i, ++operations) {
            std::memcpy(to.data() + std::size_t{i} * work.bytes, from.data() + std::size_t{i} * work.bytes,
                        work.bytes);
            deengine_bench::keep_value(to.data());
        }
    Repeat r = deengine_bench::repeat_of(watch.seconds(), operations, operations * work.bytes);
    r.engine_cpu_seconds = process_cpu_seconds() - cpu;
    return r;
}

Result<Repeat> run_on(const WireOptions& o, const std::string& wire, const Work& work, Direction direction) {
    GN_ASSIGN(const std::unique_ptr<Pair> pair, Pair::open(wire, o.addresses, o.port, o.mtu, kEntriesLog2,
                                                           std::size_t{work.depth} * work.bytes));
    fill((direction == Direction::kWrite ? pair->here() : pair->there()).memory(), work.bytes);
    GN_ASSIGN(const Repeat r, Mover(*pair, work, direction).run());
    if (r.checked != std::min<std::uint64_t>(work.depth, r.operations))
        return error(Errc::kCorrupt, "{} of {} places hold other bytes than they should",
                     work.depth - r.checked, work.depth);
    return r;
}

Result<void> check(const WireOptions& o) {
    for (const std::string& wire : o.wires)
        if (wire != "loop" && wire != "shm" && wire != "udp")
            return error(Errc::kInvalidArgument, "there is no wire '{}'; wires are loop, shm and udp", wire);
    for (const std::uint32_t bytes : o.sizes)
        if (bytes < 64 || bytes > (1u << 20) || !std::has_single_bit(bytes))
            return error(Errc::kInvalidArgument, "--sizes takes powers of two from 64 to 1048576, not {}",
                         bytes);
    if (o.depth == 0 || o.depth > (1u << kEntriesLog2))
        return error(Errc::kInvalidArgument, "--depth takes 1 to {}, not {}", 1u << kEntriesLog2, o.depth);
    if (o.repeats == 0 || o.repeats > 1000 || o.seconds <= 0 || o.seconds > 600)
        return error(Errc::kInvalidArgument, "--repeats takes 1 to 1000, --seconds up to 600");
    if (o.addresses.size() != 2)
        return error(Errc::kInvalidArgument, "--addresses takes two, by a comma, not {}", o.addresses.size());
    if (!o.json.empty() && !std::ofstream(o.json, std::ios::app))
        return error(Errc::kInvalidArgument, "cannot write to {}; choose another --json", o.json);
    return {};
}

void add_steps(std::vector<deengine_bench::Step>& steps, const WireOptions& o, std::uint32_t bytes) {
    const Work work{bytes, o.depth, o.seconds};
    steps.push_back({{{"through", "memcpy"}, {"bytes", bytes}}, [work] { return run_memcpy(work); }});
    for (const std::string& wire : o.wires)
        for (const Direction direction : {Direction::kWrite, Direction::kRead}) {
            const char* const operation = direction == Direction::kWrite ? "RDMA WRITE" : "RDMA READ";
            for (const std::uint32_t depth : {o.depth, 1u}) {
                Work deep = work;
                deep.depth = depth;
                steps.push_back(
                    {{{"through", wire}, {"operation", operation}, {"bytes", bytes}, {"depth", depth}},
                     [&o, wire, deep, direction] { return run_on(o, wire, deep, direction); }});
                if (o.depth == 1) break;
            }
        }
    // Payload of a RoCE packet at the largest MTU that loopback takes, and the largest of plain Ethernet's.
    for (const std::uint32_t datagram : {4096u, 1024u})
        steps.push_back(
            {{{"through", "UDP socket"}, {"bytes", bytes}, {"datagram", datagram}}, [&o, work, datagram] {
                 return run_udp_sockets(work, o.addresses[0], o.addresses[1], datagram);
             }});
    steps.push_back({{{"through", "TCP socket"}, {"bytes", bytes}},
                     [&o, work] { return run_tcp_socket(work, o.addresses[0], o.addresses[1]); }});
}

}  // namespace

void add_wire_options(CLI::App& app, WireOptions& o, std::string& lanes) {
    app.add_option("--wires", o.wires,
                   "loop (one process), shm (a client of a node), udp (RoCEv2), by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--sizes", o.sizes, "bytes an operation, by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--depth", o.depth, "operations under way; each case is measured with one as well")
        ->capture_default_str();
    app.add_option("--repeats", o.repeats, "of every case; cases take turns")->capture_default_str();
    app.add_option("--seconds", o.seconds, "of each repeat of each case")->capture_default_str();
    app.add_option("--addresses", o.addresses, "the two ends of the udp wire, by a comma")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--port", o.port, "of the udp wire; another one where a kernel RoCE device has 4791")
        ->capture_default_str();
    app.add_option("--mtu", o.mtu, "of the udp wire: 1024, 2048, 4096; 0: the largest that fits")
        ->capture_default_str();
    app.add_option("--lanes", lanes, "as ./run gives them to every benchmark; this one runs on the host")
        ->check(CLI::IsMember({"cpu", "gpu"}));
    app.add_option("--json", o.json, "keep the raw result in this file (docs/runs/README.md)");
    app.footer(
        "Examples:\n"
        "  gnstor bench wire --seconds 0.05 --repeats 1\n"
        "  gnstor bench wire --wires loop --sizes 65536 --seconds 0.05 --repeats 1 --json wire.json");
}

Result<bool> run_wire(const WireOptions& o) {
    GN_TRY(check(o));
    std::printf("bench wire on %s: %u repeats of %.2f s\n",
                describe_machine()["cpu"].get<std::string>().c_str(), o.repeats, o.seconds);
    std::vector<deengine_bench::Step> steps;
    for (const std::uint32_t bytes : o.sizes) add_steps(steps, o, bytes);
    GN_ASSIGN(const std::vector<Case> cases, deengine_bench::measure("wire", o.repeats, std::move(steps)));
    std::printf(
        "\n%s\nMedian over %u repeats (least .. most). Engine CPU: of the threads that run both NICs, or of "
        "the whole\n"
        "process for memcpy and sockets. UDP sockets: what arrived.\n",
        table(cases).c_str(), o.repeats);
    if (o.json.empty()) return true;
    const nlohmann::json configuration = {{"depth", o.depth}, {"seconds", o.seconds}, {"mtu", o.mtu}};
    const char* commit = std::getenv("GN_COMMIT");
    GN_TRY(write_json(
        o.json, to_json("wire", o.command, commit != nullptr ? commit : "unknown", configuration, cases)));
    std::printf("Raw result: %s\n", o.json.c_str());
    return true;
}

}  // namespace gnstor::bench
