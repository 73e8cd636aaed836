// udp_wire.hpp: RoCEv2 on UDP port 4791: the wire between machines, and to NICs that we did not write
// (Linux's rxe, hardware).
//
// One UdpWire is one IP address. It owns the socket and the connection manager of its NIC, and runs, as the
// NIC does, on one reactor. Packets are checked (ICRC, address of the peer) before the transport sees them
// (roce/). Control calls come from any host thread; everything else happens on the reactor's.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace gnstor::rdma {

inline constexpr std::uint16_t kRocePort = 4791;

struct UdpWireOptions {
    std::string address;  ///< IPv4 or IPv6 address of this machine to be reached at; no name, no port
    std::uint16_t port = kRocePort;  ///< to bind and to send to; other ports are for tests
    std::uint32_t mtu = 0;  ///< of RoCE: 1024, 2048 or 4096; 0: the largest that fits the interface's
    /// Asked of the kernel for packets that wait to be taken; granted up to net.core.rmem_max, and all of it
    /// with CAP_NET_ADMIN.
    std::uint32_t receive_buffer_bytes = 8u << 20;
};

struct UdpWireCounters {
    std::uint64_t packets_sent, packets_received, bytes_sent, bytes_received;
    std::uint64_t bad_icrc, malformed, unknown_queue_pair, wrong_peer;  ///< dropped
    std::uint64_t over_budget;       ///< dropped: messages of connection management of who sends too many
    std::uint64_t send_full;         ///< how often the socket took no more: the rest was paced
    std::uint64_t receive_overruns;  ///< packets that the kernel dropped because its buffer was full
    std::uint64_t retransmissions;
    std::uint64_t unreachable;  ///< ICMP messages: a packet did not reach its peer
    std::uint64_t peers_ended;  ///< whose machines said that their process is gone: all their links ended
};

class LoopWire;

class UdpWire {
  public:
    /// Binds the address. kInvalidArgument: no such form of address; kNotFound: not of this machine; kBusy:
    /// the port is taken there (a kernel RoCE device does that). `reactor` outlives the wire.
    static Result<std::unique_ptr<UdpWire>> open(const UdpWireOptions& options, Reactor& reactor);
    /// Its NIC must be gone.
    ~UdpWire();
    UdpWire(const UdpWire&) = delete;
    UdpWire& operator=(const UdpWire&) = delete;

    [[nodiscard]] const std::string& address() const;
    [[nodiscard]] std::uint32_t mtu() const;
    [[nodiscard]] UdpWireCounters counters() const;
    /// The wire inside: its NIC is on it too, under the same address, for processes of this machine that come
    /// over shared memory (shm_wire.hpp). No packets go over it.
    [[nodiscard]] LoopWire& inside();

    struct Impl;

  private:
    friend class SoftNic;
    explicit UdpWire(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::rdma
