// Packets that nobody should send, from plain UDP sockets, beside a connection that must not notice.
#include <array>
#include <atomic>
#include <thread>

#include "rdma/roce/cm_messages.hpp"
#include "rdma/roce/psn.hpp"
#include "rdma/udp/raw_peer.hpp"
#include "rdma/udp/rig.hpp"
#include "support/count.hpp"
#include "support/seed.hpp"

namespace gnstor::rdma::udp {
namespace {

using rig::connection_request;
using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;
using rig::Stranger;
using rig::write_packet;
using roce::RequestKind;

/// A connection under traffic, whose numbers an attacker knows.
class Hostile : public ::testing::Test {
  protected:
    void SetUp() override {
        acceptor.options.reads_max = 8;
        ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
        ASSERT_TRUE(pair.connect(left, 7).ok());
        right = acceptor.await_link(0);
        ASSERT_NE(right, nullptr);
        before = right->memory;
    }
    void TearDown() override {
        left.close();
        pair.right.driver->unlisten(4420);
    }
    /// The connection works, and nothing but what it wrote has changed.
    void expect_unharmed() {
        std::vector<std::byte> bytes(10'000), back(10'000);
        rig::fill(bytes, ++seed);
        ASSERT_TRUE(left.post(rig::request(RequestKind::kWrite, ++id, bytes, 100'000)).ok());
        ASSERT_TRUE(left.post(rig::request(RequestKind::kRead, ++id, back, 100'000)).ok());
        ASSERT_TRUE(left.await_completions(id));
        EXPECT_TRUE(left.bad.empty());
        EXPECT_EQ(bytes, back);
        pair.right.reactor->run([&] {
            std::copy(bytes.begin(), bytes.end(), before.begin() + 100'000);
            EXPECT_TRUE(right->memory == before);
        });
        EXPECT_FALSE(right->failed.has_value());
    }
    /// Waits until the right has seen so many packets.
    void await_received(std::uint64_t count) {
        const auto deadline = std::chrono::steady_clock::now() + rig::kPatience;
        while (pair.right.driver->counters().packets_received < count &&
               std::chrono::steady_clock::now() < deadline) {
        }
        EXPECT_GE(pair.right.driver->counters().packets_received, count);
    }

    Pair pair;
    FakeAcceptor acceptor{*pair.right.reactor};
    FakeEndpoint left{*pair.left.reactor};
    FakeEndpoint* right = nullptr;
    std::vector<std::byte> before;
    std::uint64_t id = 0, seed = 1000;
};

TEST_F(Hostile, PacketsFromAnotherAddressAreDroppedAndCountedWhateverTheirContents) {
    Stranger stranger("127.0.0.66", pair.port());
    const std::vector<std::byte> payload(64, std::byte{0xEE});
    const UdpWireCounters then = pair.right.driver->counters();
    for (std::uint32_t psn = 0; psn < 2000; ++psn) {
        stranger.send(write_packet(acceptor.up[0].first, psn * 8191, payload));
        if (psn % 200 == 0) await_received(then.packets_received + stranger.sent);
    }
    await_received(then.packets_received + stranger.sent);
    EXPECT_EQ(pair.right.driver->counters().wrong_peer - then.wrong_peer, stranger.sent);
    expect_unharmed();
    test::count("udp_hostile_packets", stranger.sent);
}

TEST_F(Hostile, PacketsWithAnotherIcrcAreDroppedAndCounted) {
    // The peer's own address, and every PSN in question: the ICRC alone says no.
    Stranger forger("127.0.0.2", pair.port());
    const std::vector<std::byte> payload(64, std::byte{0xEE});
    const UdpWireCounters then = pair.right.driver->counters();
    for (std::uint32_t i = 0; i < 2000; ++i) {
        forger.send(write_packet(acceptor.up[0].first, i * 8191, payload), 1u << (i % 32));
        if (i % 200 == 0) await_received(then.packets_received + forger.sent);
    }
    await_received(then.packets_received + forger.sent);
    EXPECT_EQ(pair.right.driver->counters().bad_icrc - then.bad_icrc, forger.sent);
    expect_unharmed();
    test::count("udp_hostile_packets", forger.sent);
}

TEST_F(Hostile, GarbageIsDroppedAndCounted) {
    Stranger stranger("127.0.0.66", pair.port());
    SplitMix64 dice(7);
    const UdpWireCounters then = pair.right.driver->counters();
    for (std::uint32_t i = 0; i < 4000; ++i) {
        std::vector<std::byte> bytes(dice.below(i % 10 == 0 ? 9000 : 300));
        for (std::byte& b : bytes) b = static_cast<std::byte>(dice.next());
        // Every other one has a head that decodes.
        if (bytes.size() > 16 && i % 2 == 0) {
            bytes[0] = std::byte{0x0A};
            bytes[1] = std::byte{0x40};
            bytes[2] = bytes[3] = std::byte{0xFF};
        }
        stranger.send(bytes);
        if (i % 200 == 0) await_received(then.packets_received + stranger.sent);
    }
    await_received(then.packets_received + stranger.sent);
    const UdpWireCounters now = pair.right.driver->counters();
    EXPECT_EQ(now.malformed + now.unknown_queue_pair + now.wrong_peer + now.bad_icrc - then.malformed -
                  then.unknown_queue_pair - then.wrong_peer - then.bad_icrc,
              stranger.sent);
    expect_unharmed();
    test::count("udp_hostile_packets", stranger.sent);
}

TEST_F(Hostile, AFloodOfRequestsIsBoundedAndOthersConnectDuringIt) {
    Stranger stranger("127.0.0.66", pair.port());
    const UdpWireCounters then = pair.right.driver->counters();
    constexpr std::uint32_t kRequests = 3000, kOfAPeer = 64;
    acceptor.memory_bytes = 64;
    std::array<std::byte, roce::kMadBytes> mad;
    for (std::uint32_t i = 0; i < kRequests; ++i) {
        roce::encode_cm(connection_request(i), mad);
        stranger.send(roce::management_packet(mad, i));
        if (i % 50 == 0) await_received(then.packets_received + stranger.sent);
    }
    await_received(then.packets_received + stranger.sent);
    EXPECT_LE(pair.right.driver->links(), 1u + kOfAPeer) << "half-open connections are not bounded";
    expect_unharmed();
    // There is room beside them for who means it, once the acceptor, which answers one after the other, has
    // come that far.
    ASSERT_TRUE(acceptor.await_endpoints(1u + kOfAPeer));
    FakeEndpoint honest(*pair.left.reactor, 64);
    const auto connected = pair.connect(honest, 8);
    EXPECT_TRUE(connected.ok()) << connected.error().message;
    honest.close();
    // What was accepted for the stranger has failed.
    pair.right.driver->unlisten(4420);
    std::uint64_t failed = 0;
    for (const auto& endpoint : acceptor.endpoints) {
        if (endpoint.get() == right) continue;
        EXPECT_TRUE(endpoint->await([&] { return endpoint->failed.has_value(); }));
        ++failed;
    }
    EXPECT_GE(failed, kOfAPeer);
    test::count("udp_half_open_failed", failed);
}

// Its RTU may be lost, and its first packet stands for it: that one alone, whose number the REP says.
TEST_F(Hostile, OnlyAPeersFirstPacketReplacesItsReadyToUse) {
    rig::RawPeer peer("127.0.0.66", pair.port(), pair.right_options.address, pair.port());
    const UdpWireCounters then = pair.right.driver->counters();
    peer.send(rig::RawPeer::request(5, 9));
    const auto reply = peer.await(roce::CmKind::kReply);
    ASSERT_TRUE(reply);
    const std::vector<std::byte> bytes(16);
    const auto write = [&](std::uint32_t number) {
        peer.send(write_packet(reply->queue_pair, (reply->start_psn + number) & roce::kPsnMask, bytes));
    };
    for (std::uint32_t number = 1; number <= 16; ++number) write(number);
    await_received(then.packets_received + peer.sent);
    pair.right.reactor->run([] {});
    {
        const std::lock_guard lock(acceptor.mutex);
        EXPECT_EQ(acceptor.up.size(), 1u) << "a number near the one that the REP said is none";
    }
    write(0);
    EXPECT_NE(acceptor.await_link(1), nullptr);
}

// A REP goes to the address that asked. Who forged that address knows the queue pairs, which are counted, but
// not the number that the REP says.
TEST_F(Hostile, AConnectionCannotBeCompletedWithoutReceivingTheReply) {
    constexpr std::uint32_t kRequests = 32;
    Stranger stranger("127.0.0.66", pair.port());
    const UdpWireCounters then = pair.right.driver->counters();
    acceptor.memory_bytes = 64;
    std::array<std::byte, roce::kMadBytes> mad;
    for (std::uint32_t i = 0; i < kRequests; ++i) {
        roce::encode_cm(connection_request(i), mad);
        stranger.send(roce::management_packet(mad, i));
    }
    ASSERT_TRUE(acceptor.await_endpoints(1u + kRequests));
    // Numbers by chance: each has one chance in 2^24.
    std::vector<std::byte> bytes(16);
    SplitMix64 dice(gnstor::test::run_seed());
    std::uint64_t guesses = 0;
    for (QpNumber qp = 0x100; qp < acceptor.next_qp; ++qp, ++guesses)
        stranger.send(write_packet(qp, static_cast<std::uint32_t>(dice.next()) & 0xFFFFFFu, bytes));
    await_received(then.packets_received + stranger.sent);
    expect_unharmed();
    const std::lock_guard lock(acceptor.mutex);
    EXPECT_LE(acceptor.up.size(), 2u) << "one of " << guesses << " guesses may be right";
    test::count("udp_guessed_numbers", guesses);
}

/// Counts connection requests that go out, and those that are heard.
struct CountRequests final : Tap {
    bool on_packet(bool sent, const roce::NetworkHeaders&, std::span<const std::byte> payload) override {
        roce::Packet packet;
        if (roce::decode(payload, packet) != roce::DecodeVerdict::kGood) return true;
        const auto mad = roce::management_datagram(packet);
        const auto message = mad ? roce::decode_cm(*mad) : std::nullopt;
        if (message && message->kind == roce::CmKind::kRequest) (sent ? requests : heard).fetch_add(1);
        return true;
    }
    std::atomic<std::uint32_t> requests{0}, heard{0};
};

// Whoever can damage or make up packets cannot starve connection management with them.
TEST_F(Hostile, AFloodOfDamagedMessagesDoesNotPreventConnecting) {
    CountRequests counted;
    pair.left.driver->set_tap(&counted);
    pair.right.driver->set_tap(&counted);
    const UdpWireCounters then = pair.right.driver->counters();
    std::atomic<bool> stop{false};
    std::uint64_t sent = 0;
    std::thread flood([&] {
        Stranger stranger("127.0.0.66", pair.port());
        std::array<std::byte, roce::kMadBytes> mad;
        // Never more at once than the receiver holds: it is the budget that is tested.
        while (!stop.load()) {
            for (std::uint32_t i = 0; i < 100; ++i) {
                roce::encode_cm(connection_request(i), mad);
                stranger.send(roce::management_packet(mad, i), 1u << (i % 32));
            }
            await_received(then.packets_received + stranger.sent);
        }
        sent = stranger.sent;
    });
    const auto bad = [&] { return pair.right.driver->counters().bad_icrc - then.bad_icrc; };
    const auto deadline = std::chrono::steady_clock::now() + rig::kPatience;
    while (bad() < 3000 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    constexpr std::uint32_t kConnects = 10;
    for (std::uint32_t i = 0; i < kConnects; ++i) {
        FakeEndpoint honest(*pair.left.reactor, 64);
        const auto connected = pair.connect(honest, 8);
        EXPECT_TRUE(connected.ok()) << connected.error().message;
        honest.close();
    }
    expect_unharmed();
    stop.store(true);
    flood.join();
    pair.left.driver->set_tap(nullptr);
    pair.right.driver->set_tap(nullptr);
    EXPECT_EQ(pair.right.driver->counters().over_budget, then.over_budget);
    // One that is heard and answered late, by a busy machine, is sent again too.
    EXPECT_GE(counted.heard.load(), kConnects);
    EXPECT_LE(counted.requests.load(), counted.heard.load() + 5) << "requests were not heard, and sent again";
    // What is counted as received were honest packets, too: the last damaged ones may be still to come.
    while (bad() < sent && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(bad(), sent);
    test::count("udp_hostile_packets", sent);
}

}  // namespace
}  // namespace gnstor::rdma::udp
