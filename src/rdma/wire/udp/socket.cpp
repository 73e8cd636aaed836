// socket.cpp: opening with and without privileges; batches of system calls; handling of their errors.
#include "rdma/wire/udp/socket.hpp"

#include <gnstor/base/log.hpp>

#include <linux/errqueue.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace gnstor::rdma::udp {
namespace {

constexpr std::uint32_t kIpv4HeaderBytes = 20, kUdpHeaderBytes = 8;
constexpr std::uint32_t kBufferBytes = 4224;  // the longest packet with the headers of a raw socket
static_assert(kBufferBytes >= kPacketBytesMax + kIpv4HeaderBytes + kUdpHeaderBytes);
constexpr std::uint32_t kComplaintsMax = 8;
constexpr std::uint32_t kBufferBytesMax = 1u << 30;
constexpr std::uint32_t kStrangersMax = 1u << 16;  // more packets than a new socket can hold

/// A file descriptor that is closed unless it is released.
class Descriptor {
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    [[nodiscard]] int get() const { return fd_; }
    int release() { return std::exchange(fd_, -1); }

  private:
    int fd_;
};

bool set(int fd, int level, int option, int value) {
    return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

bool attach(int fd, std::span<sock_filter> program) {
    const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
}

std::uint32_t ask_for_buffers(int fd, std::uint32_t bytes_wanted) {
    const int wanted = static_cast<int>(std::min(bytes_wanted, kBufferBytesMax));
    // Beyond the system's limit only with CAP_NET_ADMIN; otherwise the kernel grants its limit.
    if (!set(fd, SOL_SOCKET, SO_RCVBUFFORCE, wanted)) set(fd, SOL_SOCKET, SO_RCVBUF, wanted);
    constexpr int kToSend = 1 << 20;
    if (!set(fd, SOL_SOCKET, SO_SNDBUFFORCE, kToSend)) set(fd, SOL_SOCKET, SO_SNDBUF, kToSend);
    set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
    int granted = 0;
    socklen_t bytes = sizeof granted;
    getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &bytes);
    return static_cast<std::uint32_t>(granted);
}

/// Discards datagrams of other programs, which a raw socket receives between opening and filtering.
/// Returns how many of them the kernel has dropped so far, to subtract them from our count of overruns.
std::uint32_t forget_strangers(int raw) {
    char none = 0;
    for (std::uint32_t i = 0; i < kStrangersMax && ::recv(raw, &none, 1, MSG_DONTWAIT | MSG_TRUNC) >= 0;
         ++i) {
    }
    std::array<std::uint32_t, SK_MEMINFO_VARS> memory{};
    socklen_t bytes = sizeof memory;
    return getsockopt(raw, SOL_SOCKET, SO_MEMINFO, memory.data(), &bytes) == 0 ? memory[SK_MEMINFO_DROPS] : 0;
}

/// A raw socket that receives the IPv4 datagrams for `port` at `address`, with their IP header. nullopt:
/// no privilege for one.
std::optional<int> open_raw(const SocketAddress& bound, std::uint16_t port) {
    Descriptor raw(::socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP));
    if (raw.get() < 0) return std::nullopt;
    // X = length of the IP header; accept packets whose destination port is ours.
    sock_filter ours[] = {
        BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
        BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0xFFFFFFFFu),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    SocketAddress any_port = bound;
    sockaddr_in in;
    std::memcpy(&in, &any_port.storage, sizeof in);
    in.sin_port = 0;
    if (!attach(raw.get(), ours) || ::bind(raw.get(), reinterpret_cast<const sockaddr*>(&in), sizeof in) != 0)
        return std::nullopt;
    return raw.release();
}

Error bind_error(const IpAddress& address, std::uint16_t port, int why) {
    if (why == EADDRINUSE) {
        return error(Errc::kBusy,
                     "cannot open the udp wire: port {} of {} is taken; a kernel RoCE device (rdma_rxe) or "
                     "another program holds it: see 'ss -ulnp' and 'rdma link', or use another address",
                     port, address.text());
    }
    if (why == EADDRNOTAVAIL) {
        return error(Errc::kNotFound,
                     "cannot open the udp wire: {} is not an address of this machine; see 'ip address'",
                     address.text());
    }
    return error(Errc::kIo, "cannot open the udp wire on port {} of {}: {}", port, address.text(),
                 std::strerror(why));
}

}  // namespace

struct PacketSocket::Slot {
    alignas(64) std::array<std::byte, kBufferBytes> bytes;
    iovec vector{};
    sockaddr_storage peer{};
    alignas(cmsghdr) std::array<std::byte, 64> control{};
    roce::NetworkHeaders headers;
};
struct PacketSocket::Batch {
    std::array<Slot, kBatch> slots;
    std::array<mmsghdr, kBatch> messages{};
};

Result<std::unique_ptr<PacketSocket>> PacketSocket::open(const IpAddress& address, std::uint16_t port,
                                                         std::uint32_t receive_buffer_bytes) {
    const bool v4 = address.v4();
    Descriptor udp(::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (udp.get() < 0)
        return error(Errc::kIo, "cannot open a UDP socket for {}: {}", address.text(), std::strerror(errno));
    // "Don't fragment" in every packet, and with it identification 0; ICMP errors can be read. PROBE, not
    // DO: forged ICMP must not lower the path MTU (for ten minutes); the RoCE MTU fits the interface.
    const bool ready = v4 ? set(udp.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE) &&
                                set(udp.get(), IPPROTO_IP, IP_RECVERR, 1)
                          : set(udp.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1) &&
                                set(udp.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE) &&
                                set(udp.get(), IPPROTO_IPV6, IPV6_RECVERR, 1);
    if (!ready)
        return error(Errc::kIo, "cannot set up a UDP socket for {}: {}", address.text(),
                     std::strerror(errno));
    const SocketAddress bound = socket_address(address, port);
    const auto* const to = reinterpret_cast<const sockaddr*>(&bound.storage);
    if (::bind(udp.get(), to, bound.bytes) != 0) return bind_error(address, port, errno);

    int raw = -1;
    if (v4) {
        sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
        Descriptor view(open_raw(bound, port).value_or(-1));
        if (view.get() < 0) {
            log_warn(
                "udp wire {}: cannot open a raw socket (CAP_NET_RAW), so the IP headers of arriving packets "
                "are not seen; packets whose IP identification is not 0 are dropped, because their ICRC "
                "cannot be checked. A peer that uses the RoCE driver of the Linux kernel (rdma_rxe) sends "
                "such packets: to accept them, run this program with that capability ('setcap "
                "cap_net_raw+ep')",
                address.text());
        } else if (!attach(udp.get(), nothing)) {
            return error(Errc::kIo, "cannot filter the UDP socket of {}: {}", address.text(),
                         std::strerror(errno));
        }
        raw = view.release();
    }
    return std::unique_ptr<PacketSocket>(
        new PacketSocket(address, port, udp.release(), raw, receive_buffer_bytes));
}

PacketSocket::PacketSocket(const IpAddress& address, std::uint16_t port, int udp, int raw,
                           std::uint32_t buffer_bytes)
    : address_(address),
      port_(port),
      udp_(udp),
      raw_(raw),
      in_(std::make_unique<Batch>()),
      out_(std::make_unique<Batch>()) {
    receive_buffer_bytes_ = ask_for_buffers(udp_, buffer_bytes);
    if (raw_ >= 0) {
        receive_buffer_bytes_ = ask_for_buffers(raw_, buffer_bytes);
        last_overruns_ = forget_strangers(raw_);
    }
    for (Batch* const batch : {in_.get(), out_.get()}) {
        for (std::uint32_t i = 0; i < kBatch; ++i) {
            Slot& slot = batch->slots[i];
            slot.vector = {slot.bytes.data(), slot.bytes.size()};
            msghdr& header = batch->messages[i].msg_hdr;
            header.msg_iov = &slot.vector;
            header.msg_iovlen = 1;
            header.msg_name = &slot.peer;
        }
    }
    log_info("udp wire {}: port {}, {} KiB for arriving packets, IP headers {}", address.text(), port,
             receive_buffer_bytes_ / 1024, raw_ >= 0 ? "seen through a raw socket" : "not seen");
}

PacketSocket::~PacketSocket() {
    if (raw_ >= 0) ::close(raw_);
    ::close(udp_);
}

std::uint32_t PacketSocket::receive() {
    for (std::uint32_t i = 0; i < kBatch; ++i) {
        msghdr& header = in_->messages[i].msg_hdr;
        if (header.msg_controllen == in_->slots[i].control.size()) break;  // not used by the previous call
        header.msg_namelen = sizeof in_->slots[i].peer;
        header.msg_control = in_->slots[i].control.data();
        header.msg_controllen = in_->slots[i].control.size();
    }
    const int got = ::recvmmsg(fd(), in_->messages.data(), kBatch, MSG_DONTWAIT, nullptr);
    // An error here concerns a packet that was sent; it is in the error queue too.
    if (got <= 0) return 0;
    counters_.received += static_cast<std::uint32_t>(got);
    for (int i = 0; i < got; ++i)
        counters_.received_bytes += in_->messages[static_cast<std::size_t>(i)].msg_len;
    note_overruns(in_->messages[static_cast<std::size_t>(got) - 1].msg_hdr);
    return static_cast<std::uint32_t>(got);
}

// The kernel reports the number of all packets that it dropped so far, modulo 2^32, once there are any.
void PacketSocket::note_overruns(const msghdr& header) noexcept {
    for (cmsghdr* one = CMSG_FIRSTHDR(&header); one != nullptr;
         one = CMSG_NXTHDR(const_cast<msghdr*>(&header), one)) {
        if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SO_RXQ_OVFL) continue;
        std::uint32_t dropped = 0;
        std::memcpy(&dropped, CMSG_DATA(one), sizeof dropped);
        // A packet that was queued before forget_strangers() read the number carries an older one.
        const std::uint32_t more = dropped - last_overruns_;
        if (static_cast<std::int32_t>(more) <= 0) continue;
        counters_.overruns += more;
        last_overruns_ = dropped;
    }
}

bool PacketSocket::arrived(std::uint32_t i, Arrived& out) {
    const Slot& slot = in_->slots[i];
    const mmsghdr& message = in_->messages[i];
    const std::span<const std::byte> bytes(slot.bytes.data(),
                                           std::min<std::size_t>(message.msg_len, kBufferBytes));
    out.source = from_socket_address(slot.peer);
    if ((message.msg_hdr.msg_flags & MSG_TRUNC) != 0) {
        ++counters_.malformed;
        return false;
    }
    if (raw_ >= 0) {
        std::uint32_t at = 0, payload = 0;
        const auto headers = roce::NetworkHeaders::parse(bytes, at, payload);
        if (!headers) {
            ++counters_.malformed;
            return false;
        }
        out.headers = *headers;
        out.payload = bytes.subspan(at, payload);
        return true;
    }
    // The port is at the same offset in both address families.
    std::uint16_t from = 0;
    std::memcpy(&from, reinterpret_cast<const std::byte*>(&slot.peer) + offsetof(sockaddr_in, sin_port), 2);
    const roce::NetworkHeaders::Ports ports{ntohs(from), port_};
    const auto length = static_cast<std::uint32_t>(bytes.size());
    if (address_.v4()) {
        roce::NetworkHeaders::Ipv4 ip;
        std::memcpy(ip.source.data(), out.source.gid.data() + 12, 4);
        std::memcpy(ip.destination.data(), address_.gid.data() + 12, 4);
        out.headers = roce::NetworkHeaders::make(ip, ports, length);
    } else {
        out.headers = roce::NetworkHeaders::make(
            roce::NetworkHeaders::Ipv6{.source = out.source.gid, .destination = address_.gid}, ports, length);
    }
    out.payload = bytes;
    return true;
}

std::span<std::byte> PacketSocket::room() noexcept {
    if (filled_ == kBatch) return {};
    return std::span<std::byte>(out_->slots[filled_].bytes).first(kPacketBytesMax);
}

const roce::NetworkHeaders& PacketSocket::put(std::uint32_t bytes, const IpAddress& peer) noexcept {
    Slot& slot = out_->slots[filled_];
    const SocketAddress to = socket_address(peer, port_);
    std::memcpy(&slot.peer, &to.storage, to.bytes);
    slot.vector.iov_len = bytes;
    out_->messages[filled_].msg_hdr.msg_namelen = to.bytes;
    const roce::NetworkHeaders::Ports ports{port_, port_};
    if (address_.v4()) {
        roce::NetworkHeaders::Ipv4 ip;
        std::memcpy(ip.source.data(), address_.gid.data() + 12, 4);
        std::memcpy(ip.destination.data(), peer.gid.data() + 12, 4);
        slot.headers = roce::NetworkHeaders::make(ip, ports, bytes);
    } else {
        slot.headers = roce::NetworkHeaders::make(
            roce::NetworkHeaders::Ipv6{.source = address_.gid, .destination = peer.gid}, ports, bytes);
    }
    roce::seal(slot.headers, std::span(slot.bytes).first(bytes));
    ++filled_;
    return slot.headers;
}

bool PacketSocket::flush() {
    while (sent_ < filled_) {
        const int done = ::sendmmsg(udp_, &out_->messages[sent_], filled_ - sent_, MSG_DONTWAIT);
        if (done > 0) {
            for (int i = 0; i < done; ++i) counters_.sent_bytes += out_->slots[sent_++].vector.iov_len;
            counters_.sent += static_cast<std::uint32_t>(done);
            retried_ = 0;
            continue;
        }
        const int why = errno;
        if (why == EINTR) continue;
        if (why == EAGAIN || why == EWOULDBLOCK || why == ENOBUFS) {
            ++counters_.full;
            return false;
        }
        // The error may concern an earlier packet (port unreachable), and is reported once: try again
        // once.
        if (retried_ == 0) {
            retried_ = why;
            continue;
        }
        on_send_error(why);
        ++sent_;
        retried_ = 0;
    }
    sent_ = filled_ = 0;
    return true;
}

// The packet is lost; the transport sends it again or gives up.
void PacketSocket::on_send_error(int why) {
    ++counters_.refused;
    if (complaints_ == kComplaintsMax) return;
    ++complaints_;
    const IpAddress peer = from_socket_address(out_->slots[sent_].peer);
    log_warn(
        "udp wire {}: a packet of {} bytes to {} was not sent: {}{}", address_.text(),
        out_->slots[sent_].vector.iov_len, peer.text(), std::strerror(why),
        why == EMSGSIZE
            ? "; the MTU of its interface is smaller than when the wire was opened: choose a smaller RoCE MTU"
        : why == EPERM ? "; a firewall of this machine forbids it"
                       : "");
}

// A router on the path reports a smaller MTU, or somebody forges that: packets stay as large, but log it.
// Counted separately, so that forged messages cannot use up the warnings about send errors.
void PacketSocket::note_path(const IpAddress& peer, std::uint32_t mtu) {
    if (claims_ == kComplaintsMax) return;
    ++claims_;
    log_warn(
        "udp wire {}: a router on the path to {} reports that packets of more than {} bytes do not pass; the "
        "size of sent packets is not changed. If connections to that address fail, choose a smaller RoCE MTU",
        address_.text(), peer.text(), mtu);
}

bool PacketSocket::unreachable(Unreachable& message) {
    alignas(cmsghdr) std::array<std::byte, 512> control;
    for (;;) {
        iovec vector{message.bytes.data(), message.bytes.size()};
        sockaddr_storage to{};
        msghdr header{};
        header.msg_name = &to;
        header.msg_namelen = sizeof to;
        header.msg_iov = &vector;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        const ssize_t quoted = ::recvmsg(udp_, &header, MSG_ERRQUEUE | MSG_DONTWAIT);
        if (quoted < 0) {
            // With a raw socket nothing reads this one's data, so an error that the kernel sets after its
            // message was taken would keep poll() from sleeping: clear it.
            int noted = 0;
            socklen_t bytes = sizeof noted;
            if (raw_ >= 0) (void)::getsockopt(udp_, SOL_SOCKET, SO_ERROR, &noted, &bytes);
            return false;
        }
        for (cmsghdr* one = CMSG_FIRSTHDR(&header); one != nullptr; one = CMSG_NXTHDR(&header, one)) {
            const bool v4 = one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_RECVERR;
            const bool v6 = one->cmsg_level == IPPROTO_IPV6 && one->cmsg_type == IPV6_RECVERR;
            if (!v4 && !v6) continue;
            sock_extended_err what{};
            std::memcpy(&what, CMSG_DATA(one), sizeof what);
            // flush() gets errors of this machine itself.
            if (what.ee_origin != SO_EE_ORIGIN_ICMP && what.ee_origin != SO_EE_ORIGIN_ICMP6) continue;
            if (what.ee_errno == EMSGSIZE) note_path(from_socket_address(to), what.ee_info);
            if (what.ee_errno != ECONNREFUSED && what.ee_errno != EHOSTUNREACH &&
                what.ee_errno != ENETUNREACH)
                continue;
            // The sender of the ICMP message follows (SO_EE_OFFENDER).
            sockaddr_storage sender{};
            std::memcpy(&sender, CMSG_DATA(one) + sizeof what,
                        v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
            message.peer = from_socket_address(to);
            message.port_closed =
                what.ee_errno == ECONNREFUSED && from_socket_address(sender) == message.peer;
            message.quoted = std::span(message.bytes).first(static_cast<std::size_t>(quoted));
            return true;
        }
    }
}

}  // namespace gnstor::rdma::udp
