// poller.hpp: lanes reap receive completions and post the receives again. The device side of two-sided verbs;
// CPU and GPU.
//
// One receive completion queue serves the receive queues of many queue pairs. One group polls at a time:
// a group tries to take a lock word and returns at once if another group holds it. One poll looks at up
// to 32 completions (one per lane; a single lane looks at 8), takes the valid prefix, passes each
// completion to a visitor, posts the receives again with one doorbell-record store per queue pair, and
// advances the consumer index. The visitor records what arrived and returns; user callbacks run after the
// poll.
//
// Receive entries are written once (post_all_receives): buffer i belongs to entry i for ever, so
// reposting a receive only raises the counter in the doorbell record.
//
// How many receives: a visitor may announce an arrival at once, and the lane that waited for it may send
// again before this poll has reposted the receive. So a receive queue needs one entry for each message
// that can be outstanding, plus one poll (kLargestTrip, or kSingleLaneLookahead where only single lanes
// poll); with fewer, the peer finds no receive (RNR).
//
// Invariants
//   * only the holder of the lock touches the consumer index, the posted counts and the poison words;
//   * a completion is valid when its opcode is not 15 and its owner bit equals the lap's parity (consumer
//     / entries) & 1; completions become valid in order, so the valid ones are a prefix;
//   * the completion queue has at least as many entries as its receive queues together, and completions
//     are given back before their receives are posted again: so it cannot overrun, even where the NIC at
//     once flushes receives posted to a queue pair in error;
//   * a consumed completion has poison in the words that poll() loads before it knows that they are valid
//     (below);
//   * a posted receive buffer has poison in its fourth word, so that a message shorter than 16 bytes is
//     not mistaken for the previous one.
//
// Reading ahead: op_own and the words needed at once (DW3 of a 16-byte response, queue pair number) are
// loaded in parallel, which costs one round trip to the NIC's memory instead of two; the queue pair
// number shares a load with op_own (completion_words.hpp). A word loaded ahead is used only if it is not
// kPoison; otherwise it is loaded again after the acquire of op_own. The NIC writes each word once a lap,
// so a word without poison belongs to this lap.
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
inline constexpr std::uint32_t kSingleLaneLookahead = 8;
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
    mlx5::DataSegment* ring;         ///< NIC-visible
    std::uint32_t* doorbell_record;  ///< NIC-visible; [mlx5::kReceiveRecord] of the queue pair's two words
    std::byte* buffers;              ///< NIC-visible; entry i's buffer is buffers + i * buffer_bytes
    ReceiveQueueState* state;        ///< lanes' memory
    std::uint32_t buffer_bytes;      ///< multiple of 16
    std::uint32_t lkey;              ///< of the buffers
    std::uint32_t entries_log2;      ///< at most 15
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
    /// Index in `queues` of this queue pair number. Fast where numbers are consecutive, as the software
    /// NIC assigns them.
    GN_HD
    std::uint32_t find(std::uint32_t qpn) const {
        const std::uint32_t guess = count != 0 ? qpn - queues[0].qpn : 0;
        if (guess < count && queues[guess].qpn == qpn) return guess;
        for (std::uint32_t i = 0; i < count; ++i)
            if (queues[i].qpn == qpn) return i;
        return kUnknown;
    }
};

/// One completion, given to the visitor. The NIC may overwrite it once the visitor has returned.
struct Arrival {
    std::uint32_t queue;  ///< index in the ReceiveSet, or ReceiveSet::kUnknown
    std::uint32_t qpn;
    std::uint16_t wqe_counter;     ///< of the receive
    std::uint8_t opcode;           ///< mlx5::CqeOpcode
    std::uint8_t syndrome;         ///< mlx5::Syndrome; 0 unless is_error()
    std::uint32_t dw3;             ///< bytes 12-15 of the message (a response's CID and status), unconverted
    const std::uint32_t* message;  ///< in the receive buffer or in the completion itself; null on error
    const mlx5::Cqe64* cqe;

    GN_HD
    bool is_error() const { return opcode == mlx5::kCqeResponseError || opcode == mlx5::kCqeRequestError; }
    GN_HD
    bool is_inline() const { return message == cqe->inline_data; }
    /// Whether the message is shorter than 16 bytes. Reads the NIC's memory only where byte 15 is 0xFF
    /// (poison), with which no NVMe response ends.
    GN_HD
    bool is_short() const { return message != nullptr && (dw3 >> 24) == 0xFF && bytes() < 16; }
    /// The next two cost a further read of the NIC's memory each: call them only where needed.
    GN_HD
    std::uint32_t bytes() const { return be32(cqe->byte_cnt); }
    GN_HD
    std::uint32_t invalidated_rkey() const { return be32(cqe->imm_inval_pkey); }
    GN_HD
    std::uint32_t word(std::uint32_t i) const { return message[i]; }
};

/// Writes all receive entries and posts them. Called once, by one lane or by the host, before the queue
/// pair is connected.
GN_HD
void post_all_receives(const ReceiveQueueRef& queue);

/// Poisons the words that poll() reads ahead. Called once, by one lane or by the host, after the queue
/// was created at the NIC.
GN_HD
void prepare_completions(const CompletionQueueRef& cq);

struct PollResult {
    std::uint32_t arrived = 0;  ///< completions consumed by this call
    bool taken = false;         ///< false: another group is polling; no completion was read
};

/// Polls once. All members call. One member calls `visit(const Arrival&)` for each completion, members in
/// parallel; the visitor must neither wait nor use the group. Errors are visited too; their receives are
/// not posted again. S: scope of the lanes that poll; with Scope::kLane only this lane ever polls, and
/// there is no lock.
template <simt::Scope S = simt::Scope::kDevice, class Group, class Visitor>
GN_HD PollResult poll(Group group, const CompletionQueueRef& cq, const ReceiveSet& receives, Visitor&& visit);

// For a lane that alone polls the completion queue (Scope::kLane) and knows which response it waits for:
// look at the head, and consume it; the doorbell records are stored later, after a fence that the lane
// needs anyway. Until then the NIC sees less free room than there is.

enum class Look : std::uint32_t {
    kNothing,  ///< nothing new, or not completely written yet
    kMessage,  ///< a message that lies in the completion
    kOther,    ///< an error, or a message in its receive buffer
};
/// Result of a look at one completion.
struct InlineMessage {
    Look look = Look::kNothing;
    std::uint32_t qpn = 0;
    std::uint32_t dw3 = 0;
};
GN_HD
InlineMessage peek_single_lane(const CompletionQueueRef& cq, std::uint64_t at);

/// Consumes completion `at`: poisons it. The caller counts its receive as posted again
/// (ReceiveQueueState). Stores no doorbell record.
GN_HD
void consume_single_lane(const CompletionQueueRef& cq, std::uint64_t at);

/// The doorbell records that consume_single_lane did not store, after simt::release_before_stores. The
/// completion queue's record comes first, the receive records after another fence, so that the completion
/// queue cannot overrun.
GN_HD
void record_consumed(const CompletionQueueRef& cq, std::uint64_t consumed);
GN_HD
void record_receives(const ReceiveQueueRef& queue);

}  // namespace gnstor::rdma

#include <gnstor/rdma/detail/poller.inl>
