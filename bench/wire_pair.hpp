// wire_pair.hpp: two NICs on one wire, a queue pair on each, connected, with registered memory: what `bench
// wire` moves bytes through. One host thread posts and waits.
//
// On loop and udp both ends are this process's, an engine thread each. On shm the other end is a node's, a
// process of its own (wire_node.hpp), and this process is its client.
#pragma once

#include "wire_end.hpp"
#include "wire_node.hpp"

#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "rdma/wire/shm/shm_nic.hpp"
#include "rdma/wire/udp/udp_wire.hpp"

#include <gnstor/base/reactor.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::bench::wire_bench {

/// What both ends of the udp wire did so far.
struct PacketCounts {
    std::uint64_t sent = 0, retransmissions = 0, overruns = 0, send_full = 0;
};

class Pair {
  public:
    struct Plan {
        std::string wire;                    ///< loop, shm or udp
        std::vector<std::string> addresses;  ///< of the two ends, and the port, and the MTU: udp's
        std::uint16_t port = 0;
        std::uint32_t mtu = 0;
        EndShape shape;
    };
    static Result<std::unique_ptr<Pair>> open(const Plan& plan);
    ~Pair();
    [[nodiscard]] End& here() const { return *ends_[0]; }
    /// A place of the other end's memory.
    [[nodiscard]] rdma::mlx5::RemoteAddressSegment there(std::size_t at) const;
    /// As fill() and count_good() of wire_end.hpp, where the memory is.
    Result<void> fill_there(std::uint64_t seed);
    Result<std::uint64_t> count_good_there(std::uint64_t seed, std::uint32_t place_bytes);

    /// CPU time of the NICs' engine threads; on shm, of the whole node's process.
    [[nodiscard]] Result<double> engine_seconds();
    /// CPU time of all else: who posts and waits, this process's. All of this process on shm.
    [[nodiscard]] double lane_seconds() const;
    [[nodiscard]] bool node_is_a_process() const { return node_ != nullptr; }
    /// False: the node's process is gone, and nothing that was asked of it will be answered.
    [[nodiscard]] bool other_end_lives() const { return node_ == nullptr || node_->alive(); }
    [[nodiscard]] bool has_packets() const { return udp_[0] != nullptr; }
    [[nodiscard]] PacketCounts packets() const;

  private:
    Pair() = default;
    Result<void> open_here(const Plan& plan);
    [[nodiscard]] bool other_end_ready() const;
    Result<void> become_client(const Plan& plan);
    [[nodiscard]] double reactor_seconds() const;

    // Destroyed from the last to the first.
    std::unique_ptr<NodeProcess> node_;
    std::unique_ptr<Reactor> reactors_[2];
    rdma::LoopWire loop_;
    std::unique_ptr<rdma::UdpWire> udp_[2];
    std::unique_ptr<rdma::Nic> nics_[2];
    std::unique_ptr<End> ends_[2];
};

}  // namespace gnstor::bench::wire_bench
