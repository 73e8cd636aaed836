// udp_wire.hpp: RoCEv2 on UDP port 4791: the wire between machines, and to NICs of others (Linux's rxe,
// hardware).
//
// One UdpWire is one IP address. It owns the socket and the connection manager of its NIC, and runs on
// one reactor, as the NIC does. Packets are checked (ICRC, address of the peer) before the transport sees
// them (roce/). Control calls: any host thread; everything else runs on the reactor's thread.
//
// Who can do what. Packets are neither encrypted nor authenticated: the ICRC is a checksum.
//   * On the path (sees packets, sends any): everything that a peer can, to both ends. Against that only a
//     network helps to which nobody else has access, or MACsec or IPsec below.
//   * Off the path (sees nothing, sends under any address): must guess, all from the kernel's generator,
//     for each packet                                                           chance a packet
//       to execute a request, or to end a connection by a bad one:
//         queue pair number (24 bits) and PSN (24)                              N * 2^-48
//         of WRITE and READ also the key (32) and an address in its region      N * 2^-80 and less
//       to end a connection by a NAK, or fake an acknowledgement:
//         queue pair number, and a PSN in flight                                N * F * 2^-48
//       to cause one needless NAK and retransmission:
//         queue pair number, and a PSN ahead                                    N * 2^-25
//       to end one by DREQ: our id (32), the peer's (32 of ours), our queue pair number    N * 2^-88
//       to take over or end a connect(): our id, the transaction (64)           2^-96
//       to complete a connection that it began in another's name: our id; 32 tries a second are heard
//     with N queue pairs connected to the forged address, and F packets of one in flight (64 KiB at most:
//     16 of 4 KiB). N = 32, at 1 Gbit/s: a forged SEND of a capsule is executed once in 118 days
//     (0.86 million a second), a NAK with F = 64 ends a connection once in 26 hours; of an idle one, never.
//     Ten times the rate is a tenth of the time: it is then bandwidth that is noticed first
//     (UdpWireCounters::unknown_queue_pair counts the failures).
//   * A recorded packet of an earlier connection meets a new queue pair number at a target, and a new first
//     PSN at both ends; a recorded one of the same connection is a duplicate, which is not executed (a READ
//     is answered again, to the peer).
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>

#include "rdma/wire/loop/soft_nic.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace gnstor::rdma {

inline constexpr std::uint16_t kRocePort = 4791;

struct UdpWireOptions {
    std::string address;             ///< this machine's IPv4 or IPv6 address for peers; no name, no port
    std::uint16_t port = kRocePort;  ///< to bind and to send to; other ports are for tests
    std::uint32_t mtu = 0;  ///< of RoCE: 1024, 2048 or 4096; 0: the largest that fits the interface's
    /// Requested from the kernel for arriving packets; granted up to net.core.rmem_max, or in full with
    /// CAP_NET_ADMIN.
    std::uint32_t receive_buffer_bytes = 8u << 20;
    /// First acknowledgement timeout of connections that this wire starts, as the exponent n of
    /// 4.096 us * 2^n, 12 (17 ms; a smaller value counts as 12) to 14. For a peer that may not run for
    /// seconds, such as an emulated machine, 14: its silence ends a connection after 9 s instead of 2 s.
    std::uint8_t ack_timeout = 12;
};

struct UdpWireCounters {
    std::uint64_t packets_sent, packets_received, bytes_sent, bytes_received;
    std::uint64_t bad_icrc, malformed, unknown_queue_pair, wrong_peer;  ///< dropped
    std::uint64_t over_budget;       ///< dropped: connection-management messages of peers that send too many
    std::uint64_t send_full;         ///< how often the socket's buffer was full; the rest was sent later
    std::uint64_t receive_overruns;  ///< packets that the kernel dropped because its buffer was full
    std::uint64_t retransmissions;
    std::uint64_t unreachable;  ///< ICMP messages: a packet did not reach its peer
    std::uint64_t peers_ended;  ///< the peer's machine reported its process gone: all links to it ended
};

class UdpWire {
  public:
    /// Binds the address. kInvalidArgument: malformed address; kNotFound: not an address of this machine;
    /// kBusy: the port is taken there (for example by a kernel RoCE device). `reactor` must outlive the
    /// wire.
    static Result<std::unique_ptr<UdpWire>> open(const UdpWireOptions& options, Reactor& reactor);
    /// Its NIC must have been destroyed before.
    ~UdpWire();
    UdpWire(const UdpWire&) = delete;
    UdpWire& operator=(const UdpWire&) = delete;

    [[nodiscard]] const std::string& address() const;
    [[nodiscard]] std::uint32_t mtu() const;
    [[nodiscard]] UdpWireCounters counters() const;
    /// A loop wire on which the same NIC is reachable under the same address, for processes of this
    /// machine that connect over shared memory (shm_server.hpp). It sends no packets.
    [[nodiscard]] LoopWire& inside();

    struct Impl;

  private:
    friend Result<std::unique_ptr<SoftNic>> open_udp_nic(UdpWire& wire, const NicOptions& options);
    explicit UdpWire(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// The NIC of a wire: its address is the wire's, peers are IP addresses ("10.77.0.1", "fd00::1"), services
/// decimal port numbers ("4420") of the RDMA IP port space. One NIC a wire (kExists); it runs on the wire's
/// reactor, one poller. `options.link` must be none.
Result<std::unique_ptr<SoftNic>> open_udp_nic(UdpWire& wire, const NicOptions& options);

}  // namespace gnstor::rdma
