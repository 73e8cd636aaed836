// socket.hpp: sends and receives RoCEv2 packets through the kernel: two sockets, batches, IP headers.
//
// Owns a bound UDP socket, which sends everything, and the buffers of one batch each way. The ICRC covers
// IPv4's identification field, which a UDP socket does not show and which other senders (Linux's rxe)
// increment. So where the process may have a raw socket (CAP_NET_RAW), packets are received through one,
// with their IP header; the UDP socket then only reserves the port, and a filter drops all that it would
// receive. AF_PACKET would be worse: it sees one interface only, loopback packets twice, and packets that
// the firewall drops. Without the privilege, packets come through the UDP socket and are assumed to have
// identification 0 and "don't fragment", as all packets sent by an unconnected socket like ours have;
// other packets then fail the ICRC check. IPv6 has no identification.
// The UDP socket is unconnected for that reason: the kernel increments the identification of a connected
// one, invisibly to its owner. Segmentation offload (UDP_SEGMENT) is not used for the same reason: the
// kernel numbers the segments of one send where it cuts them, which is after a receiver on the same
// machine has seen them, or in the NIC.
// Nonblocking; one thread at a time.
#pragma once

#include <gnstor/base/result.hpp>

#include "rdma/roce/icrc.hpp"
#include "rdma/wire/udp/address.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace gnstor::rdma::udp {

inline constexpr std::uint32_t kBatch = 64;  ///< packets per system call
/// Longest UDP payload of a packet: headers, payload, ICRC.
inline constexpr std::uint32_t kPacketBytesMax = roce::kHeaderBytesMax + roce::kMtuMax + roce::kIcrcBytes;
/// Bytes that a packet takes in a receive buffer as the kernel counts, at most: it allocates powers of
/// two.
constexpr std::uint32_t packet_weight(std::uint32_t mtu) noexcept {
    return 2 * mtu + 512;
}

/// A datagram for the bound port.
struct Arrived {
    IpAddress source;
    roce::NetworkHeaders headers;
    std::span<const std::byte> payload;  ///< valid until the next receive()
};

/// An ICMP message: a packet of ours did not reach `peer`.
struct Unreachable {
    IpAddress peer;
    /// The peer's own address reports that no process has the port open.
    bool port_closed = false;
    /// The first bytes of that packet's UDP payload, as many as the message quotes.
    std::span<const std::byte> quoted;
    std::array<std::byte, 64> bytes;
};

struct SocketCounters {
    std::uint64_t sent = 0, sent_bytes = 0, received = 0, received_bytes = 0;
    std::uint64_t malformed = 0;  ///< options, fragments, too long
    std::uint64_t full = 0;       ///< how often the kernel's send buffer was full
    std::uint64_t overruns = 0;   ///< packets that the kernel dropped: receive buffer full
    std::uint64_t refused = 0;    ///< packets that the kernel would not send (no route, firewall, too long)
};

class PacketSocket {
  public:
    static Result<std::unique_ptr<PacketSocket>> open(const IpAddress& address, std::uint16_t port,
                                                      std::uint32_t receive_buffer_bytes);
    ~PacketSocket();
    PacketSocket(const PacketSocket&) = delete;
    PacketSocket& operator=(const PacketSocket&) = delete;

    /// Readable when packets have arrived.
    [[nodiscard]] int fd() const noexcept { return raw_ >= 0 ? raw_ : udp_; }
    [[nodiscard]] bool sees_ip_headers() const noexcept { return raw_ >= 0; }
    /// As granted, in the kernel's count.
    [[nodiscard]] std::uint32_t receive_buffer_bytes() const noexcept { return receive_buffer_bytes_; }

    /// Takes up to kBatch datagrams from the kernel; returns how many.
    std::uint32_t receive();
    /// The i-th of them; false: malformed (counted).
    bool arrived(std::uint32_t i, Arrived& out);

    /// Room for one packet; empty if kBatch packets are queued: call flush().
    [[nodiscard]] std::span<std::byte> room() noexcept;
    /// Queues the packet that was written to room(): `bytes` includes the ICRC's four, which this fills
    /// in.
    const roce::NetworkHeaders& put(std::uint32_t bytes, const IpAddress& peer) noexcept;
    /// Removes the packet that was queued last.
    void take_back() noexcept { --filled_; }
    /// Hands all queued packets to the kernel; false: its buffer is full for now.
    bool flush();
    /// Readable when ICMP messages about packets of this socket came, even if fd() is not.
    [[nodiscard]] int error_fd() const noexcept { return udp_; }
    /// Takes the next ICMP message that reports an undelivered packet; false: there is none.
    bool unreachable(Unreachable& message);

    [[nodiscard]] const SocketCounters& counters() const noexcept { return counters_; }

  private:
    PacketSocket(const IpAddress& address, std::uint16_t port, int udp, int raw, std::uint32_t buffer_bytes);
    void note_overruns(const msghdr& header) noexcept;
    void on_send_error(int why);
    void note_path(const IpAddress& peer, std::uint32_t mtu);

    struct Slot;
    struct Batch;

    const IpAddress address_;
    const std::uint16_t port_;
    const int udp_, raw_;
    std::uint32_t receive_buffer_bytes_ = 0;
    std::unique_ptr<Batch> in_, out_;
    std::uint32_t sent_ = 0, filled_ = 0;  ///< in out_: [sent_, filled_) are queued
    int retried_ = 0;                      ///< error of the last attempt to send packet sent_; 0: none
    std::uint32_t last_overruns_ = 0;
    std::uint32_t complaints_ = 0;  ///< warnings logged about packets that were not sent
    std::uint32_t claims_ = 0;      ///< warnings logged about ICMP messages on the path MTU
    SocketCounters counters_;
};

}  // namespace gnstor::rdma::udp
