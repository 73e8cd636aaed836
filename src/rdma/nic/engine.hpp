// engine.hpp: the part of the NIC that works: scans bells, executes entries, retires them. One a reactor.
//
// A poll makes one round: it looks at every bell, gathers up to 32 new entries across the queue pairs
// (prefetching them), executes them, and retires what is done. The doorbell record is the truth; a bell that
// changed is only the reason to read it. Everything runs in the reactor's thread; attach and detach go
// through Reactor::run.
#pragma once

#include "rdma/nic/queue_pair.hpp"

#include <gnstor/base/reactor.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace gnstor::rdma {

struct Delays;      // delays.hpp
class RemoteQueue;  // remote_queue.hpp

class Engine final : public Poller {
  public:
    static constexpr std::uint32_t kBatch = 32;

    explicit Engine(Reactor& reactor);
    ~Engine() override;
    std::uint32_t poll() override;
    [[nodiscard]] Reactor& reactor() const noexcept { return reactor_; }

    // All of what follows: the reactor's thread only.
    void attach(QueuePair& qp);
    void detach(QueuePair& qp);
    /// Both ends to error: sinks are told, send and receive queues are flushed.
    void fail(QueuePair& qp);
    /// A message's payload is no longer needed by the sink of the offload queue pair `qp`.
    void release(QueuePair& qp, std::uint64_t token);
    /// The offload's SEND.
    void send(QueuePair& qp, const void* data, std::uint32_t bytes, std::uint32_t invalidate_rkey,
              std::uint32_t written_before);

    // For RemoteQueue, whose link brings what the peer's half of the engine does on the loop wire.
    /// The receive that the next message goes to; null where none is posted.
    static const mlx5::DataSegment* next_receive(QueuePair& qp);
    /// Puts a message into the next receive of a plain queue pair. Returns what the *sender's* entry
    /// completes with.
    std::uint8_t deliver(QueuePair& to, std::span<const Segment> message, std::uint32_t bytes,
                         std::uint32_t invalidate_rkey, bool invalidate);
    /// The next receive was used up by a message that could not be delivered.
    void fail_receive(QueuePair& qp, std::uint8_t syndrome);
    /// A posted entry has ended: its memory is no longer used.
    void finish_entry(QueuePair& qp, std::uint64_t index, std::uint8_t syndrome);
    /// `queue` has memory pinned, or is broken: RemoteQueue::on_round() in the next round.
    void note(RemoteQueue& queue) { noted_.push_back(&queue); }
    void forget(const RemoteQueue& queue) { std::erase(noted_, &queue); }

  private:
    struct Gathered {
        QueuePair* qp;
        std::uint64_t index;
    };
    struct Local {
        std::byte* data;
        std::uint32_t bytes;
    };
    /// Local segments of an entry, pinned.
    struct Gather {
        Local part[3];
        MemoryRegion* regions[3];
        std::uint32_t count = 0;
        std::uint64_t bytes = 0;
        void unpin() noexcept;
    };

    // engine.cpp
    void look_at_bell(QueuePair& qp);
    std::uint32_t gather_entries();
    void retire(QueuePair& qp);
    void complete(QueuePair& qp, std::uint64_t index);
    std::uint32_t flush_receives(QueuePair& qp);
    void to_error(QueuePair& qp);
    void mark_dirty(QueuePair& qp);
    void let_go(QueuePair& sender, std::uint64_t index);
    // execute.cpp
    void execute(QueuePair& qp, std::uint64_t index);
    std::uint8_t check_entry(QueuePair& qp, std::uint64_t index, const mlx5::SendEntry& entry);
    std::uint8_t gather_local(QueuePair& qp, const mlx5::SendEntry& entry, std::uint32_t first,
                              std::uint32_t access, Gather& out);
    std::uint8_t run_send(QueuePair& qp, std::uint64_t index, InFlight& flight, std::uint8_t opcode);
    std::uint8_t run_one_sided(QueuePair& qp, const mlx5::SendEntry& entry, bool write);
    std::uint8_t run_remote(QueuePair& qp, std::uint64_t index, InFlight& flight, std::uint8_t opcode);
    static bool has_receive(QueuePair& to);
    void deliver_send(QueuePair& from, QueuePair& to, const void* data, std::uint32_t bytes,
                      std::uint32_t invalidate_rkey);
    // delays.cpp: where a link is timed
    Delays& delays();
    void delay_message(QueuePair& sender, QueuePair& peer, std::uint64_t index,
                       const InboundMessage& message);
    void delay_send(QueuePair& from, const void* data, std::uint32_t bytes, std::uint32_t invalidate_rkey,
                    std::uint32_t written_before);
    std::uint32_t deliver_delayed();
    void forget_delayed(const QueuePair& qp);
    // strict.cpp
    void strict_violation(QueuePair& qp, const char* what, std::uint64_t index);
    void strict_check_bell(QueuePair& qp, std::uint64_t bell);
    void strict_remember(QueuePair& qp, InFlight& flight);
    bool strict_unchanged(QueuePair& qp, std::uint64_t index);
    void strict_reread(QueuePair& qp);

    Reactor& reactor_;
    std::vector<QueuePair*> queue_pairs_;
    std::vector<QueuePair*> dirty_;
    std::vector<Gathered> gathered_;
    std::vector<RemoteQueue*> noted_;  ///< to be called in the next round
    std::unique_ptr<Delays> delays_;   ///< null until something passed a timed link
    std::size_t next_ = 0;             ///< where the next round of gathering starts
};

}  // namespace gnstor::rdma
