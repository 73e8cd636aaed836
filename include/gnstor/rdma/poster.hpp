// poster.hpp: lanes post send entries to a queue pair. The device side of two-sided verbs; CPU and GPU
// lanes.
//
// Any number of lanes of any warps use one send queue at once, in four steps:
//   1. reserve   takes the next entries if the queue has room (send completions free entries);
//   2. fill      writes the whole 64-byte entry;
//   3. publish   marks the entry ready; a lane that finds the entry at the head of the queue ready
//      advances the published count past it;
//   4. ring      hands all published entries to the NIC: doorbell record, then bell.
// No step ever waits. Nor may a lane wait for anything between reserve and publish: an entry that is
// reserved but not published blocks all entries behind it. A lane that cannot use its entry fills a
// no-op.
//
// Invariants
//   * rung <= published <= reserved <= completed + entries; none of them ever decreases (64 bits: none
//     ever wraps);
//   * `ready[i % entries]` names the lap of the newest entry that was marked ready there;
//   * an entry is written only after the completion of the entry one lap earlier was seen (acquired);
//   * every entry requests a completion: the completion queue is *collapsed*, so only the newest
//     completion is ever read; its wqe_counter says that this entry and all before it are done.
//
// Memory: the ring, the doorbell record, the bell and the completion are the NIC's (system scope);
// SendQueueState and the ready words are touched by lanes alone and lie in the lanes' own memory (the
// scope that the view names).
#pragma once

#include <gnstor/base/target.hpp>
#include <gnstor/rdma/completion_words.hpp>
#include <gnstor/rdma/mlx5.hpp>
#include <gnstor/simt/atomic.hpp>
#include <gnstor/simt/group.hpp>

#include <cstdint>
#include <type_traits>

namespace gnstor::rdma {

enum class SendOutcome : std::uint32_t {
    kGranted,  ///< the ticket's entry is the caller's: fill and publish it without waiting
    kFull,     ///< no room now; a send completion will make some
    kBroken,   ///< the queue pair is in error: nothing more goes out until the host has reset it
};

/// One reserved entry. The lane that reserved it must fill and publish it.
struct SendTicket {
    std::uint64_t index = 0;  ///< counted since the last reset; the entry is index % entries
    SendOutcome outcome = SendOutcome::kFull;
    std::uint32_t mark = 0;  ///< set by fill: what goes into the ready word
    GN_HD
    bool granted() const { return outcome == SendOutcome::kGranted; }
};

/// A run of consecutive entries.
struct SendRun {
    std::uint64_t first = 0;
    std::uint32_t count = 0;
    SendOutcome outcome = SendOutcome::kFull;
};

/// Shared by the lanes that use a send queue. All zero at the start and after a reset of the queue pair.
struct alignas(64) SendQueueState {
    std::uint64_t reserved;
    std::uint64_t published;
    std::uint64_t completed;  ///< entries known to be done, from completions that lanes have read
    std::uint64_t rung;       ///< published count last given to the NIC; owned by the holder of `ringing`
    std::uint32_t ringing;    ///< 1: some lane is ringing
    std::uint32_t error;      ///< 0, or kErrorSeen | syndrome of the first error completion that a lane saw
};
inline constexpr std::uint32_t kErrorSeen = 0x100;

/// A send queue as lanes see it. Trivially copyable; valid while the host owner of the queue pair lives.
/// S: scope of the lanes that share the queue, for the words that they share among themselves; words that
/// the NIC reads keep system scope. With Scope::kLane one lane owns the queue and publishes in the order
/// in which it reserved, so it checks no ready words.
template <simt::Scope S>
struct BasicSendQueueRef {
    static constexpr bool kSingleLane = S == simt::Scope::kLane;
    mlx5::SendEntry* ring;           ///< NIC-visible
    std::uint32_t* doorbell_record;  ///< NIC-visible; [mlx5::kSendRecord] of the queue pair's two words
    std::uint64_t* bell;             ///< the NIC's register for this queue pair
    const mlx5::Cqe64* completion;   ///< NIC-visible; the collapsed send completion
    SendQueueState* state;           ///< lanes' memory
    std::uint32_t* ready;            ///< lanes' memory; `entries` words, zero at the start
    std::uint32_t entries_log2;      ///< at most 15, as indices on the wire have 16 bits
    std::uint32_t qpn;

    GN_HD
    std::uint32_t entries() const { return 1u << entries_log2; }
    GN_HD
    std::uint32_t slot(std::uint64_t index) const {
        return static_cast<std::uint32_t>(index) & (entries() - 1);
    }

    // ---- reserve
    /// Takes up to `wanted` (>= 1) consecutive entries: as many as there is room for, or, with `whole`,
    /// all or none. One lane.
    GN_HD
    SendRun try_reserve_run(std::uint32_t wanted, bool whole = false) const;
    /// Takes one entry. One lane.
    GN_HD
    SendTicket try_reserve() const {
        const SendRun run = try_reserve_run(1);
        return SendTicket{run.first, run.outcome, 0};
    }

    // ---- fill: the whole entry, 16 bytes a store
    /// SEND of 1 to 3 local segments (mlx5::make_data).
    template <class... Data>
    GN_HD void fill_send(SendTicket& ticket, Data... data) const {
        static_assert(sizeof...(Data) >= 1 && sizeof...(Data) <= 3, "a SEND gathers one to three segments");
        fill(ticket, mlx5::kSend, 0, mlx5::EntrySegment{.data = data}...);
    }
    /// SEND_WITH_INVALIDATE: as fill_send; also invalidates the peer's key `rkey`.
    template <class... Data>
    GN_HD void fill_send_invalidate(SendTicket& ticket, std::uint32_t rkey, Data... data) const {
        static_assert(sizeof...(Data) >= 1 && sizeof...(Data) <= 3, "a SEND gathers one to three segments");
        fill(ticket, mlx5::kSendInvalidate, rkey, mlx5::EntrySegment{.data = data}...);
    }
    /// RDMA WRITE of 1 or 2 local segments to the peer's memory (mlx5::make_remote).
    template <class... Data>
    GN_HD void fill_write(SendTicket& ticket, mlx5::RemoteAddressSegment remote, Data... data) const {
        static_assert(sizeof...(Data) >= 1 && sizeof...(Data) <= 2, "a WRITE gathers one or two segments");
        fill(ticket, mlx5::kRdmaWrite, 0, mlx5::EntrySegment{.remote = remote},
             mlx5::EntrySegment{.data = data}...);
    }
    /// RDMA READ of the peer's memory into 1 or 2 local segments.
    template <class... Data>
    GN_HD void fill_read(SendTicket& ticket, mlx5::RemoteAddressSegment remote, Data... data) const {
        static_assert(sizeof...(Data) >= 1 && sizeof...(Data) <= 2,
                      "a READ scatters into one or two segments");
        fill(ticket, mlx5::kRdmaRead, 0, mlx5::EntrySegment{.remote = remote},
             mlx5::EntrySegment{.data = data}...);
    }
    /// No-op: for a reserved entry that the lane cannot use.
    GN_HD
    void fill_nop(SendTicket& ticket) const { fill(ticket, mlx5::kNop, 0); }

    // ---- publish and ring
    /// Marks a filled entry ready and advances the published count past all ready entries at the head.
    /// One lane.
    GN_HD
    void publish(const SendTicket& ticket) const {
        mark_ready(ticket);
        advance_published(ticket.index, 1);
    }
    /// Hands all published entries to the NIC, or leaves that to the lane that is ringing already. One
    /// lane.
    GN_HD
    void ring_bell() const;

    /// For a queue that one lane owns (kSingleLane), with no other entry reserved: publish and ring in two
    /// parts, so that several queues, and other doorbell records, share each of the two fences. Order:
    /// fence, store_doorbell_single_lane, fence, ring_bell_single_lane; each fence is
    /// simt::release_before_stores.
    GN_HD
    void store_doorbell_single_lane(const SendTicket& ticket) const {
        static_assert(kSingleLane,
                      "store_doorbell_single_lane is only for a queue of one lane: other lanes may be "
                      "publishing entries");
        const std::uint64_t upto = ticket.index + 1;
        simt::store_relaxed<S>(&state->published, upto);
        simt::store_relaxed<S>(&state->rung, upto);
        simt::store_released<simt::Scope::kSystem>(doorbell_record + mlx5::kSendRecord,
                                                   be32(static_cast<std::uint32_t>(upto) & mlx5::kIndexMask));
    }
    GN_HD
    void ring_bell_single_lane(const SendTicket& ticket) const {
        const mlx5::ControlSegment control = mlx5::make_control(static_cast<std::uint16_t>(ticket.index),
                                                                static_cast<std::uint8_t>(ticket.mark >> 8),
                                                                qpn, static_cast<std::uint8_t>(ticket.mark));
        simt::store_mmio64_released(bell, mlx5::bell_value(control));
    }

    // ---- completions
    /// Entries done: the NIC has executed every index below it, and its memory may be reused. Reads the
    /// completion.
    GN_HD
    std::uint64_t refresh_completed() const;
    /// The count that lanes last stored, without a read of the NIC's memory.
    GN_HD
    std::uint64_t completed() const {
        // Pairs with the compare_exchange of refresh_completed: what that lane acquired from the NIC is
        // visible here.
        return simt::load_acquire<S>(&state->completed);
    }
    /// Whether some lane saw the queue pair in error; then syndrome() is the first error it saw.
    GN_HD
    bool broken() const { return simt::load_relaxed<S>(&state->error) != 0; }
    GN_HD
    mlx5::Syndrome syndrome() const {
        return static_cast<mlx5::Syndrome>(simt::load_relaxed<S>(&state->error) & 0xFFu);
    }

    /// Index of a reserved and unpublished entry, from its low 32 bits.
    GN_HD
    std::uint64_t widen(std::uint32_t low) const {
        const std::uint64_t reserved = simt::load_relaxed<S>(&state->reserved);
        return reserved - (static_cast<std::uint32_t>(reserved) - low);
    }

    // ---- parts that the group forms use
    GN_HD
    void mark_ready(const SendTicket& ticket) const;
    /// Advances `published`. The caller knows that [first, first + count) is marked ready.
    GN_HD
    void advance_published(std::uint64_t first, std::uint32_t count) const;

  private:
    GN_HD
    void advance_among_others(std::uint64_t first, std::uint32_t count) const;
    template <class... Segments>
    GN_HD void fill(SendTicket& ticket, std::uint8_t opcode, std::uint32_t invalidate_rkey,
                    Segments... segments) const;
    /// The lap's part of a ready word: 16 bits suffice, as only this lap and the one before have to be
    /// told apart.
    GN_HD
    std::uint32_t lap_mark(std::uint64_t index) const {
        return static_cast<std::uint32_t>((index >> entries_log2) + 1) << 16;
    }
    GN_HD
    bool is_ready(std::uint32_t word, std::uint64_t index) const {
        return (word & 0xFFFF0000u) == lap_mark(index);
    }
};
using SendQueueRef = BasicSendQueueRef<simt::Scope::kDevice>;
static_assert(std::is_trivially_copyable_v<SendQueueRef>, "kernels take it by value");

// ---- group forms: each member may have work for another queue, or none

/// Reserves one entry for each member with `wanted`, with one atomic step per queue. All members call,
/// each with its own queue. Members that get none have `outcome` kFull or kBroken.
template <class Group, simt::Scope S>
GN_HD SendTicket try_reserve(Group group, const BasicSendQueueRef<S>& queue, bool wanted);

/// Publishes for each member whose ticket was granted (and filled), then rings, unless `ring` is false: a
/// later ring_bell does. All members call.
template <class Group, simt::Scope S>
GN_HD void publish_and_ring(Group group, const BasicSendQueueRef<S>& queue, const SendTicket& ticket,
                            bool ring = true);

}  // namespace gnstor::rdma

#include <gnstor/rdma/detail/poster.inl>
