// transport.hpp: what a reliable connection is told and what it tells: requests, completions, memory,
// options.
//
// IBA volume 1, 9.7 (reliable service). Requester and Responder are pure: time comes as an argument
// (nanoseconds of any clock that does not go back), packets go in by call and are *pulled* out one at a time,
// so nothing queues inside and the driver paces. Memory of each is what its options say, allocated at
// construction. One thread at a time.
#pragma once

#include <gnstor/rdma/mlx5.hpp>

#include "rdma/roce/packet.hpp"

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
    std::uint64_t id = 0;  ///< comes back in the completion
    std::array<std::span<std::byte>, kPiecesMax> pieces{};
    std::uint32_t count = 0;
    std::uint64_t address = 0;  ///< kWrite, kRead: of the peer
    std::uint32_t rkey = 0;
    std::uint32_t invalidate_rkey = 0;  ///< kSendInvalidate
};

/// The end of a request; one for each, in order. kSyndromeNone: the peer has it (or, kRead, the data is
/// here).
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

/// A receive that is done: by a message, or by the error that ended the connection while it was being filled.
struct Received {
    std::uint64_t id = 0;
    mlx5::Syndrome status = mlx5::kSyndromeNone;
    std::uint32_t bytes = 0;
    bool solicited = false;
    bool invalidated = false;
    std::uint32_t invalidated_rkey = 0;
};

enum class Right : std::uint8_t { kRemoteRead, kRemoteWrite };

/// What a responder sees of its node: memory under keys, and the receive queue. Called during on_request()
/// and next_packet(), by their thread.
class MemoryPort {
  public:
    virtual ~MemoryPort() = default;
    /// `bytes` (at least 1) of memory at `address` under `rkey` with this right; null where that is refused
    /// in whole or in part. Asked for the whole message when it begins and again for each packet, so a key
    /// that is taken back counts at once. The pointer is used before the next call into the responder.
    virtual std::byte* reach(std::uint32_t rkey, std::uint64_t address, std::uint32_t bytes, Right right) = 0;
    /// Invalidates a key for SEND_WITH_INVALIDATE; false where there is none such.
    virtual bool invalidate(std::uint32_t rkey) = 0;
    /// Takes the oldest posted receive; false where none is posted.
    virtual bool take_receive(ReceiveBuffer& receive) = 0;
    virtual void received(const Received& received) = 0;
};

/// By the specification (9.7.5.2.8) this number of RNR retries is without limit. Here it is limited by time:
/// so long a peer may have no receive posted, without any progress, however often it says so.
inline constexpr std::uint32_t kRnrByTime = 7;
inline constexpr TimeNs kRnrPatienceNs = 5'000'000'000;
/// The least pause from the eighth RNR NAK in a row on: what is sent in that time is bounded, too.
inline constexpr TimeNs kRnrPauseNs = 500'000;

struct RequesterOptions {
    std::uint32_t peer_queue_pair = 0;
    std::uint32_t mtu = 1024;
    std::uint32_t start_psn = 0;         ///< what the peer expects first
    std::uint32_t depth = 64;            ///< send entries
    std::uint32_t reads_max = 4;         ///< READs under way at once: the peer's responder resources
    std::uint32_t window_packets = 256;  ///< unacknowledged packets, and answers to READs, on their way
    std::uint32_t retries = 7;           ///< timeouts in a row, without progress, that are survived
    std::uint32_t rnr_retries = 7;       ///< the same for RNR NAKs; kRnrByTime: for kRnrPatienceNs
    TimeNs ack_timeout_ns = 4'000'000;   ///< doubled at each timeout in a row, 32 times at most
};

class Pacer;  // pacer.hpp

struct ResponderOptions {
    std::uint32_t peer_queue_pair = 0;
    std::uint32_t mtu = 1024;
    std::uint32_t start_psn = 0;   ///< what the peer sends first
    std::uint32_t reads_max = 4;   ///< responder resources: READs under way, and remembered for repetition
    std::uint32_t ack_every = 16;  ///< packets after which an acknowledgement goes out at once
    TimeNs ack_delay_ns = 20'000;  ///< how long a requested acknowledgement may wait for company
    std::uint8_t rnr_timer = 12;   ///< code of 0.64 ms
    Pacer* pacer = nullptr;  ///< of the answers to READs, shared by connections; outlives them. Null: none
};

}  // namespace gnstor::rdma::roce
