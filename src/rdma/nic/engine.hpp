// engine.hpp: the data path of the NIC: scans bells, executes entries, retires them. One engine per
// reactor.
//
// Each poll looks at every bell, gathers up to 32 new entries across the queue pairs (prefetching them),
// executes them, and retires those that are done. The doorbell record counts; a changed bell is only the
// reason to read it. Everything runs in the reactor's thread; attach and detach are called through
// Reactor::run.
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

class NicEngine final : public Poller {
  public:
    static constexpr std::uint32_t kBatch = 32;

    explicit NicEngine(Reactor& reactor);
    ~NicEngine() override;
    std::uint32_t poll() override;
    [[nodiscard]] Reactor& reactor() const noexcept { return reactor_; }

    // All functions below: the reactor's thread only.
    void attach(QueuePair& qp);
    void detach(QueuePair& qp);
    /// Puts both ends to error: tells sinks, flushes send and receive queues.
    void fail(QueuePair& qp);
    /// The sink of the offload queue pair `qp` no longer needs a message's payload.
    void release(QueuePair& qp, std::uint64_t token);
    /// SEND of an offload queue pair.
    void send(QueuePair& qp, const void* data, std::uint32_t bytes, std::uint32_t invalidate_rkey,
              std::uint32_t written_before);

    // For RemoteQueue: its link calls what the peer's queue pair would cause on the loop wire.
    /// The receive entry for the next message; null: none is posted.
    static const mlx5::DataSegment* next_receive(QueuePair& qp);
    /// Puts a message into the next receive of a plain queue pair. Returns the syndrome of the *sender's*
    /// entry.
    std::uint8_t deliver(QueuePair& to, std::span<const Segment> message, std::uint32_t bytes,
                         std::uint32_t invalidate_rkey, bool invalidate);
    /// Completes the next receive with an error: its message could not be delivered.
    void fail_receive(QueuePair& qp, std::uint8_t syndrome);
    /// A posted entry has ended: the link no longer uses its memory.
    void finish_entry(QueuePair& qp, std::uint64_t index, std::uint8_t syndrome);
    /// Calls RemoteQueue::on_round() in the next round: `queue` has memory pinned, or failed.
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
    std::uint32_t flush_receives(QueuePair& qp, std::uint32_t most);
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
    // delays.cpp: modelled links
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
    std::vector<RemoteQueue*> noted_;  ///< on_round() is called in the next round
    std::unique_ptr<Delays> delays_;   ///< null until a message passes a modelled link
    std::size_t next_ = 0;             ///< first queue pair of the next gathering
};

}  // namespace gnstor::rdma
