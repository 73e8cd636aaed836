// wire.hpp: `bench wire`, what moving bytes between two NICs costs, by wire, size and direction. Host.
//
// One thread posts RDMA WRITE or READ entries of one queue pair, so many under way; two NICs execute them, on
// the wires of this process: loop (pointers), shm (queues in another mapping) and udp (RoCEv2 over loopback).
// Beside them, in the same run: a plain memcpy of as many bytes, datagrams of the same size over plain UDP
// sockets (what this kernel can do at all), and a TCP socket.
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

/// False: bytes were wrong at the other end.
Result<bool> run_wire(const WireOptions& options);

namespace wire_bench {

/// What one case is.
struct Work {
    std::uint32_t bytes = 4096;
    std::uint32_t depth = 32;
    double seconds = 0.5;
};

/// Datagrams of `bytes` of payload each over two UDP sockets on the two addresses, sender and receiver on a
/// thread each; operations are those that arrived.
Result<Repeat> run_udp_sockets(const Work& work, const std::string& from, const std::string& to,
                               std::uint32_t datagram_bytes);
/// The same bytes through a TCP connection.
Result<Repeat> run_tcp_socket(const Work& work, const std::string& from, const std::string& to);

/// CPU seconds of this process so far.
double process_cpu_seconds();

}  // namespace wire_bench
}  // namespace gnstor::bench
