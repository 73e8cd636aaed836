// wire.hpp: `bench wire`, what moving bytes between two NICs costs, by wire, size and direction. Host.
//
// One thread posts RDMA WRITE or READ entries of one queue pair, so many under way; two NICs execute them, on
// each of the wires: loop (pointers, one process), shm (a client's queues in memory that it shares with a
// node, a process of its own) and udp (RoCEv2 over loopback, both ends in this process).
// Beside them, in the same run: a plain memcpy of as many bytes, plain UDP sockets in several ways (what this
// kernel can do at all, wire_sockets.hpp), and a TCP socket.
#pragma once

#include "result.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gnstor::bench {

struct WireOptions {
    std::vector<std::string> wires{"loop", "shm", "udp"};
    std::vector<std::uint32_t> sizes{4096, 65536};
    std::uint32_t depth = 32;
    std::uint32_t repeats = 5;
    double seconds = 0.5;  ///< of each repeat of each case
    std::vector<std::string> addresses{"127.0.0.2", "127.0.0.3"};
    std::uint16_t port = 4791;
    std::uint32_t mtu = 0;  ///< of the udp wire; 0: the largest
    std::string json;
    std::vector<std::string> command;
};

void add_wire_options(CLI::App& app, WireOptions& options, std::string& lanes);

/// An Error: bytes were wrong at the other end, or the udp wire lost packets by its own overrun.
Result<bool> run_wire(const WireOptions& options);

namespace wire_bench {

/// What one case is.
struct Work {
    std::uint32_t bytes = 4096;
    std::uint32_t depth = 32;
    double seconds = 0.5;
};

/// CPU seconds of this process so far.
double process_cpu_seconds();

}  // namespace wire_bench
}  // namespace gnstor::bench
