// queue_pair.hpp: one end of a connection as the engine sees it. Internal to rdma/.
//
// One engine executes both ends of a connection (loop_wire.hpp says which), so no lock is needed: while
// the queue pair is attached to an engine, every plain field belongs to that engine's thread; otherwise
// to the control plane (under the wire's mutex). The few words that other threads access are atomics.
//
// Invariants
//   * retired <= executed <= posted (send entries, counted since the connection was made);
//   * entries retire in order: an entry whose payload the peer's sink holds delays all behind it;
//   * `holds` counts messages whose memory is in use because of this queue pair (held by a sink, or posted
//     to a link). A queue pair is reset or destroyed only when `holds` is 0 and no window is open
//     (has_windows()), at both ends.
#pragma once

#include "rdma/nic/completion_queue.hpp"
#include "rdma/nic/link_model.hpp"
#include "rdma/nic/memory_table.hpp"
#include "rdma/nic/nic.hpp"
#include "rdma/nic/window_memory.hpp"

#include <gnstor/base/hash.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace gnstor::rdma {

class NicEngine;
class RemoteQueue;  // remote_queue.hpp

/// The engine that runs in the calling thread; null in other threads.
constinit inline thread_local const NicEngine* running_engine = nullptr;

/// Counters of one NIC; engines write them, each in its own stripe; any thread reads them.
struct NicTally {
    struct alignas(64) Stripe {
        std::atomic<std::uint64_t> sends{0}, rdma_writes{0}, rdma_reads{0}, bells{0}, completions{0},
            error_completions{0}, rnr{0}, strict_violations{0};
    };
    Stripe stripes[kStripes];

    Stripe& mine() noexcept { return stripes[my_stripe()]; }
    [[nodiscard]] std::uint64_t sum(std::atomic<std::uint64_t> Stripe::*counter) const noexcept {
        std::uint64_t total = 0;
        for (const Stripe& stripe : stripes) total += (stripe.*counter).load(std::memory_order_relaxed);
        return total;
    }
};

/// The parts of its NIC that a queue pair uses.
struct NicContext {
    MemoryTable memory;
    WindowMemory windows;  ///< for RemoteQueue
    NicTally tally;
    NicOptions options;
    std::string address;
    std::unique_ptr<LinkModel> link;  ///< models the network to the peers; null: no delay

    /// Whether to log a fault of the poster. Its first ones tell all; the poster may be a hostile process,
    /// which could fill the log.
    bool may_complain() noexcept { return complaints.fetch_add(1, std::memory_order_relaxed) < kComplaints; }
    static constexpr std::uint64_t kComplaints = 16;
    std::atomic<std::uint64_t> complaints{0};
};

/// Counts in a stripe of the calling thread (NicTally::mine).
inline void count(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) noexcept {
    add_to_mine(counter, by);
}

/// A send entry between execution and retirement.
struct alignas(64) InFlight {
    mlx5::SendEntry entry;          ///< as first read (strict mode compares it again)
    MemoryRegion* regions[3] = {};  ///< pinned until the peer's sink releases the message
    std::uint32_t region_count = 0;
    std::uint32_t payload_crc = 0;  ///< strict mode
    std::uint32_t delay = 0;        ///< strict mode: polls until it may retire
    std::uint8_t syndrome = mlx5::kSyndromeNone;
    bool held = false;  ///< not released yet by the peer's sink or the link
};

struct QueuePair {
    QueuePair();
    ~QueuePair();
    NicContext* nic = nullptr;
    QpNumber qpn = 0;
    QueuePairConfig config{};  ///< of a plain queue pair
    MessageSink* sink = nullptr;
    CompletionQueue* send_cq = nullptr;
    CompletionQueue* receive_cq = nullptr;

    std::atomic<QpState> state{QpState::kReset};
    std::atomic<NicEngine*> engine{nullptr};
    std::atomic<std::uint32_t> holds{0};  ///< written by the engine's thread alone
    /// open_window calls that run, and open windows, of this (offload) queue pair: counted here by the
    /// engine's thread, below by all others. Either may be negative; once no new window can open, the sum
    /// is exact.
    std::atomic<std::int32_t> windows{0};
    std::atomic<std::int32_t> windows_of_others{0};
    std::atomic<QueuePair*> peer{nullptr};
    /// Replaces `peer` while the peer is in another process. The control plane creates it, and destroys
    /// it on the engine's thread.
    std::unique_ptr<RemoteQueue> remote;
    std::uint32_t incarnation = 0;  ///< of the connection; part of every token

    // Send queue.
    std::uint64_t last_bell = 0;
    std::uint64_t posted = 0;
    std::uint64_t executed = 0;
    std::uint64_t retired = 0;
    std::vector<InFlight> in_flight;  ///< `send_entries` of them
    // Receive queue.
    std::uint64_t receives_used = 0;
    std::uint64_t receives_seen = 0;  ///< receives posted, as last read of the record

    bool sink_told = false;  ///< on_error was called
    bool dirty = false;      ///< in the engine's list of queue pairs with something to retire
    SplitMix64 dice{1};      ///< strict mode's random numbers

    /// Call before a window opens and after it closes. The engine's own thread also sets the error state,
    /// so it needs no order between this count and its check of the state; other threads do.
    void add_window(std::int32_t by) noexcept {
        if (running_engine == engine.load(std::memory_order_relaxed))
            windows.store(windows.load(std::memory_order_relaxed) + by, std::memory_order_release);
        else
            windows_of_others.fetch_add(by, std::memory_order_seq_cst);
    }
    [[nodiscard]] bool has_windows() const noexcept {
        // Acquire: pairs with the release of the last close: the NIC no longer touches the memory.
        return windows.load(std::memory_order_seq_cst) + windows_of_others.load(std::memory_order_seq_cst) !=
               0;
    }
    [[nodiscard]] bool offload() const noexcept { return sink != nullptr; }
    [[nodiscard]] bool strict() const noexcept { return nic->options.strict; }
    [[nodiscard]] bool ready() const noexcept {
        return state.load(std::memory_order_acquire) == QpState::kReadyToSend;
    }
    [[nodiscard]] bool in_error() const noexcept {
        return state.load(std::memory_order_acquire) == QpState::kError;
    }
    [[nodiscard]] InFlight& flight(std::uint64_t index) noexcept {
        return in_flight[index & (config.send_entries - 1)];
    }
};

/// kInvalidArgument unless a plain queue pair's rings, record and bell are valid.
[[nodiscard]] Result<void> check(const QueuePairConfig& config);

/// Message tokens: the entry's index and the incarnation of its connection.
inline std::uint64_t make_token(std::uint64_t index, std::uint32_t incarnation) noexcept {
    return (index << 16) | (incarnation & 0xFFFFu);
}
inline std::uint64_t token_index(std::uint64_t token) noexcept {
    return token >> 16;
}
inline std::uint32_t token_incarnation(std::uint64_t token) noexcept {
    return static_cast<std::uint32_t>(token & 0xFFFFu);
}

}  // namespace gnstor::rdma
