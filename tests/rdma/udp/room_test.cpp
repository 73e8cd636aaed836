// room_test.cpp: connections to one peer share what may be on its way to it; who waits for room goes on when
// there is some, however it came.
#include "rdma/udp/rig.hpp"

#include <atomic>

namespace gnstor::rdma::udp {
namespace {

using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;
using roce::RequestKind;

constexpr std::uint32_t kMtu = 4096, kPacketsToPeer = 16;  // the least that a small receive buffer leaves

/// Loses what goes to one queue pair, and counts it and what goes to another.
struct LosePackets final : Tap {
    bool on_packet(bool sent, const roce::NetworkHeaders&, std::span<const std::byte> payload) override {
        roce::Packet packet;
        if (!sent || roce::decode(payload, packet) != roce::DecodeVerdict::kGood) return true;
        if (packet.queue_pair == other.load()) ++others;
        if (packet.queue_pair != to.load()) return true;
        ++lost;
        return false;
    }
    std::atomic<QpNumber> to{0}, other{0};
    std::atomic<std::uint32_t> lost{0}, others{0};
};

/// A connection whose packets are lost has all the room, and another waits; then `end` ends the first.
template <class End>
void expect_the_other_goes_on(End end) {
    Pair pair(kMtu, kMtu);
    pair.left.driver.reset();
    pair.left_options.receive_buffer_bytes = 1;
    pair.left.driver = Driver::open(pair.left_options, *pair.left.reactor).value();
    LosePackets tap;
    FakeAcceptor acceptor(*pair.right.reactor);
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    FakeEndpoint first(*pair.left.reactor), second(*pair.left.reactor);
    ASSERT_TRUE(pair.connect(first, 7).ok());
    FakeEndpoint* const peer = acceptor.await_link(0);
    ASSERT_NE(peer, nullptr);
    ASSERT_TRUE(pair.connect(second, 8).ok());
    ASSERT_NE(acceptor.await_link(1), nullptr);
    tap.to = acceptor.up[0].first;
    tap.other = acceptor.up[1].first;
    pair.left.driver->set_tap(&tap);

    std::vector<std::byte> bytes(kPacketsToPeer * kMtu);
    ASSERT_TRUE(first.post(rig::request(RequestKind::kWrite, 1, bytes)).ok());
    const auto deadline = std::chrono::steady_clock::now() + rig::kPatience;
    while (tap.lost < kPacketsToPeer && std::chrono::steady_clock::now() < deadline)
        pair.left.reactor->run([] {});
    ASSERT_TRUE(second.post(rig::request(RequestKind::kWrite, 1, std::span(bytes).first(64))).ok());
    for (int round = 0; round < 10; ++round) pair.left.reactor->run([] {});
    const std::uint32_t went_on = tap.others;
    const bool given_up = first.await([&] { return first.failed.has_value(); }, std::chrono::milliseconds(0));
    // A machine that stood still for the two seconds after which the first is given up proves nothing.
    EXPECT_TRUE(given_up || went_on == 0)
        << "the second connection does not have to wait, so the test covers nothing";
    end(first, *peer);
    EXPECT_TRUE(second.await([&] { return second.completions == 1; }, std::chrono::seconds(30)))
        << "a place is free, but the waiting connection was not notified";
    EXPECT_TRUE(second.bad.empty());
    pair.left.driver->set_tap(nullptr);
    first.close();
    second.close();
    pair.right.driver->unlisten(4420);
}

TEST(Room, OfALinkClosedLocallyGoesToAWaitingConnection) {
    expect_the_other_goes_on([](FakeEndpoint& first, FakeEndpoint&) { first.close(); });
}

TEST(Room, OfALinkClosedByItsPeerGoesToAWaitingConnection) {
    expect_the_other_goes_on([](FakeEndpoint&, FakeEndpoint& peer) { peer.close(); });
}

}  // namespace
}  // namespace gnstor::rdma::udp
