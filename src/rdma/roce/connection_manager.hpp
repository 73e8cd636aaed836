// connection_manager.hpp: makes and ends connections by messages between queue pairs 1. IBA volume 1,
// 12.9.
//
// Owns the table of connections from the first message to the last, with the retries of each message.
// Pure like the transport: time and messages are arguments; the caller pulls messages and events.
// Invariants
//   * the table has constant size. A peer may begin connections up to a quota (half of what is free, at
//     least `assured_of_peer`); all peers together leave `own_places` for connect();
//   * half-open connections that peers began have limits of their own, per peer and in all. At the total
//     limit, and where peers have taken all places, a peer with few half-open connections displaces the
//     oldest of a peer with more; where all have few, as forged addresses have, it displaces one of lower
//     standing, or a random one of its own standing. Otherwise a REQ is answered with "no resources".
//     At a peer's own limit its next REQ displaces one that we have answered, or is dropped: it comes again;
//   * a closed connection keeps its place, to repeat a REJ, only until another connection needs the
//     place; answers that belong to no connection wait in a small ring and are dropped when it is full;
//   * every state except established has a deadline, so a silent peer ends in kClosed; a half-open
//     connection that a peer began also has a deadline that no message extends, so a peer that keeps
//     sending ends too;
//   * a message changes a connection only if it comes from the peer's address and has what others can
//     only guess: both communication ids, and the transaction of the exchange (64 bits) or, where it begins
//     one (DREQ), our queue pair number. Our ids and transactions are random in all their bits;
//   * events of a connection come in order: (kRequested or nothing), kConnected, kClosed, each at most
//     once; after kClosed was taken the id is free.
// The transport's retries, not this class, detect the death of an established peer. One thread at a time.
#pragma once

#include <gnstor/base/result.hpp>

#include <gnstor/base/hash.hpp>

#include "base/random.hpp"
#include "rdma/roce/cm_messages.hpp"
#include "rdma/roce/peer_trust.hpp"
#include "rdma/roce/transport.hpp"

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace gnstor::rdma::roce {

using CmId = std::uint32_t;  ///< our communication id

struct CmOptions {
    std::uint32_t connections_max = 256;  ///< at most 4096
    std::uint32_t own_places = 0;         ///< reserved for connect(): peers cannot take them
    /// Of the others, a peer may begin connections while it has fewer than are free, or fewer than this.
    /// Counts all its connections that are not closed.
    std::uint32_t assured_of_peer = 4096;
    std::uint32_t half_open_max = 64;          ///< begun by peers, not yet established or closed
    std::uint32_t half_open_of_peer_max = 64;  ///< of those, begun by one peer: leaves some to others
    std::uint32_t retries = 7;                 ///< of each message except REQ
    /// Of a REQ: 8 s in all, if the caller waits that long: a busy host, or one that loads its drivers
    /// first, may need more than the 4 s of other messages for its first answer. The REQ states the same
    /// number.
    std::uint32_t request_retries = 15;
    TimeNs response_timeout_ns = 500'000'000;
    /// From a peer's REQ to its RTU, however much time it asks for (MRA) and however long the listener
    /// takes. Less than the time in which a target expects Connect: after it, the connection is gone.
    TimeNs half_open_timeout_ns = 4'500'000'000;
    /// Of ids and transactions, in simulations. nullopt: of the kernel's generator, so that nobody guesses
    /// them, and a restarted process uses others.
    std::optional<std::uint64_t> seed = 1;
};

/// Parameters of one side's queue pair, sent to the other side.
struct CmParameters {
    std::uint32_t queue_pair = 0;
    std::uint32_t start_psn = 0;  ///< first PSN that we expect; the peer sends from it
    std::uint8_t responder_resources = 4;
    std::uint8_t initiator_depth = 4;
    std::uint8_t rnr_retries = 7;
    std::uint8_t mtu_code = 3;      ///< REQ
    std::uint8_t ack_timeout = 14;  ///< REQ: ACK timeout for the peer's requester, 4.096 us * 2^n
    std::uint64_t service_id = 0;   ///< REQ
    Gid local_gid{}, remote_gid{};  ///< REQ
    std::uint64_t ca_guid = 0;
    std::span<const std::byte> private_data{};  ///< copied
};

enum class CmEventKind : std::uint8_t { kRequested, kConnected, kClosed };
enum class CmEnd : std::uint8_t { kNone, kRejected, kTimedOut, kDisconnected };

struct CmEvent {
    CmEventKind kind{};
    CmId id = 0;
    CmEnd end = CmEnd::kNone;  ///< kClosed
    Gid peer{};
    CmMessage message;  ///< kRequested: REQ. kConnected by connect(): REP. kClosed, kRejected: REJ
};

class ConnectionManager {
  public:
    explicit ConnectionManager(const CmOptions& options);

    Result<void> listen(std::uint64_t service_id);
    void unlisten(std::uint64_t service_id);
    /// Sends a REQ to `peer`. kNoSpace: the table is full.
    Result<CmId> connect(TimeNs now, const Gid& peer, const CmParameters& mine);
    /// Answers kRequested. kState: the request is not waiting for an answer (any more).
    Result<void> accept(TimeNs now, CmId id, const CmParameters& mine);
    /// Rejects a request, also after accept() as long as its REP has not gone out.
    Result<void> reject(TimeNs now, CmId id, RejectReason reason, std::span<const std::byte> private_data);
    /// Ends the connection in any state; kClosed follows.
    void disconnect(TimeNs now, CmId id);
    /// A packet for the connection's queue pair came before the RTU (12.9.6): counts as an RTU.
    void heard(TimeNs now, CmId id);

    /// `standing`: of the sender of a REQ.
    void on_message(TimeNs now, const Gid& peer, const CmMessage& message,
                    PeerTrust standing = PeerTrust::kNew);
    /// Whether `message` belongs to a connection, by what others than its peer cannot guess.
    [[nodiscard]] bool expects(const Gid& peer, const CmMessage& message) noexcept;
    /// The next message to send, and its destination.
    bool next_message(Gid& peer, CmMessage& message);
    bool next_event(CmEvent& event);
    void on_time(TimeNs now);
    [[nodiscard]] TimeNs next_deadline() const noexcept;
    [[nodiscard]] std::uint32_t open_connections() const noexcept { return used_; }
    [[nodiscard]] std::uint32_t half_open() const noexcept {
        return static_cast<std::uint32_t>(half_open_.size());
    }
    /// Connections that we have ended and whose peers have not acknowledged that yet.
    [[nodiscard]] std::uint32_t disconnecting() const noexcept;
    [[nodiscard]] TimeNs response_timeout() const noexcept { return options_.response_timeout_ns; }

  private:
    enum class State : std::uint8_t {
        kFree,
        kRequestSent,
        kRequested,  ///< the listener decides
        kReplySent,
        kEstablished,
        kDisconnectSent,
        kClosed,  ///< until kClosed was taken; may repeat a REJ until the deadline
    };
    /// Separate from Slot, so that walks over all slots touch little memory and free slots take little.
    struct Words {
        CmMessage message;   ///< last one sent, for retransmission
        CmMessage received;  ///< REQ, REP or REJ, for the event
    };
    struct Slot {
        State state = State::kFree;
        bool passive = false;
        bool send = false;  ///< `message` has to be sent (again)
        bool sent = false;  ///< `message` was sent at least once
        CmId id = 0;
        std::uint32_t generation = 0;
        std::uint32_t remote_id = 0, queue_pair = 0, remote_queue_pair = 0;
        std::uint64_t transaction = 0;  ///< of REQ, REP, RTU, and of MRA and REJ about them
        std::uint32_t tries = 0;
        TimeNs deadline = kNever;
        TimeNs begun = 0;  ///< passive: when the REQ came
        PeerTrust standing = PeerTrust::kNew;
        Gid peer{};
        std::unique_ptr<Words> words;  ///< null in a free slot
        std::uint8_t events = 0;       ///< bits of CmEventKind
        CmEnd end = CmEnd::kNone;
    };
    struct Stateless {
        Gid peer{};
        CmMessage message;
    };

    Slot* take() noexcept;
    Slot* find(CmId id) noexcept;
    /// The connection that `message` belongs to; null: none, or it is forged.
    Slot* find_authentic(const Gid& peer, const CmMessage& message) noexcept;
    Slot* find_request(const Gid& peer, const CmMessage& request) noexcept;
    [[nodiscard]] static bool half_open(const Slot& slot) noexcept {
        return slot.passive && (slot.state == State::kRequested || slot.state == State::kReplySent);
    }
    /// Begun by a peer and not closed: counts towards the places for peers.
    [[nodiscard]] static bool of_peers(const Slot& slot, State state) noexcept {
        return slot.passive && state != State::kFree && state != State::kClosed;
    }
    [[nodiscard]] bool peer_may_begin(const Gid& peer) const noexcept;
    /// Deadline of a half-open connection that a peer began, which nothing extends; kNever for all
    /// others.
    [[nodiscard]] TimeNs half_open_until(const Slot& slot) const noexcept {
        return half_open(slot) ? slot.begun + options_.half_open_timeout_ns : kNever;
    }
    [[nodiscard]] std::uint32_t retries_of(const Slot& slot) const noexcept {
        return slot.state == State::kRequestSent ? options_.request_retries : options_.retries;
    }
    [[nodiscard]] std::uint32_t half_open_of(const Gid& peer) const noexcept;
    bool make_room_for(TimeNs now, const Gid& peer, PeerTrust standing);
    bool make_room_of(TimeNs now, const Gid& peer);
    [[nodiscard]] Slot* least_worth_keeping(TimeNs now, PeerTrust standing, bool of_its_like) noexcept;
    void say(TimeNs now, Slot& slot, const CmMessage& message);
    void set_state(Slot& slot, State state) noexcept;
    /// `farewell`: a last message, repeated until the deadline when the peer repeats its own.
    void close(TimeNs now, Slot& slot, CmEnd end, const CmMessage* farewell = nullptr);
    void give_up(TimeNs now, Slot& slot, CmEnd end);
    void release(Slot& slot) noexcept;
    void on_request(TimeNs now, const Gid& peer, const CmMessage& request, PeerTrust standing);
    void on_reply(TimeNs now, Slot& slot, const CmMessage& reply);
    void answer(const Gid& peer, const CmMessage& to, CmKind kind, RejectReason reason,
                std::uint8_t about) noexcept;
    static CmMessage begin(const Slot& slot, CmKind kind, std::uint64_t transaction) noexcept;
    static void fill(CmMessage& message, const CmParameters& mine) noexcept;

    const CmOptions options_;
    std::vector<Slot> slots_;
    std::vector<std::uint64_t> services_;
    std::array<Stateless, 16> stateless_{};
    std::uint32_t stateless_first_ = 0, stateless_count_ = 0;
    std::uint32_t used_ = 0, of_peers_ = 0;
    std::vector<std::uint16_t> half_open_;  ///< indices of slots, in the order in which they became half-open
    std::uint32_t next_to_send_ = 0, next_to_tell_ = 0;
    RandomSource random_;
    const std::uint64_t hash_key_;
    SplitMix64 dice_;
};

}  // namespace gnstor::rdma::roce
