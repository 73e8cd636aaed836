// nic.hpp: a software NIC as a host program sees it: memory regions, completion queues, queue pairs,
// connections. The values of all its calls, and the interface that every form of it implements.
//
// Queue memory (rings, doorbell records, bells) belongs to the caller and has mlx5's layout
// (gnstor/rdma/mlx5.hpp), so that device code drives this NIC and a ConnectX alike. Control calls (this
// header) may come from any host thread and may block for a bounded time; the data path runs in the pollers
// that the NIC adds to its reactors.
//
// Two kinds of queue pair:
//   * a plain one posts receives; SENDs of the peer land in them;
//   * an offload one (target offload) has a MessageSink: SENDs of the peer are passed to it by reference, and
//     the sender's entry completes when the sink releases them. It writes, reads and answers through the
//     NIC's offload calls (SoftNic).
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>
#include <gnstor/nvme/status.hpp>
#include <gnstor/rdma/mlx5.hpp>

#include "rdma/nic/link_model.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gnstor::rdma {

using QpNumber = std::uint32_t;  ///< 24 bits
using CqNumber = std::uint32_t;

enum Access : std::uint32_t {
    kLocalWrite = 1,   ///< receives and read responses may land here
    kRemoteRead = 2,   ///< a peer's RDMA READ
    kRemoteWrite = 4,  ///< a peer's RDMA WRITE
};

struct MemoryKeys {
    std::uint32_t lkey;
    std::uint32_t rkey;
};

enum class QpState : std::uint8_t { kReset, kInit, kReadyToReceive, kReadyToSend, kError };

/// What a completion ring serves. Rings of one use are spread over the pollers by themselves (RingSpread).
enum class RingUse : std::uint8_t {
    kLanes,  ///< I/O of lanes
    kHost,   ///< I/O of the host's own threads
    kAdmin,  ///< administration: seldom used
};
inline constexpr std::size_t kRingUses = 3;

struct CompletionQueueConfig {
    mlx5::Cqe64* ring;      ///< `entries` completions; the NIC sets op_own of each to 0xF1 at creation
    std::uint32_t entries;  ///< power of two; 1 with `collapsed`
    std::uint32_t* consumer_record;  ///< doorbell record: big-endian consumer index, 24 bits
    bool collapsed = false;  ///< every completion overwrites entry 0: only the newest counts (send queues)
    RingUse use = RingUse::kLanes;
    /// Of a ring that NICs of several processes fill: a word an entry (tickets.hpp), which its owner has
    /// prepared, as the ring itself: no NIC does.
    std::uint64_t* tickets = nullptr;
};

struct QueuePairConfig {
    mlx5::SendEntry* send_ring;       ///< 64-byte basic blocks
    std::uint32_t send_entries;       ///< power of two
    mlx5::DataSegment* receive_ring;  ///< one data segment a receive; null for an offload queue pair
    std::uint32_t receive_entries;    ///< power of two
    std::uint32_t*
        doorbell_record;  ///< [0] receive, [1] send counter, big endian, 16 bits; zero at the start
    std::uint64_t* bell;  ///< this queue pair's doorbell register
    CqNumber send_cq;
    CqNumber receive_cq;
    bool scatter_to_cqe = false;  ///< responses of up to 32 bytes land in the completion itself
    QpNumber number = 0;          ///< that it is to have: one of this NIC's that is free; 0: any
};

/// A local memory range that a message or window refers to.
struct Segment {
    const std::byte* data;
    std::uint32_t bytes;
};

/// One SEND of the peer, handed over by reference: valid until release(qp, token).
struct InboundMessage {
    QpNumber qp;
    std::uint64_t token;
    Segment segments[3];
    std::uint32_t segment_count;
    std::uint32_t bytes;  ///< of all segments
};

/// The receiver of an offload queue pair's messages. Called from the NIC poller's thread; must not block.
class MessageSink {
  public:
    virtual ~MessageSink() = default;
    virtual void on_message(const InboundMessage& message) = 0;
    /// How many bytes the sink will fetch from the sender before it can act on the message. Asked only where
    /// the link is timed: the message is then handed over when they would be there.
    [[nodiscard]] virtual std::uint32_t fetch_bytes(const InboundMessage&) const { return 0; }
    /// A window for reading that was not ready when it was opened (Window) is filled now, or cannot
    /// be (`good` is false; the queue pair is in error). Close it in either case. May come after on_error.
    virtual void on_window_ready(QpNumber qp, std::uint64_t cookie, bool good) {
        (void)qp, (void)cookie, (void)good;
    }
    /// So much of this NIC's memory, window_room() of a window, is free again: closed, and sent if it was to
    /// be. May be called within close_window() and other calls; only to be noted. Where windows are staged.
    virtual void on_window_freed(QpNumber qp, std::uint32_t room) { (void)qp, (void)room; }
    /// The queue pair went to error (peer gone, protocol violation, destroy): no message follows; let go of
    /// all tokens.
    virtual void on_error(QpNumber qp) = 0;
};

/// How far the wire knows who a connection comes from.
enum class PeerKind : std::uint8_t {
    kNetwork,    ///< anybody who can send packets
    kSameUser,   ///< this process, or one that the operating system names as of the same user or of root
    kOtherUser,  ///< a process of this machine of another user, whom the mode of a socket let in
};

/// What a listener decides about a connection request.
struct ConnectRequest {
    std::string peer;
    std::span<const std::byte> private_data;
    /// The same for queue pairs that share a receive completion queue: see create_offload_queue_pair.
    std::uint32_t affinity = 0;
    PeerKind kind = PeerKind::kNetwork;
};
struct ConnectReply {
    bool accept = false;
    std::uint16_t reject_reason = 0;
    std::vector<std::byte> private_data;
    QpNumber qp = 0;  ///< the queue pair that the listener made for it (offload or plain)
    /// Of an offload queue pair: how many messages the sink holds at once, and the bytes of the longest.
    /// Wires that cannot hand messages over by reference keep so much room for them; a longer message is an
    /// error.
    std::uint32_t messages = 0, message_bytes = 0;
};
class Listener {
  public:
    virtual ~Listener() = default;
    /// Any thread; may create queue pairs. Called once a request; duplicates are the NIC's business.
    virtual ConnectReply on_connect(const ConnectRequest& request) = 0;
};

/// What a window of so many bytes takes of a NIC's memory, where it is staged there
/// (SoftNic::stages_windows).
[[nodiscard]] constexpr std::uint32_t window_room(std::uint32_t bytes) noexcept {
    return bytes <= 4096 ? 4096 : std::bit_ceil(bytes);
}

/// Memory through which an offload queue pair reads or writes its peer's (SoftNic::open_window).
struct Window {
    std::byte* data;
    std::uint32_t bytes;
    std::uint64_t cookie;
    bool ready = true;  ///< false: MessageSink::on_window_ready() says when it is filled
};

/// Direction of a window into the peer's memory.
enum class WindowUse : std::uint8_t {
    kWrite,  ///< RDMA WRITE: fill it, then close it; must precede the SEND that announces it
    kRead,   ///< RDMA READ
};

class NicEngine;
class StagedWindows;
/// Makes the windows of an engine; `seed`: of their randomness, if any. The engine outlives them.
using StageWindows = std::function<std::unique_ptr<StagedWindows>(NicEngine& engine, std::uint64_t seed)>;

struct NicOptions {
    /// Check everything, delay, coalesce, re-read at random: docs/design.md, "Strict mode".
    bool strict = false;
    std::uint64_t seed = 1;     ///< of strict mode's randomness
    std::uint32_t pollers = 1;  ///< queue pairs are spread over so many pollers, one a reactor
    /// How long destroying or resetting a queue pair waits until the peer has let go of its memory.
    std::uint32_t quiesce_timeout_ms = 10'000;
    /// Of the network between this node and all its peers: what reaches and leaves its offload queue pairs
    /// takes that time. None: nothing does.
    LinkTiming link{};
    /// Loop wire: makes an engine's StagedWindows, so that windows are this NIC's own memory, as on other
    /// wires; for tests. Empty: windows are the peer's memory.
    StageWindows stage_windows{};
    /// Loop wire: what listeners are told of this NIC's connections.
    PeerKind kind = PeerKind::kSameUser;
};

struct NicCounters {
    std::uint64_t sends, rdma_writes, rdma_reads, bells, completions, error_completions, rnr,
        strict_violations;
};

/// The control side of a NIC, for the owner of queues: a client of an array, or an NVMe-oF host. Its forms:
/// SoftNic (wire/loop/soft_nic.hpp; open_udp_nic() for RoCEv2) executes queues by engines of this process;
/// open_shm_nic() (wire/shm/shm_nic.hpp) has them executed by a node of this machine. The data path passes
/// through the queues' memory, never through these calls.
///
/// Destroy queue pairs before completion queues, both before memory regions, all before the NIC. Any host
/// thread; calls may block for a bounded time.
class Nic {
  public:
    Nic() = default;
    virtual ~Nic() = default;
    Nic(const Nic&) = delete;
    Nic& operator=(const Nic&) = delete;

    /// Whether memory has to be shared before it is named in other calls (the shm wire).
    [[nodiscard]] virtual bool wants_shared_memory() const { return false; }
    /// [base, base + bytes) is mapped from `file` (PinnedMemory::file) at `offset`; whole pages. Does nothing
    /// on other wires.
    virtual Result<void> share_memory(void* base, std::size_t bytes, int file, std::size_t offset = 0) {
        (void)base, (void)bytes, (void)file, (void)offset;
        return {};
    }
    /// kBusy while regions, rings or queue pairs lie in it.
    virtual Result<void> unshare_memory(void* base) {
        (void)base;
        return {};
    }

    virtual Result<MemoryKeys> register_memory(void* base, std::size_t bytes, std::uint32_t access) = 0;
    /// Waits (bounded) until no operation touches the region any more; kBusy after the deadline, and then
    /// the region stays registered.
    virtual Result<void> deregister_memory(MemoryKeys keys) = 0;

    virtual Result<CqNumber> create_completion_queue(const CompletionQueueConfig& config) = 0;
    virtual Result<void> destroy_completion_queue(CqNumber cq) = 0;

    virtual Result<QpNumber> create_queue_pair(const QueuePairConfig& config) = 0;
    /// On return the NIC touches neither the queue pair's queues nor memory named by its entries.
    /// `timeout_ms`: in place of the NIC's own (NicOptions::quiesce_timeout_ms).
    virtual Result<void> destroy_queue_pair(QpNumber qp,
                                            std::optional<std::uint32_t> timeout_ms = std::nullopt) = 0;
    /// Back to kReset: outstanding work is abandoned, and on return no buffer of it is touched. Reconnect to
    /// use it again.
    virtual Result<void> reset_queue_pair(QpNumber qp) = 0;
    [[nodiscard]] virtual QpState state(QpNumber qp) const = 0;
    /// Memory that a queue pair which could not be destroyed may still touch: freed when the NIC is closed.
    virtual void keep(std::shared_ptr<void> memory) = 0;

    /// Connects to the listener of `service` at the address ("gnstor-0/4420").
    virtual Result<std::vector<std::byte>> connect(QpNumber qp, const std::string& peer_address,
                                                   const std::string& service,
                                                   std::span<const std::byte> private_data,
                                                   std::uint32_t timeout_ms) = 0;
    virtual void disconnect(QpNumber qp) = 0;  ///< both ends go to error and flush

    [[nodiscard]] virtual NicCounters counters() const = 0;
    [[nodiscard]] virtual const std::string& address() const = 0;
};

}  // namespace gnstor::rdma
