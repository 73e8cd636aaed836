// channel_state.hpp: what a channel is made of, as lanes see it. Layout; no behaviour.
//
// Two kinds of memory. *NIC-visible* (pinned host memory with a software NIC): rings, doorbell records,
// bells, completions, capsules, response buffers, the region table, the pool. *Lane memory* (GPU memory with
// GPU lanes): one relocatable block that begins with ChannelState and holds everything that only lanes touch;
// places inside it are given by offsets, so that the host can work on a copy while no kernel runs. Pointers
// in it point to NIC-visible memory only, at the same address on CPU and GPU.
//
// Access: words marked "atomic": any lane, through simt; `completions` and the receive queues: the group that
// holds the poll lock; the rest is written by the host before lanes get the channel.
#pragma once

#include <gnstor/gnor/detail/resources/pool_levels.hpp>
#include <gnstor/gnor/types/callbacks.hpp>
#include <gnstor/gnor/types/sharing.hpp>
#include <gnstor/nvme/command.hpp>
#include <gnstor/placement/placement.hpp>
#include <gnstor/rdma/mlx5.hpp>
#include <gnstor/rdma/poller.hpp>
#include <gnstor/rdma/poster.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gnstor::gnor {

namespace mlx5 = rdma::mlx5;

inline constexpr std::uint32_t kMaxRegions = 16;
inline constexpr std::uint32_t kMaxCommandSlots =
    4096;  ///< so that a command id keeps at least 4 generation bits
inline constexpr std::uint32_t kPoolBlockBytes = nvme::kBlockBytes;
inline constexpr std::uint32_t kMaxPoolSteps = 16;      ///< the first, and doublings
inline constexpr std::uint32_t kInCapsuleBytes = 4096;  ///< writes up to this travel in the capsule
inline constexpr std::uint32_t kResponseBytes = sizeof(nvme::Completion);

/// Registered memory that lanes may name in a command. Base 0 and bytes 0: unregistered.
struct Region {
    std::uint64_t base;
    std::uint64_t bytes;
    std::uint32_t lkey;
    std::uint32_t rkey;
};
static_assert(sizeof(Region) == 24, "a region has three words, which are copied one by one");

/// NIC-visible, written by the host also under a running kernel: entries first, then `count` with a release.
/// Never shrinks.
struct alignas(64) RegionTable {
    std::uint32_t count;
    std::uint32_t reserved;
    Region entries[kMaxRegions];
};

/// Keys of one growth step of the pool: a region of its own.
struct PoolKeys {
    std::uint32_t lkey;
    std::uint32_t rkey;
};

/// The pool's steps whose memory is registered. NIC-visible, written by the host also under a running kernel:
/// keys first, then `count` with a release. Never shrinks.
struct alignas(64) PoolTable {
    std::uint32_t count;
    std::uint32_t reserved;
    PoolKeys keys[kMaxPoolSteps];
};

/// What lanes tell the host. NIC-visible, so that the host reads it under a running kernel.
struct alignas(64) HostMailbox {
    nvme::MapVersion refused_map;     // atomic: the version last refused as stale by an SSD, or 0
    std::uint32_t pool_steps_wanted;  // atomic: of the pool, by lanes that found nothing free in it
};

/// State of a command slot: bits of CommandSlot::control.
enum class SlotState : std::uint32_t {
    kFree = 0,
    kOwned = 1,      ///< a lane waits for it or holds its token
    kAbandoned = 2,  ///< no lane waits any more: slot and buffer are in quarantine until the answers come
    kCallback = 3,   ///< a callback runs when all answers have come
    kEnded = 4,      ///< the same, but only answers of broken queue pairs are missing: it counts as answered
};
inline constexpr std::uint32_t kPendingMask = 0xFu;  ///< control 3:0: replicas that have not answered
inline constexpr std::uint32_t kStateShift = 8;      ///< control 10:8
inline constexpr std::uint32_t kStateMask = 0x7;
inline constexpr std::uint32_t kGenerationShift = 16;  ///< control 31:16

inline constexpr std::uint32_t kMergedInDoubt = 1u << 31;  ///< in CommandSlot::merged (resolved.hpp)

/// One command in flight (to one drive, or the same to all replicas). Plain fields are the owner's; `answer`
/// is the poller's until the pending bit of that replica is cleared, `target` is the owner's until the bit is
/// set. The last two words of `answer` hold the present order in a Doubtful answer to a command of one drive,
/// low half first (nvme/vendor.hpp). Values that follow from other fields are computed, not stored
/// (payload_bytes; wire_of: pool.hpp), so that a slot is one line of a GPU's cache.
struct alignas(128) CommandSlot {
    std::uint32_t control;  // atomic: generation, state, pending
    std::uint32_t next;     ///< chain of one request's commands, or kNone
    std::uint32_t answer[placement::kMaxReplicas];
    std::uint8_t target[placement::kMaxReplicas];  ///< the array's slot of each replica
    std::uint8_t opcode;
    std::uint8_t first_sector;
    std::uint8_t sectors;
    std::uint8_t attempts;
    std::uint32_t block;
    std::uint32_t blocks;
    std::uint32_t pool_first;  ///< first block of the command's pool buffer, or kNone
    /// The user's run of the pool that the command holds, or kNone. Set in quarantine; with checks: always.
    std::uint32_t held_run;
    std::uint32_t lkey;  ///< once an asynchronous change was sent, with rkey: keep_resolved()
    std::uint32_t rkey;
    std::uint64_t buffer;  ///< where the user wants the data
    std::uint64_t sequence;
    std::uint64_t handler_word;  ///< of a callback, in a chain's first slot: callbacks.hpp
    std::uint64_t module;        ///< likewise: the module whose lanes may run it
    HandlerBytes handler;        ///< with a callback; of a synchronous read: its DoubtRound (singly.hpp)
    std::uint32_t request;       ///< read_many: which one; with a callback: the first command of the chain
    std::uint32_t
        remaining;         // atomic, of a chain's first command: commands whose answers were not merged yet
    std::uint32_t merged;  // atomic, likewise: worst status so far; also with a token
    nvme::MapVersion map_version;  ///< of the one map that its targets were chosen by; goes into the command
};

static_assert(sizeof(CommandSlot) == 128, "memory_bytes counts 128 bytes for each command slot");

/// Payload bytes of a command: of a read or write of `sectors` sectors, or of `blocks` blocks if `sectors` is
/// 0; of a trim its one range.
GN_HD
inline std::uint32_t payload_bytes(nvme::IoOpcode opcode, std::uint32_t sectors, std::uint32_t blocks) {
    if (opcode == nvme::IoOpcode::kDatasetManagement) return sizeof(nvme::DsmRange);
    if (opcode != nvme::IoOpcode::kRead && opcode != nvme::IoOpcode::kWrite) return 0;
    return sectors != 0 ? sectors * nvme::kSectorBytes : blocks * nvme::kBlockBytes;
}
GN_HD
inline std::uint32_t payload_bytes(const CommandSlot& slot) {
    return payload_bytes(static_cast<nvme::IoOpcode>(slot.opcode), slot.sectors, slot.blocks);
}

/// One queue pair as lanes see it, besides its ReceiveQueueRef: the path to the drive that fills one slot of
/// the array.
struct alignas(64) QueueLane {
    rdma::SendQueueState send;
    rdma::ReceiveQueueState receive;
    mlx5::SendEntry* send_ring;  ///< NIC-visible, as all pointers here
    std::uint32_t* doorbell_record;
    std::uint64_t* bell;
    const mlx5::Cqe64* send_completion;
    nvme::Command* capsules;  ///< one per send entry
    std::uint32_t capsule_lkey;
    std::uint32_t qpn;
    alignas(64) std::uint32_t outstanding;  // atomic: commands sent and not answered, at most `depth`
    std::uint32_t broken;                   // atomic: 1 from an error completion until reclaim()
};

struct Counters {
    std::uint64_t reads, writes, flushes, trims, zeroes, others;  ///< commands sent, one per replica
    std::uint64_t completions;                                    ///< responses filed
    std::uint64_t stale;         ///< responses that fit no command in flight: dropped
    std::uint64_t refusals;      ///< responses with an error status
    std::uint64_t timeouts;      ///< waits that a deadline ended
    std::uint64_t quarantined;   ///< commands in quarantine now
    std::uint64_t bounce_bytes;  ///< moved through pool buffers
    std::uint64_t polls;         ///< trips to the completion queue
    std::uint64_t doorbells;
    std::uint64_t queue_errors;  ///< error completions
    std::uint64_t callbacks;
    std::uint64_t fast_path;    ///< commands of the fast paths: ended by a single lane, sent by a batch
    std::uint64_t malformed;    ///< responses that are too short: their queue pair counts as broken
    std::uint64_t older_reads;  ///< blocks doubtful on every replica, read as their older version
};
inline constexpr std::uint32_t kCounterWords = sizeof(Counters) / 8;

/// The channel's first error; written once.
struct FirstError {
    std::uint32_t claimed;  // atomic
    std::uint32_t status;   ///< nvme::Status
    std::uint32_t queue;    ///< slot of the array
    std::uint32_t block;
    std::uint32_t syndrome;  ///< of an error completion (mlx5::Syndrome), or 0
    std::uint32_t recorded;  // atomic: set last, with a release
};

struct alignas(64) ChannelState {
    std::uint32_t queues;         ///< queue pairs: slots of the array
    std::uint32_t depth;          ///< commands in flight a queue pair
    std::uint32_t command_slots;  ///< power of two
    std::uint32_t slot_bits;
    std::uint32_t slot_words;  ///< 64-bit words of the free and ready bitmaps
    std::uint32_t pool_steps_max;
    std::uint32_t pool_lkey;  ///< of the pool's first step
    std::uint32_t pool_rkey;
    std::uint64_t pool_base;
    std::uint64_t pool_bytes;        ///< of the first step
    std::uint64_t pool_bytes_max;    ///< of all steps, also those not registered yet
    std::uint32_t pool_blocks_most;  ///< longest run
    PoolLevels pool_levels;
    const PoolTable* pool_table;
    const RegionTable* regions;
    HostMailbox* notes;
    Sharing sharing;       ///< what the channel was opened for
    std::uint32_t checks;  ///< 1: buffers of the pool are checked (ChannelOptions::check_buffers)
    mlx5::Cqe64* completion_ring;
    std::uint32_t* consumer_record;
    std::uint32_t completion_entries_log2, send_entries_log2;
    std::uint32_t queues_offset, ready_marks_offset, receives_offset, slots_offset, free_offset, ready_offset,
        pool_steps_offset, pool_words_offset, pool_length_offset;

    rdma::CompletionQueueState completions;
    alignas(64) std::uint32_t any_ready;  // atomic: a callback may wait in the ready bitmap
    std::uint32_t any_flushed;            // atomic: a callback may wait for a queue pair that was flushed
    std::uint64_t flushed_queues;         // atomic: bit per queue pair, from its first flushed receive on
    std::uint64_t deferred_receives;      ///< bit per queue pair: single_lane.hpp deferred its receive record
    std::uint32_t cached_regions;         // atomic: how many of `cache` are filled
    std::uint32_t gathering;            // atomic: 1: a group holds the try-lock AllOrNothingLock (async.hpp)
    Region cache[kMaxRegions];          // atomic words
    std::uint32_t pool_steps;           // atomic: how many of `pool_keys` are filled
    std::uint32_t pool_asked;           // atomic: the number of steps that the host was asked for last
    PoolKeys pool_keys[kMaxPoolSteps];  // atomic words
    alignas(64) Counters counters;      // atomics
    FirstError first_error;

    template <class T>
    GN_HD T* at(std::uint32_t offset) {
        return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(this) + offset);
    }
    GN_HD
    QueueLane& queue(std::uint32_t i) { return at<QueueLane>(queues_offset)[i]; }
    GN_HD
    rdma::ReceiveQueueRef* receives() { return at<rdma::ReceiveQueueRef>(receives_offset); }
    template <simt::Scope S>
    GN_HD rdma::BasicSendQueueRef<S> send_queue_within(std::uint32_t i) {
        QueueLane& q = queue(i);
        return rdma::BasicSendQueueRef<S>{q.send_ring,
                                          q.doorbell_record,
                                          q.bell,
                                          q.send_completion,
                                          &q.send,
                                          at<std::uint32_t>(ready_marks_offset) + (i << send_entries_log2),
                                          send_entries_log2,
                                          q.qpn};
    }
    GN_HD
    rdma::CompletionQueueRef completion_queue() {
        return rdma::CompletionQueueRef{completion_ring, consumer_record, &completions,
                                        completion_entries_log2};
    }
    GN_HD
    CommandSlot& slot(std::uint32_t i) { return at<CommandSlot>(slots_offset)[i]; }
    GN_HD
    std::uint64_t* free_slots() { return at<std::uint64_t>(free_offset); }
    GN_HD
    std::uint64_t* ready_slots() { return at<std::uint64_t>(ready_offset); }
    GN_HD
    PoolStep& pool_step(std::uint32_t i) { return at<PoolStep>(pool_steps_offset)[i]; }
    GN_HD
    std::uint64_t* pool_words() { return at<std::uint64_t>(pool_words_offset); }
    /// For each block: length and holders of the user's run that begins there (buffers.hpp); 0: none does.
    GN_HD
    std::uint32_t* pool_length() { return at<std::uint32_t>(pool_length_offset); }
    template <simt::Scope S>
    GN_HD void count_within(std::uint64_t Counters::*counter, std::uint64_t n) {
        if (n != 0) simt::add<S>(&(counters.*counter), n);
    }

    // For the whole grid and the host; SharedState defines these for other lanes.
    using Runs = AnyCallback;
    static constexpr Sharing kSharing = Sharing::kGrid;
    static constexpr simt::Scope kScope = simt::Scope::kDevice;
    GN_HD
    rdma::SendQueueRef send_queue(std::uint32_t i) { return send_queue_within<kScope>(i); }
    GN_HD
    void count(std::uint64_t Counters::*counter, std::uint64_t n) { count_within<kScope>(counter, n); }
};
static_assert(std::is_trivially_copyable_v<ChannelState>, "the host works on copies of it");

/// The same memory, as seen by lanes of one sharing mode that know certain callbacks. The library's functions
/// are templates on the kind of state, and use its scope for every word that only lanes touch.
template <Sharing kMode, class RunsCallbacks>
struct SharedState : ChannelState {
    using Runs = RunsCallbacks;
    static constexpr Sharing kSharing = kMode;
    static constexpr simt::Scope kScope = scope_of(kMode);
    GN_HD
    rdma::BasicSendQueueRef<kScope> send_queue(std::uint32_t i) { return send_queue_within<kScope>(i); }
    GN_HD
    void count(std::uint64_t Counters::*counter, std::uint64_t n) { count_within<kScope>(counter, n); }
};
static_assert(sizeof(SharedState<Sharing::kLane, AnyCallback>) == sizeof(ChannelState),
              "SharedState is a view of ChannelState and must add no members");

template <Sharing kMode, class Runs>
using StateFor = std::conditional_t<kMode == Sharing::kGrid && std::is_same_v<Runs, AnyCallback>,
                                    ChannelState, SharedState<kMode, Runs>>;

}  // namespace gnstor::gnor
