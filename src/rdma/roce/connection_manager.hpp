// connection_manager.hpp: connections made and ended by messages between queue pairs 1. IBA volume 1, 12.9.
//
// Owns the table of connections from the first message to the last, with the retries of each message. Pure
// like the transport: time and messages are arguments, messages and events are pulled. Invariants
//   * a table of constant size, where a peer may begin as many connections as it leaves free, and all so many
//     that some are left for our own; half-open ones that peers began are limited on their own, beyond which
//     a REQ is answered with "no resources"; those of one peer again on their own, and where peers have taken
//     all places, one that has fewer than another gets the oldest of that one's, and where all have few, as
//     forged addresses have, a place is taken from whom less is known of, else from anyone, by chance; a
//     refusal keeps its place, to be repeated, only until somebody needs it; answers that belong to no
//     connection wait in a small ring that may overflow;
//   * every state but an established one has a deadline, so a silent peer ends in kClosed; what a peer began
//   has one
//     that nothing prolongs, so a talkative one does too;
//   * events of a connection come in order: (kRequested or nothing), kConnected, kClosed, each at most once;
//   after
//     kClosed was taken the id is free.
// Death of an established peer is noticed by the transport's retries, not here. One thread at a time.
#pragma once

#include <gnstor/base/result.hpp>

#include <gnstor/base/hash.hpp>

#include "rdma/roce/cm_messages.hpp"
#include "rdma/roce/standing.hpp"
#include "rdma/roce/transport.hpp"

#include <array>
#include <memory>
#include <vector>

namespace gnstor::rdma::roce {

using CmId = std::uint32_t;  ///< our communication id

struct CmOptions {
    std::uint32_t connections_max = 256;  ///< at most 4096
    std::uint32_t own_places = 0;  ///< of those, that connect() alone takes: peers cannot keep us from others
    /// Of the others a peer begins as many as it leaves free, in whatever state, not counted once closed; and
    /// so many in any case while there are some.
    std::uint32_t assured_of_peer = 4096;
    std::uint32_t half_open_max = 64;  ///< begun by peers and not established, or ended and not yet forgotten
    std::uint32_t half_open_of_peer_max = 64;  ///< of those, begun by one peer: others still get through
    std::uint32_t retries = 7;                 ///< of each message but REQ
    /// Of a REQ, 8 s in all, where the caller waits so long: a host that is busy, or loads its drivers first,
    /// may need more than the 4 s of the others for its first answer. As many as the REQ itself states.
    std::uint32_t request_retries = 15;
    TimeNs response_timeout_ns = 500'000'000;
    /// From a peer's REQ until its RTU, whatever patience it asks for (MRA) and however long the listener
    /// thinks. Below the time in which a target expects Connect: a connection that is not up by then is gone.
    TimeNs half_open_timeout_ns = 4'500'000'000;
    std::uint64_t seed = 1;  ///< of ids, so that those of a restarted process differ
};

/// What one side tells the other of its queue pair.
struct CmParameters {
    std::uint32_t queue_pair = 0;
    std::uint32_t start_psn = 0;  ///< what we expect first; the peer sends from it
    std::uint8_t responder_resources = 4;
    std::uint8_t initiator_depth = 4;
    std::uint8_t rnr_retries = 7;
    std::uint8_t mtu_code = 3;      ///< REQ
    std::uint8_t ack_timeout = 14;  ///< REQ: what the peer's requester is to wait, 4.096 us * 2^n
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
    /// Answers kRequested. kState: not (or no more) to be answered.
    Result<void> accept(TimeNs now, CmId id, const CmParameters& mine);
    /// Takes an acceptance back as long as its REP has not gone out.
    Result<void> reject(TimeNs now, CmId id, RejectReason reason, std::span<const std::byte> private_data);
    /// Ends it from any state; kClosed follows.
    void disconnect(TimeNs now, CmId id);
    /// A packet for its queue pair came before the RTU (12.9.6): as good as an RTU.
    void heard(TimeNs now, CmId id);

    /// `standing`: of a REQ.
    void on_message(TimeNs now, const Gid& peer, const CmMessage& message,
                    Standing standing = Standing::kNew);
    /// Whether it answers what we have told its sender, and nobody else: the id is not to be guessed.
    [[nodiscard]] bool expects(const Gid& peer, const CmMessage& message) noexcept;
    /// The next message to go out, and to whom.
    bool next_message(Gid& peer, CmMessage& message);
    bool next_event(CmEvent& event);
    void on_time(TimeNs now);
    [[nodiscard]] TimeNs next_deadline() const noexcept;
    [[nodiscard]] std::uint32_t open_connections() const noexcept { return used_; }
    [[nodiscard]] std::uint32_t half_open() const noexcept {
        return static_cast<std::uint32_t>(half_open_.size());
    }
    /// Connections that we have ended, of which the peer has not said that it knows.
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
        kClosed,  ///< until kClosed was taken, and a REJ may have to be repeated until the deadline
    };
    /// Apart, so that walks over all places are short, and those that are free take little.
    struct Words {
        CmMessage message;   ///< newest one sent, for repetition
        CmMessage received;  ///< REQ, REP or REJ, for the event
    };
    struct Slot {
        State state = State::kFree;
        bool passive = false;
        bool send = false;  ///< `message` is to go out (again)
        bool sent = false;  ///< `message` has gone out at least once
        CmId id = 0;
        std::uint32_t generation = 0;
        std::uint32_t remote_id = 0, remote_queue_pair = 0;
        std::uint64_t request_transaction = 0;
        std::uint32_t tries = 0;
        TimeNs deadline = kNever;
        TimeNs begun = 0;  ///< passive: when the REQ came
        Standing standing = Standing::kNew;
        Gid peer{};
        std::unique_ptr<Words> words;  ///< null where it is free
        std::uint8_t events = 0;       ///< bits of CmEventKind
        CmEnd end = CmEnd::kNone;
    };
    struct Stateless {
        Gid peer{};
        CmMessage message;
    };

    Slot* take() noexcept;
    Slot* find(CmId id) noexcept;
    Slot* find_request(const Gid& peer, const CmMessage& request) noexcept;
    [[nodiscard]] static bool half_open(const Slot& slot) noexcept {
        return slot.passive && (slot.state == State::kRequested || slot.state == State::kReplySent);
    }
    /// Begun by a peer and not over: takes a place of those that peers may have.
    [[nodiscard]] static bool of_peers(const Slot& slot, State state) noexcept {
        return slot.passive && state != State::kFree && state != State::kClosed;
    }
    [[nodiscard]] bool peer_may_begin(const Gid& peer) const noexcept;
    /// When a half-open connection that a peer began ends in any case; kNever for all others.
    [[nodiscard]] TimeNs half_open_until(const Slot& slot) const noexcept {
        return half_open(slot) ? slot.begun + options_.half_open_timeout_ns : kNever;
    }
    [[nodiscard]] std::uint32_t retries_of(const Slot& slot) const noexcept {
        return slot.state == State::kRequestSent ? options_.request_retries : options_.retries;
    }
    [[nodiscard]] std::uint32_t half_open_of(const Gid& peer) const noexcept;
    bool make_room_for(TimeNs now, const Gid& peer, Standing standing);
    [[nodiscard]] Slot* least_worth_keeping(TimeNs now, Standing standing, bool of_its_like) noexcept;
    void say(TimeNs now, Slot& slot, const CmMessage& message);
    void set_state(Slot& slot, State state) noexcept;
    /// `farewell`: a message that goes out, and again where the peer repeats itself, until the deadline.
    void close(TimeNs now, Slot& slot, CmEnd end, const CmMessage* farewell = nullptr);
    void give_up(TimeNs now, Slot& slot, CmEnd end);
    void release(Slot& slot) noexcept;
    void on_request(TimeNs now, const Gid& peer, const CmMessage& request, Standing standing);
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
    std::vector<std::uint16_t> half_open_;  ///< places, as they came to be so
    std::uint32_t next_slot_ = 0, next_to_send_ = 0, next_to_tell_ = 0;
    std::uint64_t transaction_;
    SplitMix64 dice_;
};

}  // namespace gnstor::rdma::roce
