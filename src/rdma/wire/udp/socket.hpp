// socket.hpp: RoCEv2 packets in and out of the kernel: two sockets, batches, IP headers.
//
// Owns a bound UDP socket, through which everything is sent, and the buffers of one batch each way. The ICRC
// covers IPv4's identification, which a UDP socket does not show, and which others (Linux's rxe) count up. So
// packets are received through a raw socket beside it, which begins with the IP header, where the process may
// have one (CAP_NET_RAW); the UDP socket then keeps the port and is filtered to take nothing. Chosen over
// AF_PACKET, which sees the packets of one interface, of loopback twice, and before the firewall. Without the
// privilege, packets come through the UDP socket and are taken to have identification 0 and "don't fragment",
// as all have that were sent by an unconnected socket like ours; what was sent otherwise has a bad ICRC then.
// IPv6 has no identification.
// Unconnected for that reason: a connected socket counts its identifications up, unseen by its owner. For the
// same reason segmentation offload (UDP_SEGMENT) is not used: the kernel numbers the segments of one send
// where they are cut, which is after a receiver of the same machine has seen them, or in the NIC.
// Not blocking; one thread at a time.
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

inline constexpr std::uint32_t kBatch = 64;  ///< packets a system call
/// Longest UDP payload that is a packet: headers, payload, ICRC.
inline constexpr std::uint32_t kPacketBytesMax = roce::kHeaderBytesMax + roce::kMtuMax + roce::kIcrcBytes;
/// What a packet takes of a receive buffer by the kernel's own measure, at most: its memory is a power of
/// two.
constexpr std::uint32_t packet_weight(std::uint32_t mtu) noexcept {
    return 2 * mtu + 512;
}

/// A datagram for the bound port.
struct Arrived {
    IpAddress source;
    roce::NetworkHeaders headers;
    std::span<const std::byte> payload;  ///< until the next receive()
};

/// An ICMP message: a packet of ours did not reach `peer`.
struct Unreachable {
    IpAddress peer;
    /// No process has the port, by a message from the peer's own address.
    bool port_closed = false;
    /// The first bytes of the packet's UDP payload, as many as the message quotes.
    std::span<const std::byte> quoted;
    std::array<std::byte, 64> bytes;
};

struct SocketCounters {
    std::uint64_t sent = 0, sent_bytes = 0, received = 0, received_bytes = 0;
    std::uint64_t malformed = 0;  ///< options, fragments, too long
    std::uint64_t full = 0;       ///< the kernel took no more
    std::uint64_t overruns = 0;   ///< the kernel's buffer for us was full
    std::uint64_t refused = 0;    ///< packets that the kernel would not send (no route, firewall, too long)
};

class PacketSocket {
  public:
    static Result<std::unique_ptr<PacketSocket>> open(const IpAddress& address, std::uint16_t port,
                                                      std::uint32_t receive_buffer_bytes);
    ~PacketSocket();
    PacketSocket(const PacketSocket&) = delete;
    PacketSocket& operator=(const PacketSocket&) = delete;

    /// Readable when packets are there.
    [[nodiscard]] int fd() const noexcept { return raw_ >= 0 ? raw_ : udp_; }
    [[nodiscard]] bool sees_ip_headers() const noexcept { return raw_ >= 0; }
    /// As granted, by the kernel's measure.
    [[nodiscard]] std::uint32_t receive_buffer_bytes() const noexcept { return receive_buffer_bytes_; }

    /// Takes up to kBatch datagrams from the kernel; how many.
    std::uint32_t receive();
    /// The i-th of them; false: not one that may be looked at (counted).
    bool arrived(std::uint32_t i, Arrived& out);

    /// Room for one packet; empty while kBatch packets wait: flush().
    [[nodiscard]] std::span<std::byte> room() noexcept;
    /// Queues what was written to room(): `bytes` with the ICRC's four, which it fills in.
    const roce::NetworkHeaders& put(std::uint32_t bytes, const IpAddress& peer) noexcept;
    /// Forgets the packet that was put last.
    void take_back() noexcept { --filled_; }
    /// Hands all that waits to the kernel; false: it took no more for now.
    bool flush();
    /// Readable when ICMP messages about packets of this socket came, also where fd() is not.
    [[nodiscard]] int error_fd() const noexcept { return udp_; }
    /// Takes the next ICMP message that says that a packet did not reach its destination; false: none is
    /// there.
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
    std::uint32_t sent_ = 0, filled_ = 0;  ///< of out_: [sent_, filled_) wait
    int retried_ = 0;                      ///< the error that the packet at sent_ met before; 0: none
    std::uint32_t last_overruns_ = 0;
    std::uint32_t complaints_ = 0;  ///< warnings about packets that were not sent
    std::uint32_t claims_ = 0;      ///< and about what was said of the path
    SocketCounters counters_;
};

}  // namespace gnstor::rdma::udp
