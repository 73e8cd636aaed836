// poller.hpp: lanes reap receive completions and post the receives again. The device side of two-sided verbs;
// CPU and GPU.
//
// One receive completion queue serves the receive queues of many queue pairs. One group polls at a time: it
// takes a lock word with a try, never a wait. A trip looks at up to 32 completions (one a lane; a lone lane
// looks at 8), takes the valid prefix, gives each to a visitor, posts the receives again with one
// doorbell-record store a queue pair, and moves the consumer index on. The visitor files what arrived and
// returns; callbacks of users run after the poll.
//
// Receive entries are written once (post_all_receives): buffer i belongs to entry i for ever, so posting a
// receive again is no more than counting the doorbell record on.
//
// How many receives: a visitor may make its arrival known at once, and whoever waited for it may send again
// before this trip has posted the receive again. So a receive queue needs as many entries as messages can be
// out, plus one trip (kLargestTrip, or kLoneLaneLooksAhead where only lone lanes poll); with fewer, the peer
// finds no receive (RNR).
//
// Invariants
//   * consumer, posted and the poison are touched by the holder of the lock alone;
//   * a completion is valid when its opcode is not 15 and its owner bit equals the lap's parity (consumer /
//   entries) & 1;
//     completions become valid in order, so the valid ones are a prefix;
//   * the completion queue has at least as many entries as its receive queues together, and completions are
//   given back before their receives are posted again: so it cannot overrun, also where the NIC flushes what
//   is posted to a queue pair in error at once;
//   * a consumed completion has poison in the words that are read ahead of their validity (below);
//   * a receive buffer that is posted has poison in its fourth word, so that a message that ends before it is
//   not taken for the one before.
//
// Reading ahead: op_own and the words that matter at once (DW3 of a 16-byte response, queue pair number) are
// loaded in parallel, for one trip instead of two; the number with op_own (completion_words.hpp).
// What was loaded ahead is used only if it is not kPoison; otherwise the word is loaded again after the
// acquire of op_own. The NIC writes each word once a lap, so a word that is no poison is this lap's.
#pragma once

#include <gnstor/base/target.hpp>
#include <gnstor/rdma/completion_words.hpp>
#include <gnstor/rdma/mlx5.hpp>
#include <gnstor/simt/atomic.hpp>
#include <gnstor/simt/group.hpp>

#include <cstdint>
#include <type_traits>

namespace gnstor::rdma {

inline constexpr std::uint32_t kPoison = 0xFFFFFFFFu;
inline constexpr std::uint32_t kLoneLaneLooksAhead = 8;
inline constexpr std::uint32_t kLargestTrip = simt::kWarpLanes;

/// Shared by the lanes that poll. All zero at the start.
struct alignas(64) CompletionQueueState {
    std::uint32_t lock;  ///< 1: some group is polling
    std::uint32_t reserved;
    std::uint64_t consumer;  ///< completions consumed
};

/// A receive completion queue as lanes see it.
struct CompletionQueueRef {
    mlx5::Cqe64* ring;               ///< NIC-visible
    std::uint32_t* consumer_record;  ///< NIC-visible
    CompletionQueueState* state;     ///< lanes' memory
    std::uint32_t entries_log2;

    GN_HD
    std::uint32_t entries() const { return 1u << entries_log2; }
};
static_assert(std::is_trivially_copyable_v<CompletionQueueRef>, "kernels take it by value");

/// Posted receives of one queue pair. All zero at the start and after a reset; then post_all_receives.
struct alignas(16) ReceiveQueueState {
    std::uint64_t posted;  ///< receives ever posted
};

/// A receive queue as lanes see it.
struct ReceiveQueueRef {
    mlx5::DataSegment* ring;  ///< NIC-visible
    std::uint32_t*
        doorbell_record;  ///< NIC-visible; the queue pair's two words: [mlx5::kReceiveRecord] is used here
    std::byte* buffers;   ///< NIC-visible; entry i's buffer is buffers + i * buffer_bytes
    ReceiveQueueState* state;    ///< lanes' memory
    std::uint32_t buffer_bytes;  ///< multiple of 16
    std::uint32_t lkey;          ///< of the buffers
    std::uint32_t entries_log2;  ///< at most 15
    std::uint32_t qpn;

    GN_HD
    std::uint32_t entries() const { return 1u << entries_log2; }
    GN_HD
    std::byte* buffer(std::uint32_t index) const {
        return buffers + static_cast<std::uint64_t>(index & (entries() - 1)) * buffer_bytes;
    }
};
static_assert(std::is_trivially_copyable_v<ReceiveQueueRef>, "kernels take it by value");

/// The receive queues that share a completion queue. `queues` lies in the lanes' memory.
struct ReceiveSet {
    const ReceiveQueueRef* queues;
    std::uint32_t count;  ///< at most kMost
    static constexpr std::uint32_t kMost = 64;
    static constexpr std::uint32_t kUnknown = 0xFFFFFFFFu;
    /// Which of `queues` has this queue pair number. Fast where numbers are consecutive, as the software NIC
    /// gives them.
    GN_HD
    std::uint32_t find(std::uint32_t qpn) const {
        const std::uint32_t guess = count != 0 ? qpn - queues[0].qpn : 0;
        if (guess < count && queues[guess].qpn == qpn) return guess;
        for (std::uint32_t i = 0; i < count; ++i)
            if (queues[i].qpn == qpn) return i;
        return kUnknown;
    }
};

/// One completion, given to the visitor. Its memory is the NIC's again when the visitor returns.
struct Arrival {
    std::uint32_t queue;  ///< index in the ReceiveSet, or ReceiveSet::kUnknown
    std::uint32_t qpn;
    std::uint16_t wqe_counter;  ///< of the receive
    std::uint8_t opcode;        ///< mlx5::CqeOpcode
    std::uint8_t syndrome;      ///< mlx5::Syndrome; 0 unless is_error()
    std::uint32_t dw3;  ///< bytes 12-15 of the message (a response's CID and status), as they lie in memory
    const std::uint32_t*
        message;  ///< the message's words: in the receive buffer, or in the completion itself; null on error
    const mlx5::Cqe64* cqe;

    GN_HD
    bool is_error() const { return opcode == mlx5::kCqeResponseError || opcode == mlx5::kCqeRequestError; }
    GN_HD
    bool is_inline() const { return message == cqe->inline_data; }
    /// Whether the message ends before its 16th byte. Asks the NIC's memory only where that byte is poison:
    /// 0xFF is the end of no NVMe response.
    GN_HD
    bool is_short() const { return message != nullptr && (dw3 >> 24) == 0xFF && bytes() < 16; }
    /// A further trip to the NIC's memory each, so ask only where it matters.
    GN_HD
    std::uint32_t bytes() const { return be32(cqe->byte_cnt); }
    GN_HD
    std::uint32_t invalidated_rkey() const { return be32(cqe->imm_inval_pkey); }
    GN_HD
    std::uint32_t word(std::uint32_t i) const { return message[i]; }
};

/// Writes all receive entries and posts them: once, by one lane or by the host, before the queue pair is
/// connected.
GN_HD
void post_all_receives(const ReceiveQueueRef& queue);

/// Poisons the words that poll() reads ahead: once, by one lane or by the host, after the NIC was given the
/// queue.
GN_HD
void prepare_completions(const CompletionQueueRef& cq);

struct PollResult {
    std::uint32_t arrived = 0;  ///< completions consumed by this call
    bool taken = false;         ///< false: another group is polling; nothing was looked at
};

/// One trip. All members call. `visit(const Arrival&)` is called by one member for each completion,
/// concurrently among the members; it must not wait, and must not use the group. Errors are visited too, and
/// their receives are not posted again. S: how far the lanes that poll lie apart; with Scope::kLane nobody
/// else ever polls, and there is no lock.
template <simt::Scope S = simt::Scope::kDevice, class Group, class Visitor>
GN_HD PollResult poll(Group group, const CompletionQueueRef& cq, const ReceiveSet& receives, Visitor&& visit);

// For a lane that has the completion queue to itself (Scope::kLane) and knows what it waits for: a look at
// the head, and the consumption of what was seen, whose records are stored later, behind a fence that the
// lane needs anyway. Until then the NIC thinks that there is less room than there is.

enum class Look : std::uint32_t {
    kNothing,  ///< nothing new, or not whole yet
    kMessage,  ///< a message that lies in the completion
    kOther,    ///< an error, or a message in its receive buffer
};
/// What a look at one completion brought.
struct InlineMessage {
    Look look = Look::kNothing;
    std::uint32_t qpn = 0;
    std::uint32_t dw3 = 0;
};
GN_HD
InlineMessage look_alone(const CompletionQueueRef& cq, std::uint64_t at);

/// Consumes it: what it lay in is poisoned, and the caller counts its receive as posted again
/// (ReceiveQueueState). Stores no record.
GN_HD
void take_alone(const CompletionQueueRef& cq, std::uint64_t at);

/// The records that take_alone left out, after simt::release_before_stores. The completion queue's first,
/// and the receives' behind another fence, so that it cannot overrun.
GN_HD
void record_consumed(const CompletionQueueRef& cq, std::uint64_t consumed);
GN_HD
void record_receives(const ReceiveQueueRef& queue);

}  // namespace gnstor::rdma

#include <gnstor/rdma/detail/poller.inl>
