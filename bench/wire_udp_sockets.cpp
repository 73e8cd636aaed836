// wire_udp_sockets.cpp: datagrams through a pair of UDP sockets, in batches of system calls, or by the
// kernel's segmentation offload; see wire_sockets.hpp.
#include "wire_sockets.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

namespace gnstor::bench::wire_bench {
namespace {

constexpr std::uint32_t kBatchMax = 32;
/// A system call's worth: more does not stay in the core's cache from one call to the next.
constexpr std::uint32_t kCallBytes = 128u << 10;

std::uint32_t batch_of(std::uint32_t message_bytes) {
    return std::clamp(kCallBytes / message_bytes, 1u, kBatchMax);
}

/// Room for messages of `bytes`, for sendmmsg and recvmmsg.
struct Batch {
    explicit Batch(std::uint32_t bytes)
        : count(batch_of(bytes)), memory(std::size_t{count} * bytes, std::byte{1}) {
        for (std::uint32_t i = 0; i < count; ++i) {
            pieces[i] = {memory.data() + std::size_t{i} * bytes, bytes};
            messages[i].msg_hdr.msg_iov = &pieces[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
    }
    const std::uint32_t count;
    std::vector<std::byte> memory;
    std::array<iovec, kBatchMax> pieces{};
    std::array<mmsghdr, kBatchMax> messages{};
};

Result<void> offload(const Socket& sender, const Socket& receiver, std::uint32_t datagram) {
    const int segment = static_cast<int>(datagram), on = 1;
    if (::setsockopt(sender.fd(), IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) == 0 &&
        ::setsockopt(receiver.fd(), IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0)
        return {};
    return error(Errc::kUnsupported, "this kernel has no segmentation offload for UDP sockets: {}",
                 std::strerror(errno));
}

}  // namespace

Result<void> udp_offload_works() {
    const Socket one(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (one.fd() < 0) return error(Errc::kIo, "cannot open a UDP socket: {}", std::strerror(errno));
    return offload(one, one, kLargePacket);
}

Result<Repeat> run_udp_sockets(const Work& work, const std::string& from, const std::string& to, UdpWay way) {
    GN_ASSIGN(SocketPlace source, parse_place(from));
    GN_ASSIGN(SocketPlace target, parse_place(to));
    GN_ASSIGN(const Socket sender, bound_socket(SOCK_DGRAM, source));
    GN_ASSIGN(const Socket receiver, bound_socket(SOCK_DGRAM, target));
    if (::connect(sender.fd(), target.generic(), target.bytes) != 0)
        return error(Errc::kIo, "cannot connect a UDP socket to {}: {}", to, std::strerror(errno));
    if (way.offload) GN_TRY(offload(sender, receiver, way.datagram));
    const std::uint32_t message =
        way.offload ? kDatagramMax / way.datagram * way.datagram : way.datagram;  // of one send
    const double cpu = process_cpu_seconds();
    const auto began = Clock::now(), end = end_of(work);
    std::atomic<std::uint64_t> arrived{0};
    std::thread reading([&] {
        // The kernel may put more together than was sent at once.
        Batch batch(way.offload ? 65'536 : message);
        while (Clock::now() < end) {
            const int n =
                ::recvmmsg(receiver.fd(), batch.messages.data(), batch.count, MSG_WAITFORONE, nullptr);
            for (int i = 0; i < n; ++i) arrived += batch.messages[static_cast<std::size_t>(i)].msg_len;
        }
    });
    Batch batch(message);
    std::uint64_t sent = 0;
    int refused = 0;
    while (Clock::now() < end) {
        const int n = ::sendmmsg(sender.fd(), batch.messages.data(), batch.count, 0);
        if (n > 0)
            sent += static_cast<std::uint64_t>(n) * message;
        else if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            refused = errno;
    }
    reading.join();
    if (sent == 0 && refused != 0)
        return error(Errc::kIo, "a UDP socket of {} cannot send {} bytes to {}: {}", from, message, to,
                     std::strerror(refused));
    Repeat r = repeat_from(began, arrived, work.bytes, cpu);
    r.more["lost_share"] =
        sent == 0 ? 0 : 1 - static_cast<double>(arrived.load()) / static_cast<double>(sent);
    return r;
}

}  // namespace gnstor::bench::wire_bench
