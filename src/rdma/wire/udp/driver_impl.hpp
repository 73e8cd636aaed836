// driver_impl.hpp: the internals of Driver, for its sources alone: links, the tables that find them,
// timers.
//
// Invariants
//   * a link is in by_queue_pair and by_id from creation to its end, and in no table afterwards; it is
//     freed at the end of a poll, when no list holds it, so an endpoint may close any link from within
//     any call;
//   * a link whose endpoint was told of the end (or closed it) never calls the endpoint again; until the
//     connection manager has closed it, it may still send a NAK that tells the peer the reason;
//   * next_timer <= the earliest deadline of any link; timed holds every link that has one.
// Sources: driver.cpp (opening, closing, the public calls), driver_packets.cpp (packets and timers of
// links), driver_connect.cpp (connection management), driver_watch.cpp (peers that have ended). The
// reactor's thread, unless stated otherwise.
#pragma once

#include "base/random.hpp"
#include "rdma/roce/connection.hpp"
#include "rdma/roce/connection_manager.hpp"
#include "rdma/roce/message_rate_limiter.hpp"
#include "rdma/roce/pacer.hpp"
#include "rdma/roce/peer_trust.hpp"
#include "rdma/roce/peer_watch.hpp"
#include "rdma/wire/udp/address.hpp"
#include "rdma/wire/udp/answering.hpp"
#include "rdma/wire/udp/driver.hpp"
#include "rdma/wire/udp/socket.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace gnstor::rdma::udp {

/// Payload that a link may have in flight, and responses to its READs. The default receive buffer of a
/// socket holds it all while the peer's process is not scheduled (net.core.rmem_default, 208 KiB as the
/// kernel counts: a packet of 4 KiB on loopback counts up to 8.7 KiB, one of 1 KiB 2.3 KiB). Our own
/// buffers are larger (UdpWireOptions).
inline constexpr std::uint32_t kWindowBytes = 64 * 1024;
/// Packets in flight to one peer, of all links together; further links wait in order. Two such flows
/// (requests of both sides) fit a receive buffer like our own; and the bound is small enough that the
/// peer processes the last packet before it would count as lost.
inline constexpr std::uint32_t kPacketsToPeerMin = 16, kPacketsToPeerMax = 256;
/// Packets that a link sends before the next link's turn.
inline constexpr std::uint32_t kPacketsPerTurn = 8;
/// READs of the peer that we execute at once, per link.
inline constexpr std::uint8_t kResponderResources = 16;
/// Range of acknowledgement timeouts, as exponents n of 4.096 us * 2^n: UdpWireOptions sets ours, a peer's
/// REQ may ask for more. 17 ms: a process that is not scheduled for a time slice or two is not dead. With
/// back-off and 7 retries a peer that is gone is noticed after 2 s, or 9 s where it asked for 67 ms.
inline constexpr std::uint8_t kAckTimeoutMin = 12, kAckTimeoutMax = 14;
/// The timeout that our REQ asks of the peer's requester (0.54 s; Linux asks the same). Linux's requester
/// does not back off: after eight such timeouts without progress the connection is lost.
inline constexpr std::uint8_t kAckTimeoutAsked = 17;
/// Connections in total (roce::CmOptions): as many as a NIC has queue pairs.
inline constexpr std::uint32_t kConnectionsMax = 4096;
/// Of those, reserved for connections that we start: a gateway whose hosts take all other places still
/// reaches three nodes of eight SSDs. Quota of a peer (roce::CmOptions): half of what is free of the
/// rest, at least kAssuredOfPeer.
inline constexpr std::uint32_t kOwnPlaces = 1024, kAssuredOfPeer = 16;
/// Half-open connections at once.
inline constexpr std::uint32_t kHalfOpenMax = 256;
/// Of those, from one peer: a peer that floods us does not keep others from connecting.
inline constexpr std::uint32_t kHalfOpenOfPeerMax = 64;
/// Private data of a REQ after the IP addresses (Annex A11).
inline constexpr std::uint32_t kConnectPrivateBytes = 56;
class LinkEnd;

/// State of a thread that waits in connect(); guarded by `mutex`, written by the reactor's thread.
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

/// State of ~Driver(), which waits until all peers have acknowledged the end of their links.
struct Goodbye {
    std::mutex mutex;
    std::condition_variable changed;
    bool said = false;
};

struct Driver::Impl {
    /// All links to one peer, and their packets in flight.
    struct Flow {
        std::uint32_t links = 0, packets = 0;
        std::uint32_t called = 0;      ///< links that were told to continue and have not sent yet
        std::deque<LinkEnd*> waiting;  ///< links that wait for room
        roce::Pacer pacer;             ///< paces responses to its READs
        std::uint32_t owing = 0;       ///< links on which the peer owes responses
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
    /// Encodes a packet and queues it; false: no room.
    bool send(const roce::Packet& packet, const IpAddress& peer);
    /// Delivers completions and a failure, and notes the next deadline; call after every change of a
    /// link.
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
    /// On the answering thread: passes the acceptor's reply to the reactor.
    void answered(const PendingArrival& arrival, const ArrivalReply& reply);
    void accept(roce::TimeNs now, const PendingArrival& arrival, const ArrivalReply& reply);
    Result<void> begin_connect(Waiter& waiter, std::span<const std::byte> private_data);
    void finish(Waiter& waiter, std::optional<Error> failure);
    void give_up(Waiter& waiter, std::uint32_t timeout_ms);
    [[nodiscard]] std::uint32_t random_psn();

    // driver_watch.cpp
    std::uint32_t watch_peers(roce::TimeNs now);
    void probe(const IpAddress& peer);
    /// Processes at most `most` ICMP messages; returns how many.
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
    RandomSource random;
    const std::uint64_t guid;
    const std::uint32_t packets_to_peer_max;
    std::map<roce::Gid, Flow> flows;  ///< of peers to which links exist

    std::unordered_map<QpNumber, LinkEnd*> by_queue_pair;
    std::unordered_map<roce::CmId, LinkEnd*> by_id;
    std::vector<std::unique_ptr<LinkEnd>> links;  ///< also ended ones, until they are freed
    bool any_dead = false;
    LinkEnd *ready_first = nullptr, *ready_last = nullptr;  ///< links that may have something to send
    std::vector<LinkEnd*> timed, touched;
    roce::TimeNs next_timer = roce::kNever;

    bool manager_changed = false;  ///< the manager may have events or messages
    roce::TimeNs manager_deadline = roce::kNever;
    std::uint32_t management_psn = 0;
    roce::MessageRateLimiter message_budget;
    roce::PeerTrustTable peer_standing;
    std::map<std::uint16_t, Acceptor*> listening;
    /// Requests that acceptors have not answered yet.
    std::unordered_map<roce::CmId, Requested> requests;
    std::vector<Waiter*> waiters;
    Goodbye* goodbye = nullptr;  ///< not null: ~Driver() waits

    roce::TimeNs receive_at = 0, errors_at = 0;
    roce::TimeNs next_watch = roce::kNever;  ///< <= the earliest deadline of any Flow::watch
    Tap* tap = nullptr;
    UdpWireCounters tally{};

    std::unique_ptr<AnsweringThread> answering;
};

/// A connection, from creation to its end.
class LinkEnd final : public Link, private roce::MemoryPort {
  public:
    enum class State : std::uint8_t {
        kAccepted,  ///< we accepted; the peer has not confirmed our REP
        kUp,
        kTold,  ///< the endpoint was told or closed it; a last NAK may go out
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
    /// Counts the messages that the peer owes: sent minus received. The protocols above answer each
    /// message by one (NVMe over Fabrics).
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
    const std::uint32_t start_psn;  ///< first PSN of the peer, as told in our REP or REQ
    State state = State::kUp;
    std::uint16_t port = 0;        ///< kAccepted: port of its acceptor
    Acceptor* acceptor = nullptr;  ///< kAccepted
    bool in_ready = false, in_timed = false, in_touched = false;
    LinkEnd* next_ready = nullptr;
    std::uint64_t retransmissions_counted = 0;
    Driver::Impl::Flow* flow = nullptr;  ///< null when dead
    std::uint32_t counted_on_their_way = 0;
    std::int64_t owed = 0;                    ///< note_owed(); negative on the side that answers
    bool answer_asked = true;                 ///< the last request sent asked for an acknowledgement
    bool in_waiting = false, called = false;  ///< state in its flow

  private:
    // The connection may still respond after the endpoint is gone: then no memory is reachable.
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
