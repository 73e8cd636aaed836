// transport.hpp: inputs and outputs of a reliable connection: requests, completions, memory, options.
//
// IBA volume 1, 9.7 (reliable service). Requester and Responder are pure: time is an argument
// (nanoseconds of any monotonic clock), packets go in by call and are *pulled* out one at a time, so no
// queue is inside and the driver sets the pace. Each allocates at construction what its options say, and
// no more. One thread at a time.
#pragma once

#include <gnstor/rdma/mlx5.hpp>

#include "rdma/roce/packet.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace gnstor::rdma::roce {

using TimeNs = std::uint64_t;
inline constexpr TimeNs kSecondNs = 1'000'000'000;
inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
inline constexpr std::uint64_t kMessageBytesMax = std::uint64_t{1} << 31;  ///< 9.7.1: the longest message

enum class RequestKind : std::uint8_t { kSend, kSendInvalidate, kWrite, kRead };

/// One send entry. The memory is read (or, by kRead, written) until its completion was taken.
struct Request {
    RequestKind kind = RequestKind::kSend;
    bool solicited = false;
    std::uint64_t id = 0;  ///< returned in the completion
    std::array<std::span<std::byte>, kPiecesMax> pieces{};
    std::uint32_t count = 0;
    std::uint64_t address = 0;  ///< kWrite, kRead: of the peer
    std::uint32_t rkey = 0;
    std::uint32_t invalidate_rkey = 0;  ///< kSendInvalidate
};

/// The end of a request; one for each, in order. kSyndromeNone: the peer has received it; kRead: the data
/// is here.
struct Completion {
    std::uint64_t id = 0;
    RequestKind kind = RequestKind::kSend;
    mlx5::Syndrome status = mlx5::kSyndromeNone;
    std::uint32_t bytes = 0;
};

/// A posted receive.
struct ReceiveBuffer {
    std::uint64_t id = 0;
    std::array<std::span<std::byte>, kPiecesMax> pieces{};
    std::uint32_t count = 0;
};

/// A completed receive: by a message, or by the error that ended the connection while a message was
/// arriving.
struct Received {
    std::uint64_t id = 0;
    mlx5::Syndrome status = mlx5::kSyndromeNone;
    std::uint32_t bytes = 0;
    bool solicited = false;
    bool invalidated = false;
    std::uint32_t invalidated_rkey = 0;
};

enum class Right : std::uint8_t { kRemoteRead, kRemoteWrite };

/// A responder's access to its node: memory under keys, and the receive queue. Called from on_request()
/// and next_packet(), on their thread.
class MemoryPort {
  public:
    virtual ~MemoryPort() = default;
    /// `bytes` (at least 1) of memory at `address` under `rkey` with this right; null if any of them is
    /// refused. Called for the whole message when it begins and again for each packet, so that a revoked
    /// key takes effect at once. The pointer is used before the next call into the responder only.
    virtual std::byte* reach(std::uint32_t rkey, std::uint64_t address, std::uint32_t bytes, Right right) = 0;
    /// Invalidates a key for SEND_WITH_INVALIDATE; false: no such key.
    virtual bool invalidate(std::uint32_t rkey) = 0;
    /// Takes the oldest posted receive; false: none is posted.
    virtual bool take_receive(ReceiveBuffer& receive) = 0;
    virtual void received(const Received& received) = 0;
};

/// In the specification (9.7.5.2.8) this number of RNR retries means unlimited. Here time limits them:
/// how long a peer may have no receive posted, without progress, however many RNR NAKs it sends.
inline constexpr std::uint32_t kRnrByTime = 7;
inline constexpr TimeNs kRnrPatienceNs = 5'000'000'000;
/// Shortest pause from the eighth consecutive RNR NAK on, which bounds what is sent meanwhile.
inline constexpr TimeNs kRnrPauseNs = 500'000;

/// How long a requester waits for an acknowledgement after so many consecutive timeouts. With 7 retries and the
/// 16.8 ms that our wires use it gives up after 4.3 s: a node whose engine thread waits for its disk (a page fault
/// of a mapped store during writeback) is silent for seconds, and is not dead.
[[nodiscard]] constexpr TimeNs back_off_ns(TimeNs ack_timeout_ns, std::uint32_t timeouts) noexcept {
    constexpr TimeNs kMostNs = 2'200'000'000;
    const TimeNs most = std::max(ack_timeout_ns << 5, kMostNs);
    return std::min(ack_timeout_ns << std::min(timeouts, 7u), most);
}

struct RequesterOptions {
    std::uint32_t peer_queue_pair = 0;
    std::uint32_t mtu = 1024;
    std::uint32_t start_psn = 0;         ///< first PSN that the peer expects
    std::uint32_t depth = 64;            ///< send entries
    std::uint32_t reads_max = 4;         ///< READs outstanding at once: the peer's responder resources
    std::uint32_t window_packets = 256;  ///< packets in flight: unacknowledged, or READ responses
    std::uint32_t retries = 7;           ///< consecutive timeouts without progress before it fails
    std::uint32_t rnr_retries = 7;       ///< the same for RNR NAKs; kRnrByTime: limited by kRnrPatienceNs
    TimeNs ack_timeout_ns = 4'000'000;   ///< doubled at each consecutive timeout: back_off_ns()
};

class Pacer;  // pacer.hpp

struct ResponderOptions {
    std::uint32_t peer_queue_pair = 0;
    std::uint32_t mtu = 1024;
    std::uint32_t start_psn = 0;   ///< first PSN that the peer sends
    std::uint32_t reads_max = 4;   ///< responder resources: READs in progress, or kept for repetition
    std::uint32_t ack_every = 16;  ///< packets after which an acknowledgement is sent at once
    TimeNs ack_delay_ns = 20'000;  ///< delay of a requested acknowledgement, to coalesce several
    std::uint8_t rnr_timer = 12;   ///< code of 0.64 ms
    Pacer* pacer = nullptr;        ///< paces READ responses; shared by connections, outlives them. Null: none
};

}  // namespace gnstor::rdma::roce
