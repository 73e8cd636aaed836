// driver_impl.hpp: what is inside a Driver, for its sources alone: links, the tables that find them, timers.
//
// Invariants
//   * a link is in by_queue_pair and by_id from its making until its end, and in no table after; it is freed
//     at the end of a poll, when no list holds it, so an endpoint may close any link from within any call;
//   * a link whose end was told (or which was closed) never calls its endpoint again; until the connection
//     manager has closed it, it may still send what tells the peer why (a NAK);
//   * next_timer <= the earliest deadline of any link; timed holds every link that has one.
// Sources: driver.cpp (opening, closing, the public calls), driver_packets.cpp (packets and timers of links),
// driver_connect.cpp (connection management), driver_watch.cpp (peers that have ended). The reactor's thread,
// where nothing else is said.
#pragma once

#include "rdma/roce/connection.hpp"
#include "rdma/roce/connection_manager.hpp"
#include "rdma/roce/message_budget.hpp"
#include "rdma/roce/pacer.hpp"
#include "rdma/roce/peer_watch.hpp"
#include "rdma/roce/standing.hpp"
#include "rdma/wire/udp/address.hpp"
#include "rdma/wire/udp/answering.hpp"
#include "rdma/wire/udp/driver.hpp"
#include "rdma/wire/udp/socket.hpp"

#include <gnstor/base/hash.hpp>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace gnstor::rdma::udp {

/// Payload that a link may have on its way, and answers to its READs. A peer with a socket's default buffer
/// (net.core.rmem_default, 208 KiB of the kernel's own measure, by which a packet of 4 KiB on loopback weighs
/// up to 8.7 KiB, one of 1 KiB 2.3 KiB) holds it all without its process being scheduled; ours ask for
/// kReceiveBufferBytes.
inline constexpr std::uint32_t kWindowBytes = 64 * 1024;
/// Packets on their way to one peer, of all links together; the links beyond wait in order. As many as two
/// such flows, requests of both sides, take of a receive buffer like our own; and not so many that the last
/// of them seems lost before it is looked at.
inline constexpr std::uint32_t kPacketsToPeerMin = 16, kPacketsToPeerMax = 256;
/// Packets that a link sends before it is the next one's turn.
inline constexpr std::uint32_t kPacketsPerTurn = 8;
/// READs of peers that we answer at once, a link.
inline constexpr std::uint8_t kResponderResources = 16;
/// Of ours and of those that a peer may suggest: 4.096 us times 2 to the power of it. 17 ms: a process that
/// the scheduler keeps from its core for a time slice or two is not dead; with the back-off and 7 retries a
/// peer that is gone is noticed after 2 s, or 9 s where it asked for 67 ms.
inline constexpr std::uint8_t kAckTimeoutMin = 12, kAckTimeoutMax = 14;
/// What a peer's requester is asked to wait for us (0.54 s; Linux asks the same). Linux's neither backs off
/// nor forgives: after eight such times without progress the connection is lost.
inline constexpr std::uint8_t kAckTimeoutAsked = 17;
/// Connections at once (roce::CmOptions): as many as a NIC has queue pairs.
inline constexpr std::uint32_t kConnectionsMax = 4096;
/// Of those, for connections that begin here: a gateway whose hosts take all they get still reaches three
/// nodes of eight SSDs. Of the rest a peer gets as many as it leaves free, or a few in any case.
inline constexpr std::uint32_t kOwnPlaces = 1024, kAssuredOfPeer = 16;
/// Half-open ones at once.
inline constexpr std::uint32_t kHalfOpenMax = 256;
/// Of those, of one peer: one that floods us does not keep others from connecting.
inline constexpr std::uint32_t kHalfOpenOfPeerMax = 64;
/// Private data of a REQ behind the IP addresses (Annex A11).
inline constexpr std::uint32_t kConnectPrivateBytes = 56;
class LinkEnd;

/// connect() in its thread, waiting; guarded by `mutex`, written by the reactor's thread.
struct Waiter {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::optional<Error> failure;
    roce::RejectReason reason = roce::RejectReason::kNone;  ///< of a REJ
    std::vector<std::byte> private_data;
    // The reactor's thread alone.
    roce::CmId id = 0;
    QpNumber qp = 0;
    Endpoint* endpoint = nullptr;
    IpAddress peer;
    std::uint16_t port = 0;
    LinkOptions options;
    std::uint32_t start_psn = 0;
    std::uint32_t mtu = 0;
    Link** link = nullptr;
};

/// The destructor in its thread, waiting until all peers have said that they know of the end of their links.
struct Goodbye {
    std::mutex mutex;
    std::condition_variable changed;
    bool said = false;
};

struct Driver::Impl {
    /// All that is on its way to one peer.
    struct Flow {
        std::uint32_t links = 0, packets = 0;
        std::uint32_t called = 0;      ///< links that may go on and have not been looked at yet
        std::deque<LinkEnd*> waiting;  ///< for room
        roce::Pacer pacer;             ///< of answers to its READs
        std::uint32_t owing = 0;       ///< links to which the peer owes messages
        roce::PeerWatch watch;
    };
    struct Requested {
        roce::CmMessage message;
        IpAddress peer;
    };

    Impl(const UdpWireOptions& options, const IpAddress& bound, std::uint32_t wire_mtu, Reactor& on,
         std::unique_ptr<PacketSocket> opened);
    ~Impl();

    // driver.cpp
    std::uint32_t poll();
    static roce::TimeNs clock() noexcept;
    void bury();
    LinkEnd* make_link(QpNumber qp, Endpoint& endpoint, const IpAddress& peer, roce::CmId id,
                       const roce::RequesterOptions& requester, const roce::ResponderOptions& responder);
    [[nodiscard]] LinkEnd* find(QpNumber qp) const;
    [[nodiscard]] UdpWireCounters counters() const;

    // driver_packets.cpp
    std::uint32_t receive(roce::TimeNs now);
    void on_datagram(roce::TimeNs now, const Arrived& arrived);
    void on_management(roce::TimeNs now, const Arrived& arrived, const roce::Packet& packet);
    bool icrc_good(const Arrived& arrived);
    [[nodiscard]] bool knows(const IpAddress& peer) const;
    std::uint32_t run_timers(roce::TimeNs now);
    std::uint32_t pump(roce::TimeNs now);
    void count_flow(LinkEnd& link);
    void call_waiting(Flow& flow);
    [[nodiscard]] bool may_request(LinkEnd& link);
    /// Encodes and queues; false: no room.
    bool send(const roce::Packet& packet, const IpAddress& peer);
    /// Completions, the failure if there is one, the next deadline; after whatever happened to the link.
    void settle(LinkEnd& link);
    void make_ready(LinkEnd& link);
    void end(LinkEnd& link, mlx5::Syndrome why);
    void forget(LinkEnd& link);

    // driver_connect.cpp
    void serve_manager(roce::TimeNs now);
    void on_event(roce::TimeNs now, const roce::CmEvent& event);
    void on_requested(roce::TimeNs now, const roce::CmEvent& event);
    void on_connected(roce::TimeNs now, const roce::CmEvent& event);
    void on_closed(roce::TimeNs now, const roce::CmEvent& event);
    void end_replaced(const LinkEnd& by);
    /// The answering thread: what an acceptor said goes to the reactor.
    void answered(const PendingArrival& arrival, const ArrivalReply& reply);
    void accept(roce::TimeNs now, const PendingArrival& arrival, const ArrivalReply& reply);
    Result<void> begin_connect(Waiter& waiter, std::span<const std::byte> private_data);
    void finish(Waiter& waiter, std::optional<Error> failure);
    void give_up(Waiter& waiter, std::uint32_t timeout_ms);
    [[nodiscard]] std::uint32_t random_psn();

    // driver_watch.cpp
    std::uint32_t watch_peers(roce::TimeNs now);
    void probe(const IpAddress& peer);
    /// Takes at most so many ICMP messages; how many.
    std::uint32_t on_unreachable(roce::TimeNs now, std::uint32_t most);
    void on_port_closed(roce::TimeNs now, const Unreachable& message);
    void end_all(const IpAddress& peer);

    const UdpWireOptions options;
    const IpAddress address;
    const std::string address_text;
    const std::uint32_t mtu;
    Reactor& reactor;
    const std::unique_ptr<PacketSocket> socket;
    roce::ConnectionManager manager;
    SplitMix64 dice;
    const std::uint64_t guid;
    const std::uint32_t packets_to_peer_max;
    std::map<roce::Gid, Flow> flows;  ///< of peers that there are links with

    std::unordered_map<QpNumber, LinkEnd*> by_queue_pair;
    std::unordered_map<roce::CmId, LinkEnd*> by_id;
    std::vector<std::unique_ptr<LinkEnd>> links;  ///< living and dead
    bool any_dead = false;
    LinkEnd *ready_first = nullptr, *ready_last = nullptr;  ///< links that may have something to send
    std::vector<LinkEnd*> timed, touched;
    roce::TimeNs next_timer = roce::kNever;

    bool manager_changed = false;  ///< events or messages may be there
    roce::TimeNs manager_deadline = roce::kNever;
    std::uint32_t management_psn = 0;
    roce::MessageBudget message_budget;
    roce::PeerStanding peer_standing;
    std::map<std::uint16_t, Acceptor*> listening;
    /// Requests that acceptors have not answered yet, with what was asked.
    std::unordered_map<roce::CmId, Requested> requests;
    std::vector<Waiter*> waiters;
    Goodbye* goodbye = nullptr;  ///< ~Driver() waits

    roce::TimeNs receive_at = 0, errors_at = 0;
    roce::TimeNs next_watch = roce::kNever;  ///< <= the earliest deadline of any Flow::watch
    Tap* tap = nullptr;
    UdpWireCounters tally{};

    std::unique_ptr<AnsweringThread> answering;
};

/// A connection, from its making to its end.
class LinkEnd final : public Link, private roce::MemoryPort {
  public:
    enum class State : std::uint8_t {
        kAccepted,  ///< the peer has our REP, perhaps; its acceptor waits
        kUp,
        kTold,  ///< the endpoint was told, or closed it; what tells the peer may still go out
        kDead,  ///< in no table
    };

    LinkEnd(Driver::Impl& owner, QpNumber number, Endpoint& upper, const IpAddress& other, roce::CmId cm,
            const roce::RequesterOptions& requester, const roce::ResponderOptions& responder)
        : driver(owner),
          qp(number),
          peer(other),
          id(cm),
          reads_max(requester.reads_max),
          endpoint(&upper),
          connection(requester, responder, *this),
          peer_queue_pair(requester.peer_queue_pair),
          start_psn(responder.start_psn) {}

    Result<void> post(const roce::Request& request) override;
    [[nodiscard]] bool full() const noexcept override { return connection.requester().full(); }
    void close() override;
    /// Messages that the peer owes: those that were sent less those that came. The protocols above answer
    /// each message by one (NVMe over Fabrics).
    void note_owed(std::int64_t change);
    [[nodiscard]] bool listed() const noexcept { return in_ready || in_timed || in_touched; }

    Driver::Impl& driver;
    const QpNumber qp;
    const IpAddress peer;
    const roce::CmId id;
    const std::uint32_t reads_max;
    Endpoint* endpoint;  ///< null from kTold on
    roce::Connection connection;
    const std::uint32_t peer_queue_pair;
    const std::uint32_t start_psn;  ///< of what comes: told in our REP, or REQ
    State state = State::kUp;
    std::uint16_t port = 0;        ///< kAccepted: whose acceptor waits
    Acceptor* acceptor = nullptr;  ///< kAccepted
    bool in_ready = false, in_timed = false, in_touched = false;
    LinkEnd* next_ready = nullptr;
    std::uint64_t retransmissions_counted = 0;
    Driver::Impl::Flow* flow = nullptr;  ///< null when dead
    std::uint32_t counted_on_their_way = 0;
    std::int64_t owed = 0;                    ///< note_owed(); below zero on the side that answers
    bool answer_asked = true;                 ///< by the last request that went out
    bool in_waiting = false, called = false;  ///< of the flow

  private:
    // The endpoint may be gone while the connection still answers: then nothing can be reached.
    std::byte* reach(std::uint32_t rkey, std::uint64_t at, std::uint32_t bytes, roce::Right right) override {
        return endpoint != nullptr ? endpoint->reach(rkey, at, bytes, right) : nullptr;
    }
    bool invalidate(std::uint32_t rkey) override { return endpoint != nullptr && endpoint->invalidate(rkey); }
    bool take_receive(roce::ReceiveBuffer& receive) override {
        return endpoint != nullptr && endpoint->take_receive(receive);
    }
    void received(const roce::Received& what) override {
        if (what.status == mlx5::kSyndromeNone) note_owed(-1);
        if (endpoint != nullptr) endpoint->received(what);
    }
};

}  // namespace gnstor::rdma::udp
