// off_path_cm_test.cpp: messages of connection management from one who sees no traffic, and sends under any
// address: right in all but what it would have to guess. And messages that were recorded, sent again.
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cm_rig.hpp"
#include "rdma/roce/unmix64.hpp"
#include "support/count.hpp"

using namespace gnstor;
using namespace gnstor::rdma::roce;
using samples::address_of;

namespace {

constexpr std::uint64_t kService = service_of_port(4420);
constexpr TimeNs kMs = 1'000'000;

std::vector<CmMessage> sent_by(ConnectionManager& manager) {
    std::vector<CmMessage> all;
    Gid to;
    CmMessage message;
    while (manager.next_message(to, message)) all.push_back(message);
    return all;
}
std::vector<CmEvent> events_of(ConnectionManager& manager) {
    std::vector<CmEvent> all;
    CmEvent event;
    while (manager.next_event(event)) all.push_back(event);
    return all;
}

/// Node 0 connects, node 1 listens; the test carries the messages.
struct OffPath : testing::Test {
    OffPath() {
        EXPECT_TRUE(managers[1].listen(kService).ok());
        EXPECT_TRUE(managers[0].listen(kService).ok());
    }
    void deliver(std::uint32_t to, const CmMessage& message) {
        managers[to].on_message(now, address_of(1 - to), message);
    }
    void ask() {
        CmParameters mine;
        mine.service_id = kService;
        mine.queue_pair = 0x111;
        active = managers[0].connect(now, address_of(1), mine).value();
        request = sent_by(managers[0]).at(0);
    }
    void answer() {
        deliver(1, request);
        passive = events_of(managers[1]).at(0).id;
        CmParameters mine;
        mine.queue_pair = 0x222;
        ASSERT_TRUE(managers[1].accept(now, passive, mine).ok());
        reply = sent_by(managers[1]).at(0);
    }
    void confirm() {
        deliver(0, reply);
        ready = sent_by(managers[0]).at(0);
        deliver(1, ready);
        ASSERT_EQ(events_of(managers[0]).at(0).kind, CmEventKind::kConnected);
        ASSERT_EQ(events_of(managers[1]).at(0).kind, CmEventKind::kConnected);
    }
    void connect() {
        ask();
        answer();
        confirm();
    }
    /// What the node at the other end of `to` would send, if it were of this kind.
    [[nodiscard]] CmMessage genuine(std::uint32_t to, CmKind kind) const {
        CmMessage message;
        message.kind = kind;
        message.transaction = kind == CmKind::kDisconnect ? 99 : request.transaction;
        message.local_id = to == 0 ? passive : active;
        message.remote_id = to == 0 ? active : passive;
        message.queue_pair = to == 0 ? 0x111 : 0x222;
        return message;
    }
    /// Delivers each copy of `message` in which one guess is wrong; none may have an effect.
    void forge_each(std::uint32_t to, const CmMessage& message, bool peer_id_known) {
        const bool begins = message.kind == CmKind::kDisconnect;
        for (std::uint32_t wrong = 0; wrong < 4; ++wrong) {
            CmMessage forged = message;
            Gid from = address_of(1 - to);
            if (wrong == 0) forged.remote_id ^= 1u << 20;
            if (wrong == 1) {
                if (!peer_id_known) continue;
                forged.local_id ^= 1;
            }
            if (wrong == 2) begins ? forged.queue_pair ^= 1 : forged.transaction ^= 1;
            if (wrong == 3) from = address_of(9);
            EXPECT_FALSE(managers[to].expects(from, forged)) << "wrong " << wrong;
            managers[to].on_message(now, from, forged);
            EXPECT_TRUE(events_of(managers[to]).empty()) << "wrong " << wrong;
        }
        (void)sent_by(managers[to]);
        EXPECT_TRUE(managers[to].expects(address_of(1 - to), message));
    }

    ConnectionManager managers[2] = {ConnectionManager(samples::CmRig::options(1)),
                                     ConnectionManager(samples::CmRig::options(2))};
    TimeNs now = 1'000'000'000;
    CmId active = 0, passive = 0;
    CmMessage request, reply, ready;
};

TEST_F(OffPath, AForgedReplyDoesNotCompleteAConnect) {
    ask();
    CmMessage forged = genuine(0, CmKind::kReply);
    forged.local_id = 0xBAD;
    forge_each(0, forged, false);
    answer();
    confirm();
}

TEST_F(OffPath, AForgedRejectDoesNotEndAConnect) {
    ask();
    forge_each(0, genuine(0, CmKind::kReject), false);
    answer();
    confirm();
}

TEST_F(OffPath, AForgedReadyToUseDoesNotOpenAConnectionForAForgedRequest) {
    ask();
    answer();
    forge_each(1, genuine(1, CmKind::kReadyToUse), true);
    EXPECT_EQ(managers[1].half_open(), 1u);
    confirm();
}

TEST_F(OffPath, AForgedRejectOrDisconnectDoesNotEndAConnection) {
    connect();
    for (const std::uint32_t to : {0u, 1u}) {
        forge_each(to, genuine(to, CmKind::kReject), true);
        forge_each(to, genuine(to, CmKind::kDisconnect), true);
        EXPECT_EQ(managers[to].open_connections(), 1u);
    }
    // The genuine one ends it.
    managers[0].disconnect(now, active);
    deliver(1, sent_by(managers[0]).at(0));
    EXPECT_EQ(events_of(managers[1]).at(0).end, CmEnd::kDisconnected);
}

TEST_F(OffPath, AForgedDisconnectReplyDoesNotFreeTheIdOfAConnectionThatThePeerStillHas) {
    connect();
    managers[0].disconnect(now, active);
    const CmMessage said = sent_by(managers[0]).at(0);
    CmMessage confirmed = genuine(0, CmKind::kDisconnected);
    confirmed.transaction = said.transaction;
    forge_each(0, confirmed, true);
    EXPECT_EQ(managers[0].disconnecting(), 1u);
    deliver(0, confirmed);
    EXPECT_EQ(managers[0].disconnecting(), 0u);
}

TEST_F(OffPath, AForgedReceiptDoesNotProlongAHalfOpenConnection) {
    ask();
    answer();
    const TimeNs before = managers[1].next_deadline();
    CmMessage wait = genuine(1, CmKind::kReceipt);
    wait.service_timeout = 31;
    forge_each(1, wait, true);
    EXPECT_EQ(managers[1].next_deadline(), before);
}

TEST_F(OffPath, ReplayedMessagesOfAnEndedConnectionDoNotTouchTheNextOne) {
    std::vector<CmMessage> to_active, to_passive;
    for (std::uint32_t i = 0; i < 40; ++i) {
        connect();
        for (const CmMessage& old : to_active) deliver(0, old);
        for (const CmMessage& old : to_passive)
            if (old.kind != CmKind::kRequest) deliver(1, old);
        EXPECT_TRUE(events_of(managers[0]).empty());
        EXPECT_TRUE(events_of(managers[1]).empty());
        (void)sent_by(managers[0]), (void)sent_by(managers[1]);
        to_passive.insert(to_passive.end(), {request, ready, genuine(1, CmKind::kDisconnect)});
        to_active.insert(to_active.end(), {reply, genuine(0, CmKind::kDisconnect)});
        managers[0].disconnect(now, active);
        const CmMessage said = sent_by(managers[0]).at(0);
        to_passive.push_back(said);
        deliver(1, said);
        const CmMessage confirmed = sent_by(managers[1]).at(0);
        to_active.push_back(confirmed);
        deliver(0, confirmed);
        ASSERT_EQ(events_of(managers[0]).size(), 1u);
        ASSERT_EQ(events_of(managers[1]).size(), 1u);
    }
}

TEST_F(OffPath, AReplayedRequestEndsHalfOpenAndLeavesTheConnectionAlone) {
    connect();
    deliver(1, request);
    EXPECT_TRUE(events_of(managers[1]).empty()) << "of a connection that is up, a REQ is a repetition";
    const CmMessage old = request;
    managers[0].disconnect(now, active);
    deliver(1, sent_by(managers[0]).at(0));
    deliver(0, sent_by(managers[1]).at(0));
    (void)events_of(managers[0]), (void)events_of(managers[1]);
    connect();
    deliver(1, old);
    const CmId again = events_of(managers[1]).at(0).id;
    ASSERT_TRUE(managers[1].accept(now, again, {}).ok());
    deliver(0, sent_by(managers[1]).at(0));
    EXPECT_TRUE(events_of(managers[0]).empty());
    deliver(1, sent_by(managers[0]).at(0));  // "I know of no such connection"
    const auto ended = events_of(managers[1]);
    ASSERT_EQ(ended.size(), 1u);
    EXPECT_EQ(ended[0].id, again);
    EXPECT_EQ(managers[1].half_open(), 0u);
    EXPECT_EQ(managers[1].open_connections(), 1u);
}

TEST(OffPathIds, TheMessagesOfOneConnectionDoNotTellIdsOrTransactionsOfOthers) {
    ASSERT_EQ(unmix64(mix64(0x123456789)), 0x123456789u);
    CmOptions options = samples::CmRig::options(1);
    options.seed = std::nullopt;
    options.connections_max = 64;
    ConnectionManager manager(options);
    std::set<std::uint32_t> ids;
    std::vector<CmMessage> said;
    std::uint32_t guessed = 0, places = 0;
    constexpr std::uint32_t kConnections = 4096;
    for (std::uint32_t i = 0; i < kConnections; ++i) {
        const CmId id = manager.connect(0, address_of(1), CmParameters{}).value();
        const CmMessage now = sent_by(manager).at(0);
        // What one who was connected before would guess: the next transaction, the next generation of the
        // same index, and both of them by the generator whose state an earlier transaction may be.
        for (std::size_t back = 1; back <= std::min<std::size_t>(said.size(), 64); ++back) {
            const CmMessage& old = said[said.size() - back];
            guessed += now.transaction - old.transaction <= 64 ? 1 : 0;
            const std::uint64_t state = unmix64(old.transaction);
            guessed += unmix64(now.transaction) - state <= 64 ? 1 : 0;
            for (std::uint64_t n = 0; n < 64; ++n) {
                const auto generation = static_cast<std::uint32_t>(mix64(state + n));
                guessed += now.local_id == ((generation << 12) | (now.local_id & 0xFFF)) ? 1 : 0;
            }
        }
        places += said.empty() || (now.local_id & 0xFFF) != ((said.back().local_id + 1) & 0x3F) ? 0 : 1;
        ids.insert(now.local_id);
        said.push_back(now);
        manager.disconnect(0, id);
        (void)events_of(manager);
    }
    // By chance, of 2^20 generations: 4096 * 64 * 64 / 2^20 = 16 and a few.
    EXPECT_LT(guessed, 60u);
    EXPECT_GT(ids.size(), kConnections - 10);
    EXPECT_LT(places, 2 * kConnections / 64) << "the next place must be as likely as any other";
    test::count("roce_off_path_ids", kConnections);
}

TEST(OffPathRequests, RequestsForgedInAPeersNameDoNotKeepThePeerFromConnecting) {
    CmOptions options = samples::CmRig::options(3);
    options.connections_max = 64;
    options.half_open_max = 16;
    options.half_open_of_peer_max = 4;
    ConnectionManager manager(options);
    ASSERT_TRUE(manager.listen(kService).ok());
    const auto ask = [&](TimeNs now, std::uint32_t id) -> std::optional<CmMessage> {
        CmMessage request;
        request.kind = CmKind::kRequest;
        request.service_id = kService;
        request.local_id = request.transaction = request.queue_pair = id;
        manager.on_message(now, address_of(7), request);
        for (const CmEvent& event : events_of(manager)) {
            if (event.kind != CmEventKind::kRequested) continue;
            EXPECT_TRUE(manager.accept(now, event.id, {}).ok());
        }
        for (const CmMessage& message : sent_by(manager))
            if (message.kind == CmKind::kReply && message.remote_id == id) return message;
        return std::nullopt;
    };
    // The peer's host ignores the replies to what it never asked for (Linux does).
    for (std::uint32_t i = 0; i < 20; ++i) (void)ask(i * kMs, 100 + i);
    for (std::uint32_t i = 0; i < 20; ++i) {
        const TimeNs now = (1000 + 300 * i) * kMs;
        const auto reply = ask(now, 1000 + i);
        ASSERT_TRUE(reply) << "the peer must be answered, not told that there is no room";
        CmMessage ready;
        ready.kind = CmKind::kReadyToUse;
        ready.transaction = reply->transaction;
        ready.local_id = reply->remote_id;
        ready.remote_id = reply->local_id;
        (void)ask(now + 2 * kMs, 2000 + i);  // the flood goes on meanwhile
        manager.on_message(now + 3 * kMs, address_of(7), ready);
        const auto events = events_of(manager);
        ASSERT_FALSE(events.empty());
        EXPECT_EQ(events.back().kind, CmEventKind::kConnected);
        EXPECT_LE(manager.half_open(), 16u);
    }
}

}  // namespace
