// cm_test.cpp: both ends agree on a connection, or both know in bounded time that there is none.
#include "cm_rig.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

using namespace gnstor;
using namespace gnstor::rdma::roce;
using samples::address_of;
using samples::CmRig;

namespace {

constexpr std::uint64_t kService = service_of_port(4420);

CmParameters parameters(std::uint32_t queue_pair) {
    CmParameters p;
    p.queue_pair = queue_pair;
    p.start_psn = queue_pair * 3;
    p.service_id = kService;
    return p;
}

const CmEvent* find_event(const CmRig& rig, std::uint32_t node, CmEventKind kind) {
    for (const CmEvent& event : rig.events[node]) {
        if (event.kind == kind) return &event;
    }
    return nullptr;
}

/// What a manager that listens says to a REQ that was changed: kNone, where it asks its listener.
template <class Change>
RejectReason said_to(Change change) {
    CmRig rig(1, 0);
    EXPECT_TRUE(rig.managers[1].listen(kService).ok());
    EXPECT_TRUE(rig.managers[0].connect(0, address_of(1), parameters(0x11)).ok());
    rig.pump();
    change(rig.wire.begin()->second.second);
    rig.step();
    if (find_event(rig, 1, CmEventKind::kRequested) != nullptr) return RejectReason::kNone;
    EXPECT_EQ(rig.managers[1].half_open(), 0u) << "a refusal of this kind keeps no place";
    while (rig.step() && find_event(rig, 0, CmEventKind::kClosed) == nullptr) {
    }
    const CmEvent* const closed = find_event(rig, 0, CmEventKind::kClosed);
    EXPECT_TRUE(closed != nullptr && closed->end == CmEnd::kRejected);
    return closed == nullptr ? RejectReason::kNone : closed->message.reason;
}

TEST(RoceCm, ARequestThatCannotBeServedIsRejectedWithItsReason) {
    EXPECT_EQ(said_to([](CmMessage&) {}), RejectReason::kNone);
    for (const std::uint8_t service : {1, 2, 3})
        EXPECT_EQ(said_to([&](CmMessage& m) { m.transport_service = service; }),
                  RejectReason::kInvalidTransport);
    for (const std::uint16_t key : {0x1234, 0x8001, 0x0000, 0x8000, 0xFFFE, 0x7FFE})
        EXPECT_EQ(said_to([&](CmMessage& m) { m.partition_key = key; }), RejectReason::kInvalidPath) << key;
    EXPECT_EQ(said_to([](CmMessage& m) { m.partition_key = 0x7FFF; }), RejectReason::kNone)
        << "a limited member of our partition, of which we are a full one";
}

TEST(RoceCm, TwoEndsConnectExchangeParametersAndDisconnect) {
    CmRig rig(1, 0);
    ASSERT_TRUE(rig.managers[1].listen(kService).ok());
    EXPECT_FALSE(rig.managers[1].listen(kService).ok());
    const std::byte data[4] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
    CmParameters mine = parameters(0x11);
    mine.private_data = data;
    const auto id = rig.managers[0].connect(0, address_of(1), mine);
    ASSERT_TRUE(id.ok());
    rig.pump();
    rig.step();
    const CmEvent* asked = find_event(rig, 1, CmEventKind::kRequested);
    ASSERT_NE(asked, nullptr);
    EXPECT_EQ(asked->message.queue_pair, 0x11u);
    EXPECT_EQ(asked->message.start_psn, 0x33u);
    EXPECT_EQ(asked->message.private_data[3], std::byte{4});
    const CmId theirs = asked->id;
    ASSERT_TRUE(rig.managers[1].accept(rig.now, theirs, parameters(0x22)).ok());
    EXPECT_FALSE(rig.managers[1].accept(rig.now, theirs, parameters(0x22)).ok()) << "once";
    rig.pump();
    while (rig.step()) {
    }
    const CmEvent* connected = find_event(rig, 0, CmEventKind::kConnected);
    ASSERT_NE(connected, nullptr);
    EXPECT_EQ(connected->message.queue_pair, 0x22u);
    EXPECT_NE(find_event(rig, 1, CmEventKind::kConnected), nullptr);
    EXPECT_EQ(rig.managers[1].half_open(), 0u);
    rig.managers[1].disconnect(rig.now, theirs);
    rig.pump();
    while (rig.step()) {
    }
    for (std::uint32_t node = 0; node < 2; ++node) {
        const CmEvent* closed = find_event(rig, node, CmEventKind::kClosed);
        ASSERT_NE(closed, nullptr);
        EXPECT_EQ(closed->end, CmEnd::kDisconnected);
        EXPECT_EQ(rig.managers[node].open_connections(), 0u);
    }
    EXPECT_EQ(rig.sent, 5u) << "REQ, REP, RTU, DREQ, DREP";
}

TEST(RoceCm, ConnectingToASilentPeerARefusingPeerOrAMissingServiceEnds) {
    CmRig rig(2, 0);
    ASSERT_TRUE(rig.managers[1].listen(kService).ok());
    CmParameters wrong = parameters(1);
    wrong.service_id = 5;
    const auto no_service = rig.managers[0].connect(0, address_of(1), wrong);
    const auto refused = rig.managers[0].connect(0, address_of(1), parameters(2));
    ASSERT_TRUE(no_service.ok() && refused.ok());
    rig.pump();
    while (find_event(rig, 1, CmEventKind::kRequested) == nullptr) ASSERT_TRUE(rig.step());
    const std::byte why[4] = {std::byte{0}, std::byte{0}, std::byte{6}, std::byte{0}};
    ASSERT_TRUE(rig.managers[1].reject(rig.now, rig.events[1][0].id, RejectReason::kConsumer, why).ok());
    rig.pump();
    while (rig.step()) {
    }
    ASSERT_EQ(rig.events[0].size(), 2u);
    EXPECT_EQ(rig.events[0][0].message.reason, RejectReason::kInvalidService);
    EXPECT_EQ(rig.events[0][1].message.reason, RejectReason::kConsumer);
    EXPECT_EQ(rig.events[0][1].message.private_data[2], std::byte{6});
    EXPECT_EQ(rig.managers[1].open_connections(), 0u);

    CmRig dead(3, 1000);
    const auto id = dead.managers[0].connect(0, address_of(1), parameters(2));
    ASSERT_TRUE(id.ok());
    dead.pump();
    while (dead.step()) {
    }
    ASSERT_EQ(dead.events[0].size(), 1u);
    EXPECT_EQ(dead.events[0][0].end, CmEnd::kTimedOut);
    EXPECT_EQ(dead.sent, 16u) << "once and fifteen retries";
}

TEST(RoceCm, AFloodOfHalfOpenConnectionsIsBoundedAndPasses) {
    CmRig rig(4, 0);
    ASSERT_TRUE(rig.managers[1].listen(kService).ok());
    CmMessage request;
    request.kind = CmKind::kRequest;
    request.service_id = kService;
    for (std::uint32_t i = 0; i < 10'000; ++i) {
        request.local_id = i;
        request.transaction = i;
        rig.managers[1].on_message(0, address_of(7), request);
        ASSERT_LE(rig.managers[1].half_open(), 8u);
    }
    EXPECT_EQ(rig.managers[1].open_connections(), 8u);
    const auto id = rig.managers[1].connect(0, address_of(0), parameters(9));
    EXPECT_TRUE(id.ok()) << "our own connections have room";
    Gid to;
    CmMessage answer;
    std::uint32_t answers = 0;
    while (rig.managers[1].next_message(to, answer)) ++answers;
    EXPECT_LE(answers, 17u) << "answers to the flood do not queue without bound";
    rig.managers[1].on_time(10'000'000'000);
    CmEvent event;
    while (rig.managers[1].next_event(event)) {
    }
    rig.managers[1].on_time(20'000'000'000);
    EXPECT_EQ(rig.managers[1].half_open(), 0u)
        << "half-open connections must end if they are not completed in time";
}

TEST(RoceCm, ARequestIsRepeatedForItsStatedTimeAndOtherMessagesForHalfOfIt) {
    const CmOptions options = CmRig::options(5);
    ConnectionManager manager(options);
    const auto messages_until_closed = [&](TimeNs now) {
        std::uint32_t sent = 0;
        Gid peer;
        CmMessage message;
        CmEvent event;
        for (bool closed = false; !closed; now = manager.next_deadline()) {
            if (now == kNever) return 0u;
            manager.on_time(now);
            while (manager.next_message(peer, message)) {
                ++sent;
                EXPECT_TRUE(message.kind != CmKind::kRequest ||
                            message.cm_retries == options.request_retries);
            }
            while (manager.next_event(event)) closed = event.kind == CmEventKind::kClosed;
        }
        return sent;
    };
    CmParameters mine;
    mine.service_id = kService;
    mine.local_gid = address_of(0);
    mine.remote_gid = address_of(1);
    ASSERT_TRUE(manager.connect(0, address_of(1), mine).ok());
    EXPECT_EQ(messages_until_closed(0), 16u) << "the peer does not answer";
    // A host that needs 6 s for its first answer, and says no more afterwards.
    const auto id = manager.connect(10'000'000'000, address_of(1), mine);
    ASSERT_TRUE(id.ok());
    Gid peer;
    CmMessage request, reply;
    TimeNs now = 10'000'000'000;
    for (; now <= 16'000'000'000; now = manager.next_deadline()) {
        manager.on_time(now);
        while (manager.next_message(peer, request)) {
        }
    }
    reply.kind = CmKind::kReply;
    reply.transaction = request.transaction;
    reply.local_id = 77;
    reply.remote_id = request.local_id;
    reply.queue_pair = 9;
    manager.on_message(now, address_of(1), reply);
    CmEvent event;
    ASSERT_TRUE(manager.next_event(event));
    EXPECT_EQ(event.kind, CmEventKind::kConnected);
    manager.disconnect(now, *id);
    EXPECT_EQ(messages_until_closed(now), 8u) << "DREQ with its repetitions";
}

TEST(RoceCm, OnePeersFloodLeavesRoomForOthersAndRefusedRequestsHoldNoPlace) {
    CmOptions options = CmRig::options(5);
    options.half_open_of_peer_max = 4;
    ConnectionManager manager(options);
    ASSERT_TRUE(manager.listen(kService).ok());
    CmMessage request;
    request.kind = CmKind::kRequest;
    request.service_id = kService;
    CmEvent event;
    for (std::uint32_t i = 0; i < 1000; ++i) {
        request.local_id = request.transaction = i;
        manager.on_message(0, address_of(7), request);
    }
    EXPECT_EQ(manager.half_open(), 4u);
    // Refused ones wait, so that the refusal can be repeated, but give way to who comes.
    for (std::uint32_t i = 0; i < 1000; ++i) {
        request.local_id = request.transaction = i;
        manager.on_message(0, address_of(8), request);
        bool asked = false;
        while (manager.next_event(event)) {
            if (event.kind != CmEventKind::kRequested || event.peer != address_of(8)) continue;
            asked = true;
            EXPECT_TRUE(manager.reject(0, event.id, RejectReason::kConsumer, {}).ok());
        }
        ASSERT_TRUE(asked) << "request " << i;
    }
    EXPECT_LE(manager.open_connections(), options.connections_max);
}

TEST(RoceCm, FloodsFromManyAddressesLeaveRoomForPeersWithFewerConnections) {
    CmOptions options;
    options.connections_max = 256;
    options.half_open_max = 64;
    options.half_open_of_peer_max = 32;
    ConnectionManager manager(options);
    ASSERT_TRUE(manager.listen(kService).ok());
    CmMessage request;
    request.kind = CmKind::kRequest;
    request.service_id = kService;
    CmEvent event;
    std::uint32_t ended = 0;
    const auto flood = [&](TimeNs now) {
        for (std::uint32_t i = 0; i < 200; ++i) {
            request.local_id = request.transaction = static_cast<std::uint32_t>(now) * 1000 + i;
            manager.on_message(now, address_of(10 + i % 4), request);
        }
    };
    flood(1);
    EXPECT_EQ(manager.half_open(), options.half_open_max);
    std::vector<CmId> honest;
    for (std::uint32_t peer = 100; peer < 108; ++peer) {
        while (manager.next_event(event)) ended += event.kind == CmEventKind::kClosed ? 1 : 0;
        request.local_id = request.transaction = peer;
        manager.on_message(2, address_of(peer), request);
        bool asked = false;
        while (manager.next_event(event)) {
            ended += event.kind == CmEventKind::kClosed ? 1 : 0;
            if (event.kind != CmEventKind::kRequested) continue;
            EXPECT_EQ(event.peer, address_of(peer));
            asked = true;
            honest.push_back(event.id);
        }
        EXPECT_TRUE(asked) << "peer " << peer << " found no place";
        EXPECT_LE(manager.half_open(), options.half_open_max);
        flood(peer);
    }
    EXPECT_EQ(ended, 8u) << "each took the place of one of the flood's";
    for (const CmId id : honest)
        EXPECT_TRUE(manager.accept(200, id, {}).ok()) << "the flood replaced the real peer's connection";
}

TEST(RoceCm, APeerThatWasConnectedBeforeKeepsItsConnectionsInAFloodOfFirstRequests) {
    CmOptions options;
    options.connections_max = 256;
    options.half_open_max = 64;
    options.half_open_of_peer_max = 32;
    ConnectionManager manager(options);
    ASSERT_TRUE(manager.listen(kService).ok());
    CmMessage request;
    request.kind = CmKind::kRequest;
    request.service_id = kService;
    std::uint32_t asked = 0;
    const auto ask = [&](std::uint32_t from, PeerTrust standing) {
        request.local_id = request.transaction = ++asked;
        manager.on_message(asked, address_of(from), request, standing);
    };
    constexpr std::uint32_t kProvenPeer = 250, kOpens = 16;
    std::vector<CmId> opened;
    std::uint32_t flood_ended = 0;
    const auto look = [&] {
        CmEvent event;
        while (manager.next_event(event)) {
            const bool proven = event.peer == address_of(kProvenPeer);
            if (event.kind == CmEventKind::kRequested && proven) opened.push_back(event.id);
            if (event.kind != CmEventKind::kClosed) continue;
            EXPECT_FALSE(proven) << "the flood took a place of it, after " << asked << " requests";
            ++flood_ended;
        }
    };
    // One each, as from forged addresses.
    const auto flood = [&] {
        for (std::uint32_t from = 0; from < 200; ++from) {
            ask(from, PeerTrust::kNew);
            look();
        }
    };
    flood();
    ASSERT_EQ(manager.half_open(), options.half_open_max);
    for (std::uint32_t i = 0; i < kOpens; ++i) {
        ask(kProvenPeer, PeerTrust::kProven);
        look();
        flood();
    }
    EXPECT_EQ(opened.size(), kOpens);
    EXPECT_GT(flood_ended, 0u) << "the flood's own still give way to each other";
    for (const CmId id : opened) EXPECT_TRUE(manager.accept(asked, id, {}).ok());
    EXPECT_LE(manager.half_open(), options.half_open_max);
}

// Over a network that loses up to 30 %, whatever one end believes at the end, the other believes too. Beyond
// that the last word may go lost (and the transport notices), but both still come to an end.
TEST(RoceCm, BothEndsAgreeWhateverTheNetworkLoses) {
    std::uint64_t first = 1, last = 600, connected = 0, ended = 0, messages = 0;
    if (const char* seed = std::getenv("GN_SEED")) first = last = std::strtoull(seed, nullptr, 0);
    for (std::uint64_t seed = first; seed <= last; ++seed) {
        const bool heavy = seed % 4 == 0;
        CmRig rig(seed, static_cast<std::uint32_t>(heavy ? 500 + mix64(seed) % 400 : mix64(seed) % 301));
        ASSERT_TRUE(rig.managers[1].listen(kService).ok());
        std::vector<CmId> ids;
        for (std::uint32_t i = 0; i < 6; ++i) {
            const auto id = rig.managers[0].connect(0, address_of(1), parameters(i));
            ASSERT_TRUE(id.ok());
            ids.push_back(*id);
        }
        rig.pump();
        std::size_t seen = 0;
        std::map<std::uint32_t, CmId> theirs;  // by our queue pair
        std::uint64_t steps = 0;
        bool parted = false;
        while (rig.step() || !parted) {
            ASSERT_LT(++steps, 20'000u) << "GN_SEED=" << seed;
            for (; seen < rig.events[1].size(); ++seen) {
                const CmEvent event = rig.events[1][seen];
                if (event.kind != CmEventKind::kRequested) continue;
                const std::uint32_t pair = event.message.queue_pair;
                theirs[pair] = event.id;
                if (pair == 5) {
                    ASSERT_TRUE(rig.managers[1].reject(rig.now, event.id, RejectReason::kConsumer, {}).ok());
                } else {
                    ASSERT_TRUE(rig.managers[1].accept(rig.now, event.id, parameters(100 + pair)).ok());
                }
            }
            rig.pump();
            if (rig.managers[0].next_deadline() == kNever && rig.managers[1].next_deadline() == kNever &&
                !parted) {
                parted = true;
                rig.managers[0].disconnect(rig.now, ids[0]);
                if (theirs.contains(1)) rig.managers[1].disconnect(rig.now, theirs[1]);
                rig.pump();
            }
        }
        if (!heavy) {
            EXPECT_EQ(rig.managers[0].open_connections(), rig.managers[1].open_connections())
                << "GN_SEED=" << seed;
        }
        EXPECT_EQ(rig.managers[1].half_open(), 0u) << "GN_SEED=" << seed;
        for (std::uint32_t i = 0; i < 6; ++i) {
            const auto mine = rig.kinds(0, ids[i]);
            ASSERT_FALSE(mine.empty()) << "GN_SEED=" << seed;
            const bool open = mine.back() == CmEventKind::kConnected;
            EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
            EXPECT_FALSE(open && (i == 0 || i == 5)) << "GN_SEED=" << seed;
            if (open && !heavy) {
                EXPECT_EQ(rig.kinds(1, theirs[i]).back(), CmEventKind::kConnected) << "GN_SEED=" << seed;
            }
            ++(open ? connected : ended);
        }
        messages += rig.sent;
    }
    std::printf(
        "GN_COUNT roce_cm_connected=%llu\nGN_COUNT roce_cm_ended=%llu\nGN_COUNT roce_cm_messages=%llu\n",
        static_cast<unsigned long long>(connected), static_cast<unsigned long long>(ended),
        static_cast<unsigned long long>(messages));
}

}  // namespace
