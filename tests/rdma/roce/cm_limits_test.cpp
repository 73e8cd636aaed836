// cm_limits_test.cpp: what one peer, or time, may take of the table of connections, whatever it says.
#include "cm_rig.hpp"

#include <gtest/gtest.h>

using namespace gnstor;
using namespace gnstor::rdma::roce;
using samples::address_of;

namespace cm_limits_test {

constexpr std::uint64_t kService = service_of_port(4420);

CmMessage request(std::uint32_t id) {
    CmMessage m;
    m.kind = CmKind::kRequest;
    m.service_id = kService;
    m.local_id = m.queue_pair = id;
    m.transaction = id;
    return m;
}

std::optional<CmMessage> next_of_kind(ConnectionManager& manager, CmKind kind) {
    std::optional<CmMessage> found;
    Gid to;
    CmMessage message;
    while (manager.next_message(to, message))
        if (message.kind == kind) found = message;
    return found;
}

/// The id of the connection that `peer` asked for, if it is one that its listener hears of.
std::optional<CmId> ask(ConnectionManager& manager, TimeNs now, const Gid& peer, std::uint32_t id) {
    manager.on_message(now, peer, request(id));
    CmEvent event;
    std::optional<CmId> asked;
    while (manager.next_event(event))
        if (event.kind == CmEventKind::kRequested) asked = event.id;
    return asked;
}

TEST(RoceCmLimits, APeerThatKeepsSendingMraIsAbandonedInBoundedTime) {
    CmOptions options = samples::CmRig::options(1);
    ConnectionManager manager(options);
    ASSERT_TRUE(manager.listen(kService).ok());
    TimeNs now = 1'000'000'000;
    const TimeNs begun = now;
    const auto id = ask(manager, now, address_of(7), 5);
    ASSERT_TRUE(id);
    now += 2'000'000'000;  // the listener thinks
    manager.on_time(now);
    ASSERT_TRUE(manager.accept(now, *id, CmParameters{}).ok());
    CmMessage wait = *next_of_kind(manager, CmKind::kReply);
    std::swap(wait.local_id, wait.remote_id);
    wait.kind = CmKind::kReceipt;
    wait.service_timeout = 31;
    std::optional<CmEnd> end;
    std::uint32_t asked = 0;
    while (!end && manager.next_deadline() != kNever) {
        manager.on_message(now, address_of(7), wait);
        ++asked;
        now = manager.next_deadline();
        manager.on_time(now);
        CmEvent event;
        while (manager.next_event(event)) {
            ASSERT_EQ(event.kind, CmEventKind::kClosed);
            end = event.end;
        }
    }
    ASSERT_TRUE(end);
    EXPECT_EQ(*end, CmEnd::kTimedOut);
    EXPECT_EQ(now, begun + options.half_open_timeout_ns) << "after " << asked << " messages";
    EXPECT_EQ(manager.half_open(), 0u);
    const auto told = next_of_kind(manager, CmKind::kReject);
    ASSERT_TRUE(told) << "the peer must be told, so that it frees its queue pair";
    EXPECT_EQ(told->reason, RejectReason::kTimeout);
}

TEST(RoceCmLimits, AnUndecidedListenerReleasesItsHalfOpenEntryAfterATimeout) {
    CmOptions options = samples::CmRig::options(1);
    ConnectionManager manager(options);
    ASSERT_TRUE(manager.listen(kService).ok());
    const auto id = ask(manager, 10, address_of(7), 5);
    ASSERT_TRUE(id);
    manager.on_time(10 + options.half_open_timeout_ns);
    EXPECT_FALSE(manager.accept(10 + options.half_open_timeout_ns, *id, CmParameters{}).ok());
    EXPECT_EQ(manager.half_open(), 0u);
}

/// A table of 16: 4 for our own connections, and 2 assured for each peer.
CmOptions small_table() {
    CmOptions options = samples::CmRig::options(1);
    options.connections_max = 16;
    options.half_open_max = 4;
    options.own_places = 4;
    options.assured_of_peer = 2;
    return options;
}

/// `peer` asks for so many connections, accepted and made at once; those that it got.
std::vector<CmId> take_connections(ConnectionManager& manager, const Gid& peer, std::uint32_t first,
                                   std::uint32_t count) {
    std::vector<CmId> got;
    for (std::uint32_t i = first; i < first + count; ++i) {
        const auto id = ask(manager, 0, peer, i);
        if (!id) continue;
        EXPECT_TRUE(manager.accept(0, *id, CmParameters{}).ok());
        manager.heard(0, *id);
        got.push_back(*id);
    }
    return got;
}

TEST(RoceCmLimits, OnePeerLeavesAsManyConnectionsForOthersAndAllPeersSomeForOurOwn) {
    ConnectionManager manager(small_table());
    ASSERT_TRUE(manager.listen(kService).ok());
    EXPECT_EQ(take_connections(manager, address_of(7), 100, 40).size(), 6u);
    const auto refused = next_of_kind(manager, CmKind::kReject);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->reason, RejectReason::kNoResources);
    EXPECT_EQ(take_connections(manager, address_of(8), 200, 5).size(), 3u) << "half of the rest";
    EXPECT_EQ(take_connections(manager, address_of(9), 300, 5).size(), 2u) << "what each is assured of";
    EXPECT_EQ(take_connections(manager, address_of(10), 400, 5).size(), 1u) << "what peers have together";
    for (std::uint32_t i = 0; i < 4; ++i)
        EXPECT_TRUE(manager.connect(0, address_of(3), CmParameters{}).ok()) << "our own, number " << i;
    EXPECT_FALSE(manager.connect(0, address_of(3), CmParameters{}).ok());
    EXPECT_EQ(manager.open_connections(), 16u);
}

TEST(RoceCmLimits, AConnectionThatWeEndedCountsForItsPeerUntilThePeerConfirms) {
    ConnectionManager manager(small_table());
    ASSERT_TRUE(manager.listen(kService).ok());
    const auto got = take_connections(manager, address_of(7), 100, 6);
    ASSERT_EQ(got.size(), 6u);
    for (const CmId id : got) manager.disconnect(0, id);
    Gid to;
    CmMessage ended;
    ASSERT_TRUE(manager.next_message(to, ended));
    EXPECT_EQ(manager.disconnecting(), 6u);
    EXPECT_TRUE(take_connections(manager, address_of(7), 200, 6).empty())
        << "a silent peer must not get more connections";
    CmMessage known;
    known.kind = CmKind::kDisconnected;
    known.transaction = ended.transaction;
    known.local_id = ended.remote_id;
    known.remote_id = ended.local_id;
    manager.on_message(0, address_of(7), known);
    EXPECT_EQ(take_connections(manager, address_of(7), 400, 6).size(), 1u) << "for the one that it answered";
    EXPECT_EQ(take_connections(manager, address_of(8), 300, 2).size(), 2u)
        << "other peers must get their connections";
}

TEST(RoceCmLimits, HalfOpenConnectionsAreReplacedWhenTheTableIsFull) {
    ConnectionManager manager(small_table());
    ASSERT_TRUE(manager.listen(kService).ok());
    ASSERT_EQ(take_connections(manager, address_of(7), 100, 6).size(), 6u);
    ASSERT_EQ(take_connections(manager, address_of(8), 200, 4).size(), 3u);
    for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(ask(manager, 0, address_of(20 + i), 300 + i));
    EXPECT_TRUE(ask(manager, 1'000'000'000, address_of(30), 400))
        << "a connection that is half-open for long must be replaced";
    EXPECT_EQ(manager.half_open(), 3u);
    EXPECT_FALSE(ask(manager, 1'000'000'000, address_of(7), 500))
        << "a peer that already has its share must not replace it";
}

TEST(RoceCmLimits, HalfOpenConnectionsAreReplacedWhenOurOwnExceedTheirShare) {
    ConnectionManager manager(small_table());
    ASSERT_TRUE(manager.listen(kService).ok());
    for (std::uint32_t i = 0; i < 14; ++i)
        ASSERT_TRUE(manager.connect(0, address_of(3), CmParameters{}).ok());
    for (std::uint32_t i = 0; i < 2; ++i) ASSERT_TRUE(ask(manager, 0, address_of(20 + i), 300 + i));
    // Its place is free when the end of who had it was told.
    EXPECT_FALSE(ask(manager, 1'000'000'000, address_of(30), 400));
    EXPECT_FALSE(next_of_kind(manager, CmKind::kReject))
        << "the request must be dropped without a REJ, so that the peer repeats it";
    EXPECT_TRUE(ask(manager, 1'500'000'000, address_of(30), 400));
    EXPECT_EQ(manager.half_open(), 2u);
}

TEST(RoceCmLimits, AddressesOfOneIpv6NetworkShareThePlacesOfOnePeerAndLeaveSomeToEachOther) {
    CmOptions options = small_table();
    options.connections_max = 64;
    ConnectionManager manager(options);
    ASSERT_TRUE(manager.listen(kService).ok());
    const auto v6 = [](std::uint8_t network, std::uint8_t host) {
        return Gid{0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, network, 0, 0, 0, 0, 0, 0, 0, host};
    };
    EXPECT_EQ(take_connections(manager, v6(1, 1), 1000, 60).size(), 20u) << "of 60";
    EXPECT_EQ(take_connections(manager, v6(1, 2), 2000, 60).size(), 7u);
    std::size_t others = 0;
    for (std::uint8_t host = 3; host < 20; ++host)
        others += take_connections(manager, v6(1, host), 3000u + 100u * host, 60).size();
    EXPECT_EQ(others, 3u) << "together half";
    EXPECT_EQ(take_connections(manager, v6(2, 1), 8000, 60).size(), 10u) << "another network";
    EXPECT_EQ(take_connections(manager, address_of(7), 9000, 60).size(), 10u)
        << "IPv4 addresses are told apart";
}

/// A peer whose REQ was accepted; the REP has not been taken from the manager.
struct Accepted {
    Accepted() {
        EXPECT_TRUE(manager.listen(kService).ok());
        CmParameters asked;
        asked.service_id = kService;
        EXPECT_TRUE(peer.connect(0, address_of(3), asked).ok());
        manager.on_message(0, address_of(7), *next_of_kind(peer, CmKind::kRequest));
        CmEvent event;
        EXPECT_TRUE(manager.next_event(event));
        id = event.id;
        CmParameters mine;
        mine.ca_guid = 77;
        EXPECT_TRUE(manager.accept(0, id, mine).ok());
    }
    /// The reason that the peer reads in `told`.
    std::optional<RejectReason> heard(const CmMessage& told) {
        peer.on_message(0, address_of(3), told);
        CmEvent event;
        if (!peer.next_event(event) || event.end != CmEnd::kRejected) return std::nullopt;
        return event.message.reason;
    }

    ConnectionManager manager{small_table()}, peer{small_table()};
    CmId id = 0;
};

TEST(RoceCmLimits, AnAcceptedPeerThatIsAbandonedGetsARejectThatItUnderstands) {
    Accepted one;
    ASSERT_TRUE(next_of_kind(one.manager, CmKind::kReply)) << "which is lost";
    EXPECT_FALSE(one.manager.reject(0, one.id, RejectReason::kInvalidService, {}).ok()) << "it has the REP";
    one.manager.disconnect(0, one.id);
    const auto told = next_of_kind(one.manager, CmKind::kReject);
    ASSERT_TRUE(told) << "it has sent no RTU, so it does not hear a DREQ";
    EXPECT_EQ(told->about, 1u);
    EXPECT_EQ(told->ca_guid, 77u) << "by which Linux finds it";
    EXPECT_EQ(one.heard(*told), RejectReason::kTimeout);
}

TEST(RoceCmLimits, AnUnsentAcceptanceIsWithdrawnAsARejectOfTheRequest) {
    for (const bool unlistened : {true, false}) {
        Accepted one;
        if (unlistened) {
            EXPECT_TRUE(one.manager.reject(0, one.id, RejectReason::kInvalidService, {}).ok());
        } else {
            one.manager.disconnect(0, one.id);
        }
        const auto told = next_of_kind(one.manager, CmKind::kReject);
        ASSERT_TRUE(told);
        EXPECT_EQ(told->about, 0u) << "the peer knows of no REP";
        EXPECT_EQ(one.heard(*told), unlistened ? RejectReason::kInvalidService : RejectReason::kConsumer);
        EXPECT_FALSE(next_of_kind(one.manager, CmKind::kReply));
    }
}

}  // namespace cm_limits_test
