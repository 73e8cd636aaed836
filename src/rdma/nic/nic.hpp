// nic.hpp: the software NIC as a host program sees it: memory regions, completion queues, queue pairs,
// connections.
//
// Queue memory (rings, doorbell records, bells) belongs to the caller and has mlx5's layout
// (gnstor/rdma/mlx5.hpp), so that device code drives this NIC and a ConnectX alike. Control calls (this
// header) may come from any host thread and may block for a bounded time; the data path runs in the pollers
// that the NIC adds to its reactors.
//
// Two kinds of queue pair:
//   * a plain one posts receives; SENDs of the peer land in them;
//   * an offload one (target offload) has a MessageSink: SENDs of the peer are handed to it *by reference*,
//   and the
//     sender's entry completes when the sink lets go. It writes, reads and answers through the NIC's offload
//     calls.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>
#include <gnstor/nvme/status.hpp>
#include <gnstor/rdma/mlx5.hpp>

#include "rdma/nic/link_model.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
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
    /// A window for reading that was not ready when it was opened (SoftNic::Window) is filled now, or cannot
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

/// What a listener decides about a connection request.
struct ConnectRequest {
    std::string peer;
    std::span<const std::byte> private_data;
    /// The same for queue pairs that share a receive completion queue: see create_offload_queue_pair.
    std::uint32_t affinity = 0;
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

/// Direction of a window into the peer's memory.
enum class WindowUse : std::uint8_t {
    kWrite,  ///< RDMA WRITE: fill it, then close it; must precede the SEND that announces it
    kRead,   ///< RDMA READ
};

struct NicOptions {
    bool strict = false;  ///< DESIGN.md, "Strict mode": check everything, delay, coalesce, re-read at random
    std::uint64_t seed = 1;     ///< of strict mode's randomness
    std::uint32_t pollers = 1;  ///< queue pairs are spread over so many pollers, one a reactor
    /// How long destroying or resetting a queue pair waits until the peer has let go of its memory.
    std::uint32_t quiesce_timeout_ms = 10'000;
    /// Of the network between this node and all its peers: what reaches and leaves its offload queue pairs
    /// takes that time. None: nothing does.
    LinkTiming link{};
    /// For tests, loop wire: windows are this NIC's own memory, as on other wires, and those for reading are
    /// ready less than so many rounds of the poller later. 0: as on the loop wire.
    std::uint32_t late_windows = 0;
};

struct NicCounters {
    std::uint64_t sends, rdma_writes, rdma_reads, bells, completions, error_completions, rnr,
        strict_violations;
};

class LoopWire;  // loop_wire.hpp: connects the NICs of one process by address
class ShmWire;   // shm_wire.hpp: connects to the NIC of another process of this machine
class UdpWire;   // udp_wire.hpp: connects NICs of any machines, and the Linux kernel's, by RoCEv2

/// One NIC. Owns no queue memory. Destroy queue pairs before completion queues, both before memory regions,
/// all before it.
class SoftNic {
  public:
    /// `reactors`: where its pollers run, round robin; they must outlive the NIC.
    static Result<std::unique_ptr<SoftNic>> open(LoopWire& wire, std::string address, NicOptions options,
                                                 std::span<Reactor* const> reactors);
    /// On the udp wire: its address is the wire's, peers are IP addresses ("10.77.0.1", "fd00::1"), services
    /// decimal port numbers ("4420") of the RDMA IP port space. One NIC a wire; it runs on the wire's
    /// reactor, one poller. `options.link` must be none.
    static Result<std::unique_ptr<SoftNic>> open(UdpWire& wire, NicOptions options);
    /// On the shm wire: queues and memory are this process's, the engines that execute them the node's. All
    /// memory that it is told of (rings, records, bells, regions) must lie in what share_memory() was given.
    /// No listeners, no offload queue pairs. Calls fail with kIo once the node's process is gone. Of a wire
    /// to several nodes connect() says by its address which of them a queue pair goes to; those of a node
    /// that is gone are in error, and may be reset and connected again once it is back.
    static Result<std::unique_ptr<SoftNic>> open(ShmWire& wire);
    ~SoftNic();

    /// On the loop wire, where a queue pair could not be destroyed: all that the NIC has stays allocated as
    /// long as the process, for peers that may touch it; no engine looks at it any more.
    static void abandon(std::unique_ptr<SoftNic> nic);

    /// Whether memory has to be shared before it is named in other calls (the shm wire).
    [[nodiscard]] bool wants_shared_memory() const;
    /// [base, base + bytes) is mapped from `file` (PinnedMemory::file) at `offset`; whole pages. Nothing on
    /// other wires.
    Result<void> share_memory(void* base, std::size_t bytes, int file, std::size_t offset = 0);
    /// kBusy while regions, rings or queue pairs lie in it.
    Result<void> unshare_memory(void* base);

    Result<MemoryKeys> register_memory(void* base, std::size_t bytes, std::uint32_t access);
    /// Waits (bounded) until nothing under way touches the region any more; kBusy after the deadline, and
    /// then still registered.
    Result<void> deregister_memory(MemoryKeys keys);
    /// Memory of another process, which names it from `base` on; this one has it at `here`. `key`: that it is
    /// to have, if free (MemoryTable); 0: any.
    Result<MemoryKeys> register_foreign_memory(void* base, std::size_t bytes, std::uint32_t access,
                                               std::byte* here, std::uint32_t key = 0);

    Result<CqNumber> create_completion_queue(const CompletionQueueConfig& config);
    Result<void> destroy_completion_queue(CqNumber cq);

    Result<QpNumber> create_queue_pair(const QueuePairConfig& config);
    /// `sink` must outlive the queue pair. `affinity`: queue pairs with the same one (ConnectRequest) are
    /// executed by the same poller: those of one channel, so that no two threads write into its completion
    /// queue by turns.
    Result<QpNumber> create_offload_queue_pair(MessageSink& sink,
                                               std::optional<std::uint32_t> affinity = std::nullopt);
    /// On return the NIC touches neither its queues nor memory named by its entries. `timeout_ms`: in place
    /// of the NIC's own (NicOptions::quiesce_timeout_ms).
    Result<void> destroy_queue_pair(QpNumber qp, std::optional<std::uint32_t> timeout_ms = std::nullopt);
    /// What a queue pair that could not be destroyed may still touch: freed when the NIC is closed.
    void keep(std::shared_ptr<void> memory);
    /// Back to kReset: outstanding work is abandoned, and on return no buffer of it is touched. Reconnect to
    /// use it again.
    Result<void> reset_queue_pair(QpNumber qp);
    [[nodiscard]] QpState state(QpNumber qp) const;

    /// Connection management: `service` names the listener at the address ("gnstor-0/4420").
    Result<void> listen(const std::string& service, Listener& listener);
    void unlisten(const std::string& service);
    Result<std::vector<std::byte>> connect(QpNumber qp, const std::string& peer_address,
                                           const std::string& service,
                                           std::span<const std::byte> private_data, std::uint32_t timeout_ms);
    void disconnect(QpNumber qp);  ///< both ends go to error and flush

    // The offload's calls. `qp` is an offload queue pair of this NIC.
    /// Opens a window of `bytes` at `address` under `rkey` of the peer. Any thread on the loop wire, where
    /// the pointer is the peer's memory itself (payload by reference), held registered until close_window. On
    /// other wires only the thread of the poller that owns the queue pair; `data` is then memory of this NIC:
    ///   * for writing, it is sent by close_window, as RDMA WRITE, before whatever send() is called after
    ///   that;
    ///     an address or key that the peer refuses puts the queue pair to error;
    ///   * for reading, it is not `ready` yet: the sink's on_window_ready() says when it is, by the cookie.
    /// kNotFound: no such queue pair; kState: it is not connected; kPermission: key, bounds or rights.
    struct Window {
        std::byte* data;
        std::uint32_t bytes;
        std::uint64_t cookie;
        bool ready = true;
    };
    Result<Window> open_window(QpNumber qp, std::uint64_t address, std::uint32_t bytes, std::uint32_t rkey,
                               WindowUse use);
    /// The same for the data path: no words about what was wrong. False: not opened.
    [[nodiscard]] bool open_window(QpNumber qp, std::uint64_t address, std::uint32_t bytes,
                                   std::uint32_t rkey, WindowUse use, Window& window);
    /// Whether windows of a connected queue pair are memory of this NIC, and not the peer's by reference.
    [[nodiscard]] bool stages_windows(QpNumber qp) const;
    /// `filled`: of one for writing: whether its bytes are the peer's to have (no: the command failed).
    void close_window(QpNumber qp, const Window& window, bool filled = true);
    /// Sends up to 64 bytes to the peer's next receive; with `invalidate_rkey` as SEND_WITH_INVALIDATE (0:
    /// plain). Only from the thread of the poller that owns the queue pair (where on_message is called).
    /// `written_before`: bytes that were written through windows since, and go before it on a timed link.
    void send(QpNumber qp, const void* data, std::uint32_t bytes, std::uint32_t invalidate_rkey = 0,
              std::uint32_t written_before = 0);
    /// A hint: send() is called soon. Same thread rule.
    void prefetch_send(QpNumber qp) const;
    /// Lets go of a message: the peer's send entry may complete. Same thread rule.
    void release(QpNumber qp, std::uint64_t token);
    /// Puts the queue pair (both ends) to error: protocol violations. Same thread rule.
    void fail(QpNumber qp);
    /// The reactor whose thread owns the queue pair.
    [[nodiscard]] Reactor& owner(QpNumber qp);

    [[nodiscard]] NicCounters counters() const;
    [[nodiscard]] const std::string& address() const;

    struct Impl;  ///< internal

  private:
    friend class LoopWire;
    explicit SoftNic(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::rdma
