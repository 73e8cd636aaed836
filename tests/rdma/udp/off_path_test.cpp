// off_path_test.cpp: packets of one who sees no traffic and sends under any address, and recorded packets of
// an earlier connection, against real wires. What has to be guessed, and how often that succeeds:
// tests/rdma/roce/off_path_*_test.cpp.
#include <gnstor/base/hash.hpp>

#include "rdma/roce/unmix64.hpp"
#include "rdma/udp/raw_peer.hpp"
#include "support/count.hpp"
#include "support/seed.hpp"

namespace gnstor::rdma::udp {
namespace {

using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;
using rig::RawPeer;
using roce::CmKind;
using roce::RequestKind;

constexpr QpNumber kLeftQp = 7, kAccepted = 0x100;
constexpr std::uint64_t kGamma = 0x9E3779B97F4A7C15ull;  // of SplitMix64

/// Keeps the requests that arrive on queue pairs.
class Recorder final : public Tap {
  public:
    struct Recorded {
        roce::Packet packet;
        std::vector<std::byte> payload;
    };
    bool on_packet(bool sent, const roce::NetworkHeaders&, std::span<const std::byte> bytes) override {
        roce::Packet packet;
        if (sent || roce::decode(bytes, packet) != roce::DecodeVerdict::kGood) return true;
        if (packet.queue_pair == roce::kManagementQueuePair) return true;
        const auto payload = packet.payload.pieces[0].first(packet.payload.bytes);
        all.push_back({packet, {payload.begin(), payload.end()}});
        return true;
    }
    std::vector<Recorded> all;  ///< the reactor's thread; read when no tap is set
};

class OffPathUdp : public ::testing::Test {
  protected:
    void SetUp() override {
        acceptor.receives = 64;
        acceptor.receive_bytes = 256;
        ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    }
    void TearDown() override { pair.right.driver->unlisten(4420); }
    FakeEndpoint* connect(FakeEndpoint& left) {
        const std::size_t before = acceptor.up.size();
        EXPECT_TRUE(pair.connect(left, kLeftQp).ok());
        return acceptor.await_link(before);
    }
    static void expect_works(FakeEndpoint& from, FakeEndpoint& to, std::uint64_t completed) {
        std::vector<std::byte> bytes(10'000), back(10'000);
        rig::fill(bytes, 5);
        ASSERT_TRUE(from.post(rig::request(RequestKind::kWrite, completed + 1, bytes, 100'000)).ok());
        ASSERT_TRUE(from.post(rig::request(RequestKind::kRead, completed + 2, back, 100'000)).ok());
        ASSERT_TRUE(from.await_completions(completed + 2));
        EXPECT_TRUE(from.bad.empty());
        EXPECT_EQ(bytes, back);
        EXPECT_FALSE(to.failed.has_value());
    }
    /// In the left's name, from another port.
    RawPeer forger() {
        return RawPeer(pair.left_options.address, 0, pair.right_options.address, pair.port());
    }
    /// Waits until the right has taken so many packets more.
    void await_taken(std::uint64_t before, std::uint64_t count) {
        const auto deadline = std::chrono::steady_clock::now() + rig::kPatience;
        while (pair.right.driver->counters().packets_received < before + count &&
               std::chrono::steady_clock::now() < deadline) {
        }
    }
    Pair pair;
    FakeAcceptor acceptor{*pair.right.reactor, kAccepted};
};

TEST_F(OffPathUdp, AReplyToAStrangerDoesNotTellTheFirstPsnOfAnyOtherConnection) {
    ASSERT_EQ(unmix64(mix64(77)), 77u);
    RawPeer one("127.0.0.91", pair.port(), pair.right_options.address, pair.port());
    RawPeer other("127.0.0.92", pair.port(), pair.right_options.address, pair.port());
    one.send(RawPeer::request(1, 2));
    const auto told = one.await(CmKind::kReply);
    other.send(RawPeer::request(1, 2));
    const auto wanted = other.await(CmKind::kReply);
    ASSERT_TRUE(told && wanted);
    for (std::uint64_t number : {told->ca_guid, told->transaction, std::uint64_t{told->start_psn}}) {
        const std::uint64_t state = unmix64(number);
        for (std::uint64_t n = 0; n < 64; ++n)
            EXPECT_NE(mix64(state + n * kGamma) & roce::kPsnMask, wanted->start_psn) << "number " << n;
    }
    EXPECT_NE(told->start_psn + 1, wanted->start_psn);
    EXPECT_NE(told->local_id >> 12, wanted->local_id >> 12) << "by chance once in a million runs";
}

TEST_F(OffPathUdp, PacketsReplayedFromAnEndedConnectionDoNothingInTheNextOneOfTheSameQueuePairs) {
    Recorder recorder;
    pair.right.driver->set_tap(&recorder);
    {
        FakeEndpoint left(*pair.left.reactor);
        FakeEndpoint* const right = connect(left);
        ASSERT_NE(right, nullptr);
        expect_works(left, *right, 0);
        std::vector<std::byte> bytes(200, std::byte{0xEE});
        for (std::uint64_t i = 0; i < 8; ++i)
            ASSERT_TRUE(left.post(rig::request(RequestKind::kSend, 3 + i, bytes)).ok());
        ASSERT_TRUE(left.await_completions(10));
        left.close();
        ASSERT_TRUE(right->await([&] { return right->failed.has_value(); }));
    }
    pair.right.driver->set_tap(nullptr);
    acceptor.next_qp = kAccepted;
    FakeEndpoint left(*pair.left.reactor);
    FakeEndpoint* const right = connect(left);
    ASSERT_NE(right, nullptr);
    std::vector<std::byte> before;
    pair.right.reactor->run([&] { before = right->memory; });
    RawPeer replays = forger();
    std::uint64_t sent = 0;
    const std::uint64_t taken = pair.right.driver->counters().packets_received;
    for (std::uint32_t round = 0; round < 32; ++round) {
        for (Recorder::Recorded& one : recorder.all) {
            EXPECT_EQ(one.packet.queue_pair, kAccepted);
            roce::Packet packet = one.packet;
            packet.payload = {};
            packet.payload.add(one.payload);
            replays.send(packet);
            ++sent;
        }
        await_taken(taken, sent);
    }
    EXPECT_GE(sent, 32u * 10);
    pair.right.reactor->run([&] { EXPECT_TRUE(right->memory == before); });
    EXPECT_EQ(right->messages, 0u);
    expect_works(left, *right, 0);
    left.close();
    test::count("udp_replayed_packets", sent);
}

TEST_F(OffPathUdp, MessagesForgedInAPeersNameEndNoneOfItsConnections) {
    FakeEndpoint left(*pair.left.reactor);
    FakeEndpoint* const right = connect(left);
    ASSERT_NE(right, nullptr);
    RawPeer forged = forger();
    SplitMix64 dice(test::run_seed());
    constexpr CmKind kKinds[] = {CmKind::kReject, CmKind::kReply, CmKind::kReadyToUse, CmKind::kDisconnect,
                                 CmKind::kDisconnected};
    const std::uint64_t taken = pair.right.driver->counters().packets_received;
    for (std::uint32_t i = 0; i < 2000; ++i) {
        roce::CmMessage message;
        message.kind = kKinds[dice.below(std::size(kKinds))];
        message.transaction = dice.next();
        message.local_id = static_cast<std::uint32_t>(dice.next());
        message.remote_id = static_cast<std::uint32_t>(dice.next());
        message.queue_pair = kAccepted;
        forged.send(message);
        if (i % 50 == 49) await_taken(taken, i);
    }
    expect_works(left, *right, 0);
    left.close();
}

TEST_F(OffPathUdp, AFloodOfRequestsForgedInAPeersNameDoesNotKeepThatPeerFromConnecting) {
    RawPeer forged = forger();
    for (std::uint32_t i = 0; i < 1500; ++i) forged.send(RawPeer::request(5000 + i, 5000 + i));
    FakeEndpoint left(*pair.left.reactor);
    const auto connected = pair.connect(left, kLeftQp);
    EXPECT_TRUE(connected.ok()) << connected.error().message;
    left.close();
}

}  // namespace
}  // namespace gnstor::rdma::udp
